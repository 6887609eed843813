//! Starting a server: what is refused, what is said, and that it then serves, as root and as an ordinary user.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use sandstorm_jail::cgroup::{Hierarchies, Version};
use serde_json::{Value, json};

use super::http::{self, Request};
use super::instance::Server;
use crate::support::{Place, Who, binary, eventually, run, sandstorm, skip, stderr, stdout};

/// A configuration file and a state directory of one test.
struct Files {
    place: Place,
}

impl Files {
    fn new(config: &str) -> Self {
        let place = Place::new();
        place.write("sandstorm.yaml", config);
        Self { place }
    }

    fn config(&self) -> PathBuf {
        self.place.path().join("sandstorm.yaml")
    }

    fn command(&self, who: Who, args: &[&str]) -> Command {
        let mut command = sandstorm(who);
        command.env("SANDSTORM_STATE_DIR", self.place.path().join("state"));
        command.arg("--config").arg(self.config()).args(args);
        command
    }

    fn run(&self, who: Who, args: &[&str]) -> Output {
        self.command(who, args).output().unwrap()
    }
}

/// The error that `serve` ends with. A server that starts after all is ended.
#[track_caller]
fn refusal(mut command: Command) -> String {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let started = lines.read_line(&mut line).unwrap() > 0;
    if started {
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(!started, "it started and said: {line}");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    stderr(&output)
}

/// Whoever reaches a listener of a server without keys can make some, so the operators' is checked like the public one.
#[test]
fn without_keys_no_listener_is_for_others() {
    let files = Files::new("serve: {admin_listen: '0.0.0.0:0'}\n");
    let listen = ["--listen", "127.0.0.1:0"];
    let plain = |more: &[&str]| {
        let mut command = sandstorm(Who::Root);
        command.args(["serve", "--dev-no-auth"]).args(listen).args(more);
        command
    };
    let mut by_variable = plain(&[]);
    by_variable.env("SANDSTORM_SERVE_ADMIN_LISTEN", "[::]:0");
    for command in [
        plain(&["--admin-listen", "0.0.0.0:0"]),
        plain(&["--admin-listen", "192.0.2.1:7301"]),
        by_variable,
        files.command(Who::Root, &["serve", "--dev-no-auth", listen[0], listen[1]]),
    ] {
        let said = refusal(command);
        assert!(said.contains("--dev-no-auth") && said.contains("serve.admin_listen"), "{said}");
    }
}

/// Each of these is a mistake that only a server can make something of, or that only this machine shows.
#[test]
fn what_a_server_refuses_the_check_refuses() {
    let place = Place::new();
    place.write("server.pem", "no certificate");
    let at = |name: &str| place.path().join(name).display().to_string();
    for (config, names) in [
        ("providers: {a: {kind: e2b}}\n".to_owned(), "`providers.a`: `key` is not set"),
        (
            "providers: {a: {kind: e2b, key: 'file:/etc/hostname', options: {color: red}}}\n".to_owned(),
            "there is no option `color`",
        ),
        (
            "providers: {a: {kind: sandstorm, url: 'http://a', options: {x: y}}}\n".to_owned(),
            "there is no option `x`",
        ),
        ("providers: {a: {kind: kubernetes, key: 'file:/etc/hostname'}}\n".to_owned(), "`providers.a`"),
        (
            "providers: {a: {kind: sandstorm, url: 'http://a', key: 'env:NOT_SET'}}\n".to_owned(),
            "NOT_SET is not set",
        ),
        ("providers: {a: {kind: sandstorm, url: 'http://a', like: nobody}}\n".to_owned(), "nobody"),
        ("providers: {local: {kind: local, options: {x: y}}}\n".to_owned(), "`providers.local.options.x`"),
        ("serve: {user: no-such-user}\n".to_owned(), "there is no user no-such-user"),
        (
            "template: {mounts: [{source: /no/such, target: /opt/a}]}\n".to_owned(),
            "`template.mounts[0].source`",
        ),
        (
            format!(
                "template: {{mounts: [{{source: '{}', target: /usr/share/no-such}}]}}\n",
                place.path().display()
            ),
            "`template.mounts[0].target`",
        ),
        ("dialects: {mcp: {disabled_tools: [fly]}}\n".to_owned(), "there is no tool fly"),
        ("database: {url: 'env:NOT_SET'}\n".to_owned(), "NOT_SET is not set"),
        ("telemetry: {otlp_headers: {authorization: 'file:/no/such'}}\n".to_owned(), "/no/such"),
        ("packages: {pip: {credentials: 'file:/no/such'}}\n".to_owned(), "/no/such"),
        (format!("serve: {{tls: {{cert: '{0}', key: '{0}'}}}}\n", at("server.pem")), "`serve.tls`"),
        (format!("serve: {{tls: {{cert: '{0}', key: '{0}'}}}}\n", at("missing.pem")), "`serve.tls.cert`"),
        ("network: {denied: ['10.0.0.1/8']}\n".to_owned(), "`network.denied[0]`"),
        ("network: {nat64: ['2001:db8::/33']}\n".to_owned(), "`network.nat64[0]`"),
    ] {
        let files = Files::new(&config);
        let checked = files.run(Who::Root, &["config", "check"]);
        assert_eq!(checked.status.code(), Some(2), "{config}: {}", stdout(&checked));
        assert!(stderr(&checked).contains(names), "{config}: {}", stderr(&checked));
        let refused = refusal(files.command(Who::Root, &["serve", "--listen", "127.0.0.1:0"]));
        assert_eq!(refused, stderr(&checked), "{config}");
    }
}

#[test]
fn clear_text_for_others_is_warned_of() {
    let files = Files::new("serve: {listen: '0.0.0.0:0', admin_listen: '0.0.0.0:0'}\n");
    let checked = files.run(Who::Root, &["config", "check"]);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
    for setting in ["serve.listen", "serve.admin_listen"] {
        assert!(
            stderr(&checked).contains(&format!("warning: `{setting}` is 0.0.0.0:0")),
            "{}",
            stderr(&checked)
        );
    }
    let quiet = Files::new("serve: {listen: '127.0.0.1:0'}\n").run(Who::Root, &["config", "check"]);
    assert_eq!(stderr(&quiet), "");
}

/// A server that was started: its first lines, and the way to end it.
struct Started {
    child: Child,
    port: u16,
    key: String,
}

impl Started {
    #[track_caller]
    fn by(mut command: Command, log: &Path) -> Self {
        let stderr = std::fs::File::create(log).unwrap();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let (mut lines, mut said) = (BufReader::new(child.stdout.take().unwrap()), String::new());
        let port = loop {
            if lines.read_line(&mut said).unwrap() == 0 {
                let _ = child.wait();
                panic!("the server did not start: {said}{}", std::fs::read_to_string(log).unwrap());
            }
            if let Some((_, port)) = said.trim_end().rsplit_once("http://127.0.0.1:") {
                break port.parse().unwrap();
            }
        };
        let key = said.split_whitespace().find(|word| word.starts_with("ss_")).unwrap_or_default().to_owned();
        Self { child, port, key }
    }

    fn run_python(&self) -> Value {
        let body = json!({ "language": "python", "code": "print(6 * 7)" });
        let request = Request::new("POST", "/v1/runs")
            .header("authorization", &format!("Bearer {}", self.key))
            .json(&body);
        http::open(self.port, &request).unwrap().finish().unwrap().expect(200)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.child.wait().unwrap();
    }
}

/// What `config init` writes is a server's configuration, for everybody who can start one.
#[test]
fn the_initial_configuration_serves() {
    for who in Who::all() {
        let files = Files::new("");
        let path = files.place.path().join("initial.yaml");
        let path = path.to_str().unwrap();
        let written = run(who, &["config", "init", path]);
        assert!(written.status.success(), "{who:?}: {}", stderr(&written));
        let mut command = sandstorm(who);
        command
            .env("SANDSTORM_STATE_DIR", files.place.path().join("state"))
            .env_remove("SANDSTORM_LIMITS_WALL");
        command.args(["--config", path, "serve", "--listen", "127.0.0.1:0"]);
        let log = files.place.path().join("log");
        let server = Started::by(command, &log);
        let result = server.run_python();
        assert_eq!(
            (&result["status"], &result["stdout"]),
            (&json!("ok"), &json!("42\n")),
            "{who:?}: {result:#}"
        );
        // What does not hold was said before the first request.
        let said = std::fs::read_to_string(&log).unwrap();
        let missing = result["walls"]["limits"]["missing"].as_array().unwrap();
        assert_eq!(said.contains("cannot enforce"), !missing.is_empty(), "{who:?}: {said}\n{missing:?}");
        for limit in missing {
            let name = limit["name"].as_str().unwrap();
            assert!(said.contains(&format!("{name} limit: ")), "{who:?}: {name}: {said}");
        }
    }
}

/// What cannot be enforced is either said and accepted, or stops the server: never a server that refuses every run.
#[test]
fn an_ordinary_user_hears_what_does_not_hold() {
    if !Who::all().contains(&Who::Single) {
        return;
    }
    for (config, listen, advice) in [
        ("enforcement: strict\n", "127.0.0.1:0", "`best_effort` runs them without it"),
        ("", "0.0.0.0:0", "so choose: `enforcement: best_effort`"),
    ] {
        let files = Files::new(config);
        let said = refusal(files.command(Who::Single, &["serve", "--listen", listen]));
        for part in ["cannot enforce", "memory limit: ", "systemd-run", "doctor", advice] {
            assert!(said.contains(part), "{config}{part}: {said}");
        }
    }
    let files = Files::new("enforcement: best_effort\n");
    let log = files.place.path().join("log");
    let server = Started::by(files.command(Who::Single, &["serve", "--listen", "127.0.0.1:0"]), &log);
    assert_eq!(server.run_python()["status"], "ok");
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("cannot enforce") && said.contains("as `enforcement: best_effort` says"), "{said}");
}

