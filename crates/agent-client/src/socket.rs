//! A socket that is read as things come and written at once.
//!
//! Most messages are small and there is room for them, so nobody waits for that: only readiness to read is watched. If it
//! were both, every message that the other side takes would wake this process for nothing.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

#[derive(Debug)]
pub struct Socket(AsyncFd<OwnedFd>);

impl Socket {
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        watch(socket, Interest::READABLE).map(Self)
    }

    /// Reads with `read` when there is something. It gives nothing when the socket is empty by now, and says whether more
    /// may be there: then it is asked again without waiting.
    pub async fn read<T>(
        &self,
        mut read: impl FnMut(BorrowedFd<'_>) -> io::Result<(T, bool)>,
    ) -> io::Result<T> {
        loop {
            let mut ready = self.0.readable().await?;
            match ready.try_io(|socket| read(socket.as_fd())) {
                Ok(Ok((value, more))) => {
                    if !more {
                        ready.clear_ready();
                    }
                    return Ok(value);
                }
                Ok(Err(e)) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(e)) => return Err(e),
                Err(_would_block) => {}
            }
        }
    }

    /// Writes what there is room for.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match rustix::net::send(self.as_fd(), bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(n) => Ok(n),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(e) => Err(e.into()),
        }
    }

    /// Whether the other side is gone, as the kernel knows it: before anybody has read as much.
    pub fn is_hung_up(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.as_fd(), PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ends = PollFlags::HUP | PollFlags::ERR;
        poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().intersects(ends)
    }

    /// Waits until there is room to write.
    pub async fn writable(&self) -> io::Result<()> {
        // Watched on a descriptor of its own, for as long as somebody waits.
        let copy = rustix::io::fcntl_dupfd_cloexec(self.as_fd(), 3)?;
        watch(copy, Interest::WRITABLE)?.writable().await.map(drop)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[expect(
    deprecated,
    reason = "sound here: the descriptor is owned and never replaced; the successor is unsafe"
)]
fn watch(socket: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(socket, interest)
}
