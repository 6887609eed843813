//! Networks that change while a sandbox lives.

use futures_util::StreamExt;
use sandstorm_provider::{CreateOptions, Provider, ProviderEvent};
use sandstorm_types::{Enforcement, NetMode, NetworkPolicy, SandboxId, SandboxSpec};

use crate::Case;
use crate::place::{Host, PATIENCE, Place, kill, life};

pub(crate) const CASES: &[Case] = &[
    ("a_policy_changes_at_once", a_policy_changes_at_once),
    ("a_sandbox_without_a_network_gets_one", a_sandbox_without_a_network_gets_one),
    ("a_network_outlives_its_host", a_network_outlives_its_host),
];

fn allow(names: &str) -> NetworkPolicy {
    serde_json::from_str(&format!(r#"{{"allow": [{names}]}}"#)).unwrap()
}

async fn sandbox(host: &Host, network: NetworkPolicy) -> SandboxId {
    let spec = SandboxSpec { enforcement: Enforcement::BestEffort, network, ..SandboxSpec::default() };
    host.provider.create(&host.cx, &spec, CreateOptions::default()).await.unwrap().id
}

/// Whether a name leads anywhere. Nobody outside is asked: the sandbox's own resolver answers by the policy.
async fn resolves(host: &Host, sandbox: &SandboxId, name: &str) -> bool {
    let look = format!("import socket; socket.getaddrinfo('{name}', 80)");
    let line = format!("timeout 60 python3 -c \"{look}\" 2>/dev/null && echo yes || echo no");
    host.output(sandbox, &line).await == "yes\n"
}

async fn mode(host: &Host, sandbox: &SandboxId) -> NetMode {
    host.provider.get(&host.cx, sandbox).await.unwrap().walls.unwrap().net.mode
}

fn a_policy_changes_at_once(place: &Place) {
    place.live(life!(|host| {
        let id = sandbox(host, allow("\"a.test\"")).await;
        assert!(resolves(host, &id, "a.test").await);
        let mut events = host.provider.events();
        assert!(!resolves(host, &id, "b.test").await);
        let denied = tokio::time::timeout(PATIENCE, events.next()).await.unwrap().unwrap();
        let ProviderEvent::Denied { sandbox, destination, .. } = denied else { panic!("{denied:?}") };
        assert_eq!((sandbox, destination.as_str()), (id, "b.test"));
        host.provider.set_network(&host.cx, &id, allow("\"b.test\"")).await.unwrap();
        assert!(resolves(host, &id, "b.test").await);
        assert!(!resolves(host, &id, "a.test").await);
        host.provider.set_network(&host.cx, &id, NetworkPolicy::None).await.unwrap();
        assert!(!resolves(host, &id, "b.test").await);
        assert_eq!(mode(host, &id).await, NetMode::None);
    }));
}

fn a_sandbox_without_a_network_gets_one(place: &Place) {
    place.live(life!(|host| {
        let id = sandbox(host, NetworkPolicy::None).await;
        assert!(!resolves(host, &id, "a.test").await);
        // What speaks on loopback goes on speaking there.
        let server = "import socket; s = socket.create_server(('127.0.0.1', 4321)); print('up', flush=True)\n\
                      while True:\n  c, _ = s.accept(); c.sendall(b'hello'); c.close()";
        host.background(&id, &format!("exec python3 -c \"{server}\"")).await;
        let ask = "for i in $(seq 100); do python3 -c \"import socket; \
                   print(socket.create_connection(('127.0.0.1', 4321)).recv(9).decode())\" && break; sleep 0.2; done";
        assert_eq!(host.output(&id, ask).await, "hello\n");
        host.provider.set_network(&host.cx, &id, allow("\"a.test\"")).await.unwrap();
        assert_eq!(mode(host, &id).await, NetMode::Allow);
        assert!(resolves(host, &id, "a.test").await);
        assert!(!resolves(host, &id, "b.test").await);
        assert_eq!(host.output(&id, ask).await, "hello\n");
        // There is still no device but loopback, and an address that nobody named leads nowhere.
        assert_eq!(host.output(&id, "grep -cE '^ *(eth|veth|tun|tap|wl|en)' /proc/net/dev").await, "0\n");
        let dial = "timeout 3 python3 -c \"import socket; \
                    s = socket.create_connection(('192.0.2.1', 80), 2); s.sendall(b'x'); print(s.recv(1))\" 2>/dev/null";
        let answer = host.output(&id, dial).await;
        assert!(answer.is_empty() || answer == "b''\n", "{answer:?}");
        host.provider.set_network(&host.cx, &id, NetworkPolicy::None).await.unwrap();
        assert!(!resolves(host, &id, "a.test").await);
    }));
}

fn a_network_outlives_its_host(place: &Place) {
    let first = place.fork_host(life!(|host| {
        let born = sandbox(host, allow("\"a.test\"")).await;
        let given = sandbox(host, NetworkPolicy::None).await;
        host.provider.set_network(&host.cx, &born, allow("\"b.test\"")).await.unwrap();
        host.provider.set_network(&host.cx, &given, allow("\"b.test\"")).await.unwrap();
        host.tell("born", born);
        host.tell("given", given);
    }));
    place.note("given");
    kill(first);
    place.live(life!(|host| {
        assert_eq!(host.provider.adopt().await.unwrap().len(), 2);
        for name in ["born", "given"] {
            let id: SandboxId = host.told(name).parse().unwrap();
            assert!(resolves(host, &id, "b.test").await, "{name}");
            assert!(!resolves(host, &id, "a.test").await, "{name}");
            assert_eq!(mode(host, &id).await, NetMode::Allow);
        }
    }));
}