/// A control group in every hierarchy that belongs to an ordinary user, as `systemd-run --user -p Delegate=yes` makes one.
struct Delegated {
    name: String,
    roots: Vec<PathBuf>,
}

impl Delegated {
    fn to(user: &str) -> Result<Self, String> {
        let ids = Command::new("id").args(["-u", user]).output().unwrap();
        let id: u32 = stdout(&ids).trim().parse().map_err(|_| format!("there is no user {user}"))?;
        let found = Hierarchies::detect();
        let mut roots: Vec<PathBuf> = found.unified.iter().chain(found.on_v1.values()).cloned().collect();
        roots.sort();
        roots.dedup();
        let group = Self { name: format!("sandstorm-it-{}", std::process::id()), roots };
        if let Some(unified) = &found.unified {
            for controller in ["memory", "pids", "cpu"] {
                let _ = std::fs::write(unified.join("cgroup.subtree_control"), format!("+{controller}"));
            }
        }
        for root in &group.roots {
            let dir = root.join(&group.name);
            std::fs::create_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
            chown(&dir, Some(id), Some(id)).unwrap();
            for file in ["cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "tasks"] {
                let _ = chown(dir.join(file), Some(id), Some(id));
            }
        }
        Ok(group)
    }

    /// A shell command that enters it.
    fn entering(&self) -> String {
        let lines =
            self.roots.iter().map(|root| format!("echo 0 > {}/{}/cgroup.procs\n", root.display(), self.name));
        lines.collect()
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        for root in &self.roots {
            let dir = root.join(&self.name);
            let removed = || {
                let _ = Command::new("find")
                    .arg(&dir)
                    .args(["-depth", "-type", "d", "-delete"])
                    .stderr(Stdio::null())
                    .status();
                !dir.exists()
            };
            if std::thread::panicking() {
                removed();
            } else {
                eventually("the groups are empty", removed);
            }
        }
    }
}

