//! A server whose programs run in pods of a real Kubernetes node. Started by `make test-k8s`, as root.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::instance::Server;
use crate::support::{Place, Who, eventually};

const NAMESPACE: &str = "sandboxes";
const PODS: &str = "/api/v1/namespaces/sandboxes/pods";

/// What nobody knows is ended when it is this old, and a little later at most.
const ORPHANED: Duration = Duration::from_secs(180);

/// A node of this machine, gone with the test.
struct Node {
    dir: PathBuf,
    address: String,
    script: Child,
}

impl Node {
    fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let dir = std::env::temp_dir().join(format!("sk-{}-serve", std::process::id()));
        let mut script = Command::new(root.join("scripts/kubernetes.sh"))
            .args(["serve", "node"])
            .arg(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(script.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "run scripts/kubernetes.sh build node");
        let config = std::fs::read_to_string(dir.join("admin")).unwrap();
        let address = config.split('"').find(|part| part.starts_with("https://")).unwrap().to_owned();
        // The server is another user by the time that it reads them.
        for secret in ["pki/sandstorm.key", "pki/sandstorm.crt", "pki/ca.crt", "sandstorm"] {
            std::fs::set_permissions(dir.join(secret), std::fs::Permissions::from_mode(0o644)).unwrap();
        }
        let node = Self { dir, address, script };
        node.prepare(&root);
        node
    }

