//! Where a server is reached: bound while it may still be root, served when it is not.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use axum::Router;
use futures_util::future::BoxFuture;
use sandstorm_config::Config;
use sandstorm_control::server::Control;
use sandstorm_gateway::{Listener, ServeLimits, ServeOptions, Tls};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Home;
use super::addresses::Addresses;
use super::stop::{How, Stop};
use super::user::ServerUser;

/// How long answers may take to reach their clients once nothing is worked on any more.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Sockets that listen, and the certificate of those that others can reach.
#[derive(Debug)]
pub(super) struct Listeners {
    public: TcpListener,
    address: SocketAddr,
    operators: Option<TcpListener>,
    /// The operators' socket in the state directory, for these users.
    socket: (UnixListener, PathBuf, Vec<u32>),
    tls: Option<Tls>,
}

impl Listeners {
    pub(super) fn bind(
        addresses: Addresses,
        tls: Option<Tls>,
        home: &Home,
        user: Option<ServerUser>,
    ) -> anyhow::Result<Self> {
        let public = tcp(addresses.public)?;
        let address = public.local_addr()?;
        let path = home.admin_socket();
        let mut users = vec![rustix::process::geteuid().as_raw()];
        let socket = match user {
            Some(user) => {
                users.push(user.uid);
                user.act(|| unix(&path))?
            }
            None => unix(&path)?,
        };
        let operators = addresses.operators.map(tcp).transpose()?;
        Ok(Self { public, address, operators, socket: (socket, path, users), tls })
    }

    /// The public address, as a client writes it.
    pub(super) fn describe(&self) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.address)
    }

    /// Serves until the server ends, and says how. Meanwhile it listens: new work is refused in words, as long as there is
    /// other work to wait for.
    pub(super) async fn serve(
        self,
        config: &Config,
        routers: (Router, Router),
        mut ending: Ending,
    ) -> anyhow::Result<How> {
        let (public, operators) = routers;
        let limits = ServeLimits {
            connections: config.serve.max_connections as usize,
            connections_per_peer: config.serve.max_connections_per_address as usize,
            head_time: config.serve.header_timeout,
            ..ServeLimits::default()
        };
        let options = ServeOptions { limits, tls: self.tls };
        let (socket, path, users) = self.socket;
        let mut admin = vec![Listener::Unix { listener: tokio::net::UnixListener::from_std(socket)?, users }];
        if let Some(listener) = self.operators {
            admin.push(Listener::Tcp(tokio::net::TcpListener::from_std(listener)?));
        }
        let outside = vec![Listener::Tcp(tokio::net::TcpListener::from_std(self.public)?)];
        let (drained, stopping) = watch::channel(None);
        let grace = || {
            let mut stopping = stopping.clone();
            async move {
                let grace = stopping.wait_for(Option::is_some).await.map(|grace| *grace);
                grace.ok().flatten().unwrap_or_default()
            }
        };
        let serving = async {
            let (served, operated) = tokio::join!(
                sandstorm_gateway::serve(outside, public, options.clone(), grace()),
                sandstorm_gateway::serve(admin, operators, options, grace()),
            );
            served.and(operated)
        };
        let drain_time = config.serve.drain_timeout;
        let ends = async {
            let how = ending.drained(drain_time).await;
            // Whoever is not answered in this time is told that there will be no answer.
            let rest = ending.rest(how, drain_time);
            drained.send_replace(Some(rest + LAST_WORDS));
            tokio::time::sleep(rest).await;
            ending.giving_up.cancel();
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            served = serving => served?,
            never = ends => match never {},
        }
        let _ = std::fs::remove_file(path);
        Ok(ending.how())
    }
}

/// What ends a server, and who has to hear of it.
pub(super) struct Ending {
    pub(super) stop: Stop,
    /// Resolves when the engine cannot work any more, with the reason.
    pub(super) lost: BoxFuture<'static, String>,
    pub(super) control: Control,
    /// Ends endless streams.
    pub(super) closing: CancellationToken,
    /// Answers whoever still waits.
    pub(super) giving_up: CancellationToken,
    pub(super) why_lost: Option<String>,
    pub(super) began: Option<Instant>,
}

impl Ending {
    /// Waits for the end, and then for what is under way.
    async fn drained(&mut self, drain_time: Duration) -> How {
        let how = tokio::select! {
            how = self.stop.told() => how,
            why = &mut self.lost => {
                tracing::error!(why, "the server cannot go on and ends");
                self.why_lost = Some(why);
                How::Lost
            }
        };
        self.began = Some(Instant::now());
        self.closing.cancel();
        if how == How::Lost {
            self.control.refuse_work();
            return how;
        }
        tracing::info!(?how, "told to end: no new work, what is under way may finish");
        tokio::select! {
            () = self.control.drain_work(drain_time) => how,
            // What is waited for may never come then.
            why = &mut self.lost => {
                tracing::error!(why, "the engine was lost on the way");
                self.why_lost = Some(why);
                How::Lost
            }
        }
    }

    /// How long other requests may still take.
    fn rest(&self, how: How, drain_time: Duration) -> Duration {
        let spent = self.began.map_or(Duration::ZERO, |began| began.elapsed());
        match how {
            How::Lost => Duration::ZERO,
            _ => drain_time.saturating_sub(spent),
        }
    }

    fn how(&self) -> How {
        if self.why_lost.is_some() { How::Lost } else { self.stop.how() }
    }
}

fn tcp(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A socket file that an earlier server left is nobody's: the lock on the state directory keeps two servers apart.
fn unix(path: &Path) -> anyhow::Result<UnixListener> {
    let _ = std::fs::remove_file(path);
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
