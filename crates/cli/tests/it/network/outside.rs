//! A world of its own around a sandbox: one network namespace in which the binary runs and one for everything else.
//!
//! A pair of devices joins them, with public addresses that lead nowhere but there. Outside are a name server, web
//! servers with and without TLS, and an ear on the wire that hears every packet, so that "nothing else was reached" is
//! measured where it counts.

mod names;
mod web;
mod wire;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::support::{Place, Who, eventually, sandstorm, stderr};

pub(crate) use names::{Answer, Names};
pub(crate) use web::Web;
pub(crate) use wire::{Packet, Wire};

/// Where the binary runs.
pub(crate) const HOST: &str = "93.184.216.1";
/// `a.test`, by both families.
pub(crate) const A: &str = "93.184.216.34";
pub(crate) const A_V6: &str = "2606:4700::34";
pub(crate) const B: &str = "93.184.216.35";
pub(crate) const NAME_SERVER: &str = "93.184.216.53";
/// A private address that the host does reach, so that only the proxy stands between.
pub(crate) const PRIVATE: &str = "10.9.0.1";

const HOST_SIDE: &str = "
    address add 93.184.216.1/24 dev near
    address add 2606:4700::1/64 dev near nodad
    address add 10.9.0.2/24 dev near
    link set lo up
    link set near up
    route add default via 93.184.216.34
    route add ::/0 via 2606:4700::34
";
const OUTSIDE: &str = "
    address add 93.184.216.34/24 dev far
    address add 93.184.216.35/24 dev far
    address add 93.184.216.53/24 dev far
    address add 10.9.0.1/24 dev far
    address add 2606:4700::34/64 dev far nodad
    address add 2606:4700::35/64 dev far nodad
    link set lo up
    link set far up
";

/// Both namespaces and what lives in them, until dropped.
#[derive(Debug)]
pub(crate) struct Outside {
    pub(crate) names: Arc<Names>,
    pub(crate) web: Arc<Web>,
    wire: Arc<Wire>,
    pub(crate) place: Place,
    host: Namespaces,
    _outside: Namespaces,
    over: CancellationToken,
    server: Option<JoinHandle<()>>,
}

impl Outside {
    pub(crate) fn start() -> Self {
        let place = Place::new();
        let (host, outside) = (Namespaces::start(), Namespaces::start());
        let link = format!("link add near type veth peer name far netns {}\n", outside.0.id());
        host.ip(&format!("{link}{HOST_SIDE}"));
        outside.ip(OUTSIDE);
        let resolver =
            place.write("resolv.conf", format!("nameserver {NAME_SERVER}\noptions attempts:1 timeout:20\n"));
        let order = place.write("nsswitch.conf", "hosts: files dns\n");
        host.mount(&resolver, "/etc/resolv.conf");
        host.mount(&order, "/etc/nsswitch.conf");

        let names = Arc::new(Names::default());
        let wire = Arc::new(Wire::default());
        let web = Arc::new(Web::new(&place));
        let over = CancellationToken::new();
        let (ready, told) = std::sync::mpsc::channel();
        let server = std::thread::spawn({
            let (names, wire, web, over) =
                (Arc::clone(&names), Arc::clone(&wire), Arc::clone(&web), over.clone());
            let space = outside.open();
            move || {
                move_into_link_name_space(std::os::fd::AsFd::as_fd(&space), Some(LinkNameSpaceType::Network))
                    .unwrap();
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let mut tasks = tokio::task::JoinSet::new();
                    names.serve(&mut tasks).await;
                    web.serve(&mut tasks).await;
                    wire.listen();
                    ready.send(()).unwrap();
                    over.cancelled().await;
                    tasks.shutdown().await;
                });
            }
        });
        told.recv().expect("the servers outside did not start");
        Self { names, web, wire, place, host, _outside: outside, over, server: Some(server) }
    }

    /// The binary as a command, in the host's namespaces.
    pub(crate) fn command(&self, who: Who) -> Command {
        let inner = sandstorm(who);
        let mut command = self.host.enter();
        command.arg(inner.get_program()).args(inner.get_args()).env_clear().stdin(Stdio::null());
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
    }

    /// Runs a Python program under a network policy and returns what it printed, which must be JSON.
    pub(crate) fn run(&self, who: Who, policy: &str, code: &str, args: &[&str]) -> Value {
        let ca = self.place.path().join("ca.pem");
        let mut command = self.command(who);
        command.args(["run", "--json", "--timeout", "5m", "--network", policy, "--file"]).arg(ca);
        command.args(["-l", "python", "-c", code, "--"]).args(args);
        let output = command.output().unwrap();
        let result: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{who:?}: no result ({e}): {}", stderr(&output)));
        assert_eq!(result["status"], "ok", "{who:?}: {result:#}");
        serde_json::from_str(result["stdout"].as_str().unwrap()).unwrap()
    }

    /// What the host sent since the last time, each kind once. The ear may lag behind the wire, so it is given one packet
    /// more: when it hears that, it has heard everything before it.
    pub(crate) fn heard(&self) -> Vec<Packet> {
        let last = Packet::udp(A, 9);
        self.on_host(|| UdpSocket::bind((HOST, 0)).unwrap().send_to(b"last", (A, 9)).unwrap());
        eventually("the ear hears what was sent last", || self.wire.has_heard(&last));
        let mut packets = self.wire.take();
        packets.retain(|packet| *packet != last);
        packets
    }

    /// A thread that is in the host's network namespace.
    pub(crate) fn on_host<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let space = self.host.open();
        std::thread::spawn(move || {
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&space), Some(LinkNameSpaceType::Network))
                .unwrap();
            work()
        })
        .join()
        .unwrap()
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.over.cancel();
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

/// A process that only keeps its namespaces alive; it ends with its standard input.
#[derive(Debug)]
struct Namespaces(Child);

impl Namespaces {
    fn start() -> Self {
        let mut child = Command::new("unshare")
            .args(["--net", "--mount", "--propagation", "private", "--", "sh", "-c", "echo ready; read end"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "no namespaces could be made");
        Self(child)
    }

    fn open(&self) -> File {
        File::open(format!("/proc/{}/ns/net", self.0.id())).unwrap()
    }

    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.0.id().to_string(), "--net", "--mount", "--"]);
        command
    }

    fn ip(&self, batch: &str) {
        let mut child = self.enter().args(["ip", "-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(batch.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{batch}");
    }

    fn mount(&self, source: &Path, target: &str) {
        assert!(self.enter().args(["mount", "--bind"]).arg(source).arg(target).status().unwrap().success());
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