    /// A namespace as the guide wants it, with the rights that the guide gives.
    fn prepare(&self, root: &Path) {
        let labels =
            json!({ "pod-security.kubernetes.io/enforce": "restricted", "sandstorm.test/policies": "kept" });
        self.make("/api/v1/namespaces", &json!({ "metadata": { "name": NAMESPACE, "labels": labels } }));
        let guide = std::fs::read_to_string(root.join("docs/guides/providers/kubernetes.md")).unwrap();
        let rules = guide.split("```json rules\n").nth(1).unwrap().split("```").next().unwrap();
        let rules: Value = serde_json::from_str(rules).unwrap();
        let group = "rbac.authorization.k8s.io";
        let roles = format!("/apis/{group}/v1/namespaces/{NAMESPACE}");
        self.make(&format!("{roles}/roles"), &json!({ "metadata": { "name": "sandstorm" }, "rules": rules }));
        let binding = json!({
            "metadata": { "name": "sandstorm" },
            "roleRef": { "apiGroup": group, "kind": "Role", "name": "sandstorm" },
            "subjects": [{ "apiGroup": group, "kind": "User", "name": "sandstorm" }],
        });
        self.make(&format!("{roles}/rolebindings"), &binding);
        eventually("the namespace has a service account", || {
            self.ask(&format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"), None)["items"][0].is_object()
        });
    }

    fn make(&self, path: &str, object: &Value) {
        let made = self.ask(path, Some(object));
        assert_eq!(made["metadata"]["name"], object["metadata"]["name"], "{made}");
    }

    /// As whoever may do everything.
    fn ask(&self, path: &str, body: Option<&Value>) -> Value {
        let pki = self.dir.join("pki");
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--max-time", "30", "--cacert"]).arg(pki.join("ca.crt"));
        curl.arg("--cert").arg(pki.join("admin.crt")).arg("--key").arg(pki.join("admin.key"));
        if let Some(body) = body {
            curl.args(["--header", "content-type: application/json", "--data", &body.to_string()]);
        }
        let answer = curl.arg(format!("{}{path}", self.address)).output().unwrap();
        serde_json::from_slice(&answer.stdout).unwrap_or_default()
    }

    fn pods(&self) -> Vec<Value> {
        self.ask(PODS, None)["items"].as_array().cloned().unwrap_or_default()
    }

    /// A server that has this node beside its own machine.
    fn server(&self, place: &Place) -> Server {
        let text = format!(
            "providers:\n  cluster:\n    kind: kubernetes\n    region: lab\n    \
             price: {{model: allocated, vcpu_second: 0.001, gib_second: 0.0001}}\n    \
             options: {{image: docker.io/sandstorm/python:1, pull: never, namespace: {NAMESPACE}, kubeconfig: {}, \
             network_policies: declared, loose_limits: \"true\"}}\n\
             routing: {{probes_per_hour: 0, probes_per_request: 0, reconcile_every: 2s}}\n",
            self.dir.join("sandstorm").display()
        );
        let file = place.write("sandstorm.yaml", text);
        Server::with(Who::Root, &[], &["--config", &file.display().to_string()])
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It ends with its input, and removes what it made.
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}

/// Says what was seen, for the log of the run.
#[expect(clippy::print_stderr, reason = "the log of a run on a real node is read by people")]
fn tell(line: &str) {
    eprintln!("serve: {line}");
}

fn in_the_cluster(code: &str) -> Value {
    json!({ "language": "python", "code": code, "routing": { "exclude_providers": ["local"] }, "limits": { "wall": "120s" } })
}

#[test]
#[ignore = "make test-k8s"]
fn runs_go_to_pods_and_no_pod_outlives_its_purpose() {
    let node = Node::start();
    let place = Place::new();
    let mut server = node.server(&place);
    output_streams_out_of_a_pod(&node, &server);
    a_pod_that_is_deleted_ends_its_run(&node, &server);
    what_a_killed_server_left_is_found(&node, &mut server);
}

fn output_streams_out_of_a_pod(node: &Node, server: &Server) {
    let code = "import time, platform\nfor n in range(3):\n    print('line', n, flush=True)\n    time.sleep(0.4)\n\
                print(platform.node())\n";
    let begin = Instant::now();
    let mut events = server.stream(server.request("POST", "/v1/runs").json(&in_the_cluster(code)));
    let (mut lines, mut said, mut result) = (Vec::new(), String::new(), Value::Null);
    while let Some(event) = events.next_event() {
        tell(&format!("{:5} ms {}", begin.elapsed().as_millis(), short(&event.data)));
        match event.data["type"].as_str() {
            Some("stdout") => {
                lines.push(begin.elapsed());
                said.push_str(event.data["text"].as_str().unwrap());
            }
            Some("end") => result = event.data.clone(),
            _ => {}
        }
    }
    assert_eq!(
        (said.as_str(), &result["status"]),
        ("line 0\nline 1\nline 2\nsandbox\n", &json!("ok")),
        "{result}"
    );
    assert!(*lines.last().unwrap() - lines[0] > Duration::from_millis(600), "it did not stream: {lines:?}");
    let result = server.post("/v1/runs", &in_the_cluster("print(6 * 7)")).expect(200);
    assert_eq!(result["stdout"], "42\n", "{result}");
    let route = &result["route"];
    tell(&format!("route: {}", short(route)));
    assert_eq!(
        (&route["provider"], &route["isolator"]),
        (&json!("cluster"), &json!("kubernetes")),
        "{route}"
    );
    assert!(route["cost_usd"].as_f64().unwrap() > 0.0, "{route}");
    let walls = &result["walls"];
    assert_eq!(
        (&walls["tier"], &walls["nnp"], &walls["net"]["mode"]),
        (&json!("container"), &json!(true), &json!("none"))
    );
    let usage = server.get("/v1/usage?group_by=provider").expect(200);
    tell(&format!("usage: {}", short(&usage)));
    let rows = usage["costs"]["items"].as_array().cloned().unwrap_or_default();
    assert!(rows.iter().any(|row| row["group"]["provider"] == "cluster"), "{usage}");
    let took = eventually("the pod is gone", || node.pods().is_empty());
    tell(&format!("the pod is gone {} ms after the end", took.as_millis()));
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(300).collect()
}

fn a_pod_that_is_deleted_ends_its_run(node: &Node, server: &Server) {
    let sandbox = server.sandbox(&json!({ "routing": { "exclude_providers": ["local"] } }));
    let slow = json!({ "command": "echo begun; sleep 100" });
    let mut events = server.stream(server.request("POST", format!("{sandbox}/exec")).json(&slow));
    while events.next_event().is_some_and(|event| event.data["type"] != "stdout") {}
    let name = node.pods()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let pod = json!({ "metadata": { "name": name } });
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": pod["metadata"] });
    let evicted = node.ask(&format!("{PODS}/{name}/eviction"), Some(&eviction));
    assert_eq!(evicted["status"], "Success", "{evicted}");
    let mut last = Value::Null;
    while let Some(event) = events.next_event() {
        last = event.data;
    }
    tell(&format!("evicted: {}", short(&last["problem"])));
    let problem = last["problem"].to_string();
    assert!(problem.contains("the sandbox ended") && problem.contains("EvictionByEvictionAPI"), "{last}");
    let _ = server.delete(&sandbox);
    eventually("no pod is left of it", || node.pods().is_empty());
}

fn what_a_killed_server_left_is_found(node: &Node, server: &mut Server) {
    let kept = server.sandbox(&json!({ "routing": { "exclude_providers": ["local"] }, "lifetime": "20m" }));
    server.put(&format!("{kept}/files?path=kept.txt"), b"kept").expect(200);
    let mut events = server.stream(
        server
            .request("POST", "/v1/runs")
            .json(&in_the_cluster("print('up', flush=True)\nimport time\ntime.sleep(100)")),
    );
    while events.next_event().is_some_and(|event| event.data["type"] != "stdout") {}
    assert_eq!(node.pods().len(), 2);
    let begin = Instant::now();
    server.kill();
    drop(events);
    assert_eq!(node.pods().len(), 2, "a killed server removes nothing");
    server.restart();
    // The sandbox goes on; the run that nobody waits for any more does not.
    assert_eq!(server.exec(&kept, "cat kept.txt")["stdout"], "kept");
    while node.pods().len() > 1 {
        assert!(begin.elapsed() < ORPHANED, "the pod of a run is left: {:?}", node.pods());
        std::thread::sleep(Duration::from_millis(500));
    }
    tell(&format!("the pod of the killed server's run is gone after {} s", begin.elapsed().as_secs()));
    assert_eq!(server.exec(&kept, "cat kept.txt")["stdout"], "kept", "what is known is no orphan");
    assert_eq!(server.delete(&kept).status, 204);
    eventually("no pod is left", || node.pods().is_empty());
}