/// With a group of its own, an ordinary user's server enforces everything, without a setting. Where controllers are in older
/// hierarchies it says why that cannot be, and serves all the same.
#[test]
fn a_delegated_group_is_found_and_used() {
    if !Who::all().contains(&Who::Ranged) {
        return;
    }
    let user = "sandstorm-test";
    let group = match Delegated::to(user) {
        Ok(group) => group,
        Err(why) => return skip(&format!("no control group can be made: {why}")),
    };
    let files = Files::new("");
    let script = format!(
        "{}exec setpriv --reuid={user} --regid={user} --init-groups -- {} serve --listen 127.0.0.1:0",
        group.entering(),
        binary().display()
    );
    let mut command = Command::new("sh");
    command.args(["-euc", &script]).env_clear().envs(
        sandstorm(Who::Ranged)
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))),
    );
    command.env("SANDSTORM_STATE_DIR", files.place.path().join("state"));
    let log = files.place.path().join("log");
    let server = Started::by(command, &log);
    let result = server.run_python();
    assert_eq!(result["stdout"], "42\n", "{result:#}");
    let walls = &result["walls"];
    let said = std::fs::read_to_string(&log).unwrap();
    if Hierarchies::detect().version() == Version::V2 {
        assert_eq!(walls["limits"]["missing"], json!([]), "{walls:#}");
        assert!(walls["cgroup"]["controllers"].as_array().unwrap().contains(&json!("memory")), "{walls:#}");
        assert!(!said.contains("cannot enforce"), "{said}");
    } else {
        assert!(said.contains("control groups of version 1 cannot be handed"), "{said}");
        assert!(!walls["limits"]["missing"].as_array().unwrap().is_empty(), "{walls:#}");
    }
    drop(server);
}

/// The region that the operator gives this machine is the one that requests are matched with.
#[test]
fn the_region_of_this_machine_counts() {
    let files = Files::new("providers: {local: {kind: local, region: here-1}}\n");
    let config = files.config().display().to_string();
    let server = Server::with(Who::Root, &[], &["--config", &config]);
    let run = |routing: Value| {
        server.post("/v1/runs", &json!({ "language": "bash", "code": "echo ok", "routing": routing }))
    };
    let here = run(json!({ "require": { "regions": ["here-1"] } })).expect(200);
    assert_eq!((&here["stdout"], &here["route"]["region"]), (&json!("ok\n"), &json!("here-1")), "{here:#}");
    assert_ne!(run(json!({ "require": { "regions": ["there-1"] } })).status, 200);
}
