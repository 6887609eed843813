//! A Kubernetes for the tests: started by the script, one for all tests of this process, gone with it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config as KubeConfig};
use sandstorm_kubernetes::{Access, Config, Enforced, KubernetesProvider, Pull};
use sandstorm_provider::OpContext;
use sandstorm_types::{SandboxId, SandboxSpec, TenantId};
use serde_json::{Value, json};

/// The exit code of the script when nothing is built.
const NOT_BUILT: i32 = 3;

#[derive(Debug)]
struct Started {
    dir: PathBuf,
    /// Its input ends with this process, and with that everything that it started.
    _script: Child,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Api,
    Node,
}

/// One namespace of its own, with the rights that the guide gives to the provider.
pub(crate) struct World {
    pub(crate) namespace: String,
    pub(crate) admin: Client,
    dir: &'static Path,
}

fn started(kind: Kind) -> Option<&'static Path> {
    static API: OnceLock<Option<Started>> = OnceLock::new();
    static NODE: OnceLock<Option<Started>> = OnceLock::new();
    let (place, word) = match kind {
        Kind::Api => (&API, "api"),
        Kind::Node => (&NODE, "node"),
    };
    place.get_or_init(|| start(word)).as_ref().map(|started| started.dir.as_path())
}

fn start(word: &str) -> Option<Started> {
    let dir = std::env::temp_dir().join(format!("sk-{}-{word}", std::process::id()));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/kubernetes.sh");
    let mut script = Command::new(script)
        .args(["serve", word])
        .arg(&dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(script.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line == "ready\n" {
        return Some(Started { dir, _script: script });
    }
    let code = script.wait().unwrap().code();
    assert_eq!(code, Some(NOT_BUILT), "Kubernetes did not start");
    assert!(std::env::var_os("SANDSTORM_REQUIRE_ALL").is_none(), "run scripts/kubernetes.sh build {word}");
    None
}

pub(crate) async fn client(dir: &Path, user: &str) -> Client {
    let file = Kubeconfig::read_from(dir.join(user)).unwrap();
    let config = KubeConfig::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

impl World {
    /// `None`: it is not built here, which is only allowed where not everything is required.
    pub(crate) async fn new(kind: Kind) -> Option<Self> {
        let dir = tokio::task::spawn_blocking(move || started(kind)).await.unwrap()?;
        let admin = client(dir, "admin").await;
        let namespace = format!("t-{}", SandboxId::random().bare());
        let strict = json!({
            "metadata": { "name": namespace, "labels": { "pod-security.kubernetes.io/enforce": "restricted" } }
        });
        let namespaces: Api<Namespace> = Api::all(admin.clone());
        namespaces.create(&PostParams::default(), &from(strict)).await.unwrap();
        let world = Self { namespace, admin, dir };
        world.grant().await;
        if kind == Kind::Node {
            world.wait_for_account().await;
        }
        Some(world)
    }

    /// From here on the node's network keeps to the policies of this namespace.
    pub(crate) async fn keep_policies(&self) {
        let namespaces: Api<Namespace> = Api::all(self.admin.clone());
        let label = Patch::Merge(json!({ "metadata": { "labels": { "sandstorm.test/policies": "kept" } } }));
        namespaces.patch(&self.namespace, &PatchParams::default(), &label).await.unwrap();
    }

    /// A new namespace has no pods before its controller has made this.
    async fn wait_for_account(&self) {
        let accounts: Api<ServiceAccount> = self.api();
        for _ in 0..200 {
            if accounts.get_opt("default").await.unwrap().is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the namespace has no service account");
    }

    /// The rights of the guide, which has them in the same form.
    async fn grant(&self) {
        let guide = include_str!("../../../../docs/guides/providers/kubernetes.md");
        let rules = guide.split("```json rules\n").nth(1).unwrap().split("```").next().unwrap();
        let role = json!({ "metadata": { "name": "sandstorm" }, "rules": serde_json::from_str::<Value>(rules).unwrap() });
        let roles: Api<Role> = self.api();
        roles.create(&PostParams::default(), &from(role)).await.unwrap();
        let binding = json!({
            "metadata": { "name": "sandstorm" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "sandstorm" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "sandstorm" }],
        });
        let bindings: Api<RoleBinding> = self.api();
        bindings.create(&PostParams::default(), &from(binding)).await.unwrap();
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.admin.clone(), &self.namespace)
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        self.api()
    }

    pub(crate) fn config(&self) -> Config {
        self.config_of("sandstorm")
    }

    pub(crate) fn config_of(&self, user: &str) -> Config {
        let mut config = Config::new("cluster", "me".parse().unwrap(), "docker.io/sandstorm/python:1");
        config.access = Access::File { path: self.dir.join(user), context: None };
        config.namespace.clone_from(&self.namespace);
        config.pull = Pull::Never;
        config.enforced = Enforced::Declared;
        config.loose_limits = true;
        config.ready_within = Duration::from_secs(20);
        config.room_within = Duration::from_secs(1);
        config
    }

    pub(crate) async fn provider(&self) -> KubernetesProvider {
        KubernetesProvider::connect(self.config()).await.unwrap()
    }

    /// Waits for a pod to be there, by its sandbox.
    pub(crate) async fn pod(&self, id: SandboxId) -> Pod {
        let name = format!("sbx-{}", id.bare());
        for _ in 0..200 {
            if let Some(pod) = self.pods().get_opt(&name).await.unwrap() {
                return pod;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("there is no pod {name}");
    }

    /// Plays the kubelet: says how a pod stands.
    pub(crate) async fn say(&self, pod: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        self.pods().patch_status(pod, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn pod_count(&self) -> usize {
        self.pods().list(&kube::api::ListParams::default()).await.unwrap().items.len()
    }
}

pub(crate) fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn ready() -> Value {
    json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] })
}

pub(crate) fn cx() -> OpContext {
    OpContext::new(TenantId::LOCAL).with_timeout(Duration::from_secs(120))
}

pub(crate) fn spec() -> SandboxSpec {
    SandboxSpec::default()
}
