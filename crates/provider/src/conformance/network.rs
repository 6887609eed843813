//! Sandboxes reach what they may, and nothing else.

use std::time::Duration;

use sandstorm_types::{ErrorKind, NetworkPolicy, SandboxId};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::trial::{Failure, Trial, Verdict, ensure, fails, read_output, same_bytes};
use super::{Case, case};
use crate::{ExecRequest, OpContext};

pub(super) const CASES: &[Case] = &[
    case!("network", none_reaches_nothing, needs [exec, network_none]),
    case!("network", the_policy_of_what_lives_can_be_changed, needs [network_change, network_none, exec]),
    case!("network", a_closed_port_is_refused, needs[connect]),
    case!("network", an_open_port_is_reached, needs [connect, exec]),
];

/// Tunnels that some kernels put, down and unusable, into every new network namespace.
const INERT: [&str; 9] =
    ["tunl0", "sit0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6tnl0", "ip6_vti0", "ip6gre0"];

/// Tries every address that it is given at one port, and says which answer. A gateway is one that the kernel's routes name.
const TRY: &str = "import socket, sys
routes = [line.split() for line in open('/proc/net/route')][1:]
gateways = ['.'.join(str(byte) for byte in bytes.fromhex(r[2])[::-1]) for r in routes if r[2] != '00000000']
for host in set(gateways + sys.argv[2:]):
    try:
        socket.create_connection((host, int(sys.argv[1])), 3).close()
        print(host)
    except OSError:
        pass
";

/// It has no interface but its own loopback. Where it has one, as every pod of a cluster does, nothing is behind it: neither
/// its gateway nor this machine, where something listens, can be reached.
async fn none_reaches_nothing(t: &Trial<'_>) -> Verdict {
    let mut spec = t.spec();
    spec.network = NetworkPolicy::None;
    let id = t.sandbox_of(&spec).await?;
    if interfaces(t, &id).await? == ["lo"] {
        return Ok(());
    }
    if !has_python(t, &id).await {
        return Err(Failure::Failed("it has an interface, and no python3 to try that with".to_owned()));
    }
    let deaf = |error: std::io::Error| Failure::Failed(format!("nothing can listen here: {error}"));
    let listener = TcpListener::bind("0.0.0.0:0").await.map_err(deaf)?;
    let port = listener.local_addr().map_err(deaf)?.port();
    let mut line = vec!["/usr/bin/python3".to_owned(), "-c".to_owned(), TRY.to_owned(), port.to_string()];
    line.extend(own_address());
    let reached = tokio::select! {
        reached = t.output(&id, ExecRequest::program(line)) => reached?,
        // Seen from outside: whatever the sandbox says, somebody came.
        came = listener.accept() => {
            let from = came.map(|(_, from)| from.to_string()).unwrap_or_default();
            return Err(Failure::Failed(format!("without a network it reached this machine, as {from}")));
        }
    };
    same_bytes("what it reached", reached, b"")
}

/// The address at which others can reach this machine, as its routes tell: nobody is asked.
fn own_address() -> Option<String> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // A datagram socket that is connected has sent nothing.
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip().to_string())
}

async fn interfaces(t: &Trial<'_>, id: &SandboxId) -> Verdict<Vec<String>> {
    let out = t.output(id, ExecRequest::program(["/bin/cat", "/proc/net/dev"])).await?;
    let text = String::from_utf8_lossy(&out).into_owned();
    // Two lines of headings, then one per interface.
    let interfaces: Vec<_> = text.lines().skip(2).filter_map(|line| line.split_once(':')).collect();
    let names = interfaces.iter().map(|(name, _)| name.trim()).filter(|name| !INERT.contains(name));
    Ok(names.map(str::to_owned).collect())
}

async fn has_python(t: &Trial<'_>, id: &SandboxId) -> bool {
    let probe = t.run(id, ExecRequest::program(["/usr/bin/python3", "-c", ""])).await;
    probe.is_ok_and(|done| done.end.status == crate::ExecStatus::Code(0))
}

async fn the_policy_of_what_lives_can_be_changed(t: &Trial<'_>) -> Verdict {
    let unknown = t.provider.set_network(&t.cx, &SandboxId::random(), NetworkPolicy::None).await;
    fails("changing the network of no sandbox", unknown, ErrorKind::NotFound)?;
    let id = t.sandbox().await?;
    t.provider.set_network(&t.cx, &id, NetworkPolicy::None).await?;
    same_bytes(
        "the output afterwards",
        t.output(&id, ExecRequest::program(["/bin/echo", "on"])).await?,
        b"on\n",
    )
}

async fn a_closed_port_is_refused(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let cx: OpContext = t.cx.clone().with_timeout(Duration::from_secs(10));
    ensure!(t.provider.connect(&cx, &id, 9).await.is_err(), "a port that nothing listens on is connected");
    Ok(())
}

async fn an_open_port_is_reached(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let server = "import socket; s = socket.create_server(('127.0.0.1', 4321)); print('up', flush=True); \
        c, _ = s.accept(); c.sendall(b'hello'); c.close()";
    if !has_python(t, &id).await {
        return Err(Failure::Skipped("there is no python3 to listen with".to_owned()));
    }
    let mut exec =
        t.provider.exec(&t.cx, &id, ExecRequest::program(["/usr/bin/python3", "-c", server])).await?;
    read_output(&mut exec, 3).await?;
    let mut connection = t.provider.connect(&t.cx, &id, 4321).await?;
    let mut greeting = Vec::new();
    let read = connection.read_to_end(&mut greeting).await;
    read.map_err(|error| Failure::Failed(format!("the connection breaks: {error}")))?;
    same_bytes("the greeting", greeting, b"hello")
}
