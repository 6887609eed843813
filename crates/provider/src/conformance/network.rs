//! Sandboxes reach what they may, and nothing else.

use std::time::Duration;

use sandstorm_types::{ErrorKind, NetworkPolicy, SandboxId};
use tokio::io::AsyncReadExt;

use super::trial::{Failure, Trial, Verdict, ensure, fails, read_output, same, same_bytes};
use super::{Case, case};
use crate::{ExecRequest, OpContext};

pub(super) const CASES: &[Case] = &[
    case!("network", none_is_loopback_only, needs [exec, network_none]),
    case!("network", the_policy_of_what_lives_can_be_changed, needs [network_change, network_none, exec]),
    case!("network", a_closed_port_is_refused, needs[connect]),
    case!("network", an_open_port_is_reached, needs [connect, exec]),
];

/// Tunnels that some kernels put, down and unusable, into every new network namespace.
const INERT: [&str; 9] =
    ["tunl0", "sit0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6tnl0", "ip6_vti0", "ip6gre0"];

async fn none_is_loopback_only(t: &Trial<'_>) -> Verdict {
    let mut spec = t.spec();
    spec.network = NetworkPolicy::None;
    let id = t.sandbox_of(&spec).await?;
    let out = t.output(&id, ExecRequest::program(["/bin/cat", "/proc/net/dev"])).await?;
    let text = String::from_utf8_lossy(&out).into_owned();
    // Two lines of headings, then one per interface.
    let interfaces: Vec<_> = text.lines().skip(2).filter_map(|line| line.split_once(':')).collect();
    let names: Vec<_> =
        interfaces.iter().map(|(name, _)| name.trim()).filter(|name| !INERT.contains(name)).collect();
    same("the interfaces", names, vec!["lo"])
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
    let probe = t.run(&id, ExecRequest::program(["/usr/bin/python3", "-c", ""])).await;
    if !probe.is_ok_and(|done| done.end.status == crate::ExecStatus::Code(0)) {
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
