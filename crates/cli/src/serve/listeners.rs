//! Where a server is reached: bound while it may still be root, served when it is not.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use anyhow::Context;
use axum::Router;
use sandstorm_config::{Config, Loaded};
use sandstorm_gateway::{Listener, ServeLimits, ServeOptions, Tls};
use tokio_util::sync::CancellationToken;

use super::Home;
use super::stop::{How, Stop};
use super::user::ServerUser;

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
    pub(super) fn bind(loaded: &Loaded, home: &Home, user: Option<ServerUser>) -> anyhow::Result<Self> {
        let serve = &loaded.config.serve;
        let public = tcp(serve.listen)?;
        let address = public.local_addr()?;
        let tls = match serve.tls.files() {
            Some((chain, key)) => {
                let read = |path: &Path| {
                    std::fs::read(path).with_context(|| format!("could not read {}", path.display()))
                };
                Some(Tls::from_pem(&read(chain)?, &read(key)?).context("`serve.tls`")?)
            }
            None => None,
        };
        let path = home.admin_socket();
        let mut users = vec![rustix::process::geteuid().as_raw()];
        let socket = match user {
            Some(user) => {
                users.push(user.uid);
                user.act(|| unix(&path))?
            }
            None => unix(&path)?,
        };
        let operators = serve.admin_listen.map(tcp).transpose()?;
        Ok(Self { public, address, operators, socket: (socket, path, users), tls })
    }

    /// The public address, as a client writes it.
    pub(super) fn describe(&self) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.address)
    }

    /// Serves until the server is told to end, then lets what is under way finish.
    pub(super) async fn serve(
        self,
        config: &Config,
        public: Router,
        operators: Router,
        mut stop: Stop,
        closing: CancellationToken,
    ) -> anyhow::Result<How> {
        let limits = ServeLimits {
            connections: config.serve.max_connections as usize,
            connections_per_peer: config.serve.max_connections_per_address as usize,
            head_time: config.serve.header_timeout,
            grace: config.serve.drain_timeout,
            ..ServeLimits::default()
        };
        let options = ServeOptions { limits, tls: self.tls };
        let (socket, path, users) = self.socket;
        let mut admin = vec![Listener::Unix { listener: tokio::net::UnixListener::from_std(socket)?, users }];
        if let Some(listener) = self.operators {
            admin.push(Listener::Tcp(tokio::net::TcpListener::from_std(listener)?));
        }
        let outside = vec![Listener::Tcp(tokio::net::TcpListener::from_std(self.public)?)];
        let stopping = CancellationToken::new();
        let told = async {
            let how = stop.told().await;
            tracing::info!(?how, "told to end: no new connections, what is under way may finish");
            closing.cancel();
            stopping.cancel();
        };
        let (served, operated, ()) = tokio::join!(
            sandstorm_gateway::serve(outside, public, options.clone(), stopping.cancelled()),
            sandstorm_gateway::serve(admin, operators, options, stopping.cancelled()),
            told
        );
        served?;
        operated?;
        let _ = std::fs::remove_file(path);
        Ok(stop.how())
    }
}

fn tcp(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A socket file that an earlier server left is nobody's: the launcher's lock keeps two servers apart.
fn unix(path: &Path) -> anyhow::Result<UnixListener> {
    let _ = std::fs::remove_file(path);
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
