//! The host's side: a proxy over the sandbox's sockets, and a world behind it that the test controls.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, IoSliceMut, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use sandstorm_egress::{Dialer, EgressProxy, Options, Resolver, Sockets, Upstream};
use sandstorm_jail::network::Captured;
use sandstorm_types::{AllowList, NetworkPolicy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) const MARK: &str = "EGRESS_TEST_PAYLOAD";
const ORDINARY_USER: &str = "65534";

pub(crate) fn policy(rules: &[&str]) -> NetworkPolicy {
    NetworkPolicy::Allow(AllowList::new(rules.iter().map(|rule| rule.parse().unwrap()).collect()).unwrap())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Root,
    Ordinary,
}

impl Who {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        [Self::Root, Self::Ordinary].into_iter().filter(|&who| who == Self::Ordinary || is_root())
    }
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// Names, the server that every dialled address leads to, and what was asked of both.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) server: SocketAddr,
    answers: Mutex<HashMap<String, IpAddr>>,
    asked: Mutex<Vec<String>>,
    dialled: Mutex<Vec<SocketAddr>>,
    alive: AtomicUsize,
}

impl World {
    pub(crate) fn resolves(&self, name: &str, address: &str) {
        self.answers.lock().unwrap().insert(name.to_owned(), address.parse().unwrap());
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn dialled(&self) -> Vec<SocketAddr> {
        self.dialled.lock().unwrap().clone()
    }

    /// Connections that the server holds now.
    pub(crate) fn alive(&self) -> usize {
        self.alive.load(Ordering::SeqCst)
    }

    pub(crate) async fn until(&self, reached: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !reached(self) {
            assert!(start.elapsed() < Duration::from_secs(60), "never reached: {self:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn serve(self: Arc<Self>, listener: TcpListener) {
        let mut connections = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let world = Arc::clone(&self);
            connections.spawn(async move {
                world.alive.fetch_add(1, Ordering::SeqCst);
                let mut answer = b"echo:".to_vec();
                if stream.read_to_end(&mut answer).await.is_ok() {
                    let _ = stream.write_all(&answer).await;
                }
                world.alive.fetch_sub(1, Ordering::SeqCst);
            });
        }
    }
}

#[async_trait::async_trait]
impl Resolver for World {
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        self.asked.lock().unwrap().push(name.to_owned());
        let answer = self.answers.lock().unwrap().get(name).copied();
        answer.map(|address| vec![address]).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[async_trait::async_trait]
impl Dialer for World {
    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        self.dialled.lock().unwrap().push(address);
        TcpStream::connect(self.server).await
    }
}

pub(crate) struct Sandbox {
    pub(crate) world: Arc<World>,
    pub(crate) proxy: EgressProxy,
    child: Child,
    commands: UnixStream,
    answers: BufReader<UnixStream>,
    _server: JoinSet<()>,
    _directory: tempfile::TempDir,
}

impl Sandbox {
    pub(crate) async fn start(who: Who, policy: NetworkPolicy, options: Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (commands, stdin) = UnixStream::pair().unwrap();
        let child = spawn(who, &directory, stdin.into());
        let captured = Captured::from_fds(receive_sockets(&commands)).unwrap();
        let sockets = Sockets { tcp: captured.tcp, dns_udp: captured.dns_udp, dns_tcp: captured.dns_tcp };

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let world = Arc::new(World {
            server: listener.local_addr().unwrap(),
            answers: Mutex::default(),
            asked: Mutex::default(),
            dialled: Mutex::default(),
            alive: AtomicUsize::new(0),
        });
        let mut server = JoinSet::new();
        server.spawn(Arc::clone(&world).serve(listener));
        let upstream = Upstream { resolver: world.clone(), dialer: world.clone() };
        let proxy = EgressProxy::start(sockets, policy, upstream, options, CancellationToken::new()).unwrap();
        let answers = BufReader::new(commands.try_clone().unwrap());
        Self { world, proxy, child, commands, answers, _server: server, _directory: directory }
    }

    /// Has the sandbox do something and returns what it saw.
    pub(crate) fn ask(&mut self, command: &str) -> Result<String, String> {
        tokio::task::block_in_place(|| {
            writeln!(self.commands, "{command}").unwrap();
            let mut answer = String::new();
            self.answers.read_line(&mut answer).unwrap();
            match answer.trim_end().split_once(' ') {
                Some(("ok", text)) => Ok(text.to_owned()),
                Some(("err", text)) => Err(text.to_owned()),
                _ if answer.trim_end() == "ok" => Ok(String::new()),
                _ => panic!("the sandbox answered {answer:?} to {command}"),
            }
        })
    }

    /// Shuts the proxy down and checks that nothing of the sandbox's traffic outlives it.
    pub(crate) async fn end(mut self) {
        self.proxy.shutdown().await;
        self.world.until(|world| world.alive() == 0).await;
        drop((self.commands, self.answers));
        assert!(self.child.wait().unwrap().success());
    }
}

fn spawn(who: Who, directory: &tempfile::TempDir, stdin: OwnedFd) -> Child {
    // A copy that an ordinary user can reach, wherever the build put the original.
    let binary = directory.path().join("payload");
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    // Made by another process: a descriptor of ours that a fork of another thread inherits would keep the file busy.
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&binary).status().unwrap();
    assert!(copied.success());
    let become_user = ["setpriv", "--reuid", ORDINARY_USER, "--regid", ORDINARY_USER, "--clear-groups", "--"];
    let words: Vec<&str> = match who {
        Who::Root => vec!["unshare", "--net"],
        Who::Ordinary if is_root() => {
            [&become_user[..], &["unshare", "--user", "--map-root-user", "--net"]].concat()
        }
        Who::Ordinary => vec!["unshare", "--user", "--map-root-user", "--net"],
    };
    Command::new(words[0])
        .args(&words[1..])
        .arg(binary)
        .args(["--exact", "inside", "--nocapture"])
        .env(MARK, "1")
        .current_dir("/")
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn receive_sockets(from: &UnixStream) -> Vec<OwnedFd> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(6))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC).unwrap();
    ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect()
}
