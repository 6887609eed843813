//! The deputy of a client: keeps the rights that the client gives up, for two things alone.
//!
//! A guardian makes launchers anew, and nobody makes guardians: a server that has become an unprivileged user, or has
//! threads, cannot. So it leaves a process behind before that, which makes a guardian where there is none, and tells a
//! launcher which trees it may show. Both only as they were configured when it was forked. It ends with its client.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{RecvFlags, SendFlags};
use sandstorm_sys::fork::Forked;
use sandstorm_sys::process::Ending;

use super::resident::{self, Resident, ResidentConfig};
use crate::error::{JailError, doing};
use crate::packet;

/// How long it may take for one thing.
const PATIENCE: Duration = Duration::from_secs(15);

/// A deputy, seen from its client.
#[derive(Debug)]
pub struct Deputy(OwnedFd);

impl Deputy {
    /// Forks one. Call it in `main`, before any thread exists, and after whatever else is forked there: who has a copy of
    /// our end would keep it alive. The connection passes through because the deputy must not keep it open.
    pub fn start(config: &ResidentConfig, resident: Resident) -> Result<(Self, Resident), JailError> {
        let (ours, theirs) = packet::pair().map_err(doing("make the deputy's socket"))?;
        let bounded = sockopt::set_socket_timeout(&ours, Timeout::Recv, Some(PATIENCE));
        bounded.map_err(doing("bound the deputy's time"))?;
        match sandstorm_sys::fork::fork().map_err(doing("fork the deputy"))? {
            Forked::Parent { .. } => Ok((Self(ours), resident)),
            Forked::Child => {
                drop((ours, resident));
                resident::detach();
                serve(config, theirs);
                sandstorm_sys::fork::exit_now(0)
            }
        }
    }

    /// Sees to it that somebody makes launchers, and that the one there is shows what it should. Waits for that.
    pub fn restore(&self) -> io::Result<()> {
        rustix::net::send(&self.0, b"!", SendFlags::NOSIGNAL)?;
        let mut word = [0; 8];
        match rustix::net::recv(&self.0, &mut word[..], RecvFlags::empty())? {
            (0, _) => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the deputy is gone")),
            _ if word[0] == b'y' => Ok(()),
            _ => Err(io::Error::other("the deputy could not make a guardian")),
        }
    }
}

fn serve(config: &ResidentConfig, socket: OwnedFd) {
    let mut word = [0; 8];
    loop {
        match rustix::net::recv(&socket, &mut word[..], RecvFlags::empty()) {
            Ok((0, _)) | Err(_) => return,
            Ok(_) => {}
        }
        // By a child, which has no copy of the socket when it makes what outlives us both.
        let done = match sandstorm_sys::fork::fork() {
            Ok(Forked::Child) => {
                drop(socket);
                let code = if resident::restore(config).is_ok() { 0 } else { 1 };
                sandstorm_sys::fork::exit_now(code)
            }
            Ok(Forked::Parent { pid }) => {
                sandstorm_sys::process::reap(pid).is_ok_and(|reaped| reaped.ending == Ending::Code(0))
            }
            Err(_) => false,
        };
        let word = if done { b"y" } else { b"n" };
        if rustix::net::send(socket.as_fd(), word, SendFlags::NOSIGNAL).is_err() {
            return;
        }
    }
}
