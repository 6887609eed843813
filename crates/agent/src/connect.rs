//! A relay to a port on the sandbox's loopback: stdin goes to the socket, the socket to stdout.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddrV4, SocketAddrV6, SocketFlags, SocketType,
};

use crate::child::write_all;
use crate::files::refuse;
use crate::frame;
use crate::protocol::{CHUNK, CONNECTED};

/// Runs until both directions ended; the result is the child's exit code.
pub(crate) fn relay(port: u16) -> i32 {
    match connect(port).and_then(|socket| tell_connected().and_then(|()| pump(&socket))) {
        Ok(()) => 0,
        Err(errno) => {
            let error =
                refuse(Path::new(&format!("port {port}")), errno, &std::io::Error::from(errno).to_string());
            if let Ok(bytes) = frame::encode(&error) {
                let _ = write_all(rustix::stdio::stderr(), &bytes);
            }
            1
        }
    }
}

/// One byte on the error stream: the caller may begin.
fn tell_connected() -> Result<(), Errno> {
    write_all(rustix::stdio::stderr(), &[CONNECTED])
}

/// Servers listen on either loopback address.
fn connect(port: u16) -> Result<OwnedFd, Errno> {
    let v4 = stream_socket(AddressFamily::INET)?;
    match rustix::net::connect(&v4, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)) {
        Ok(()) => return Ok(v4),
        Err(Errno::CONNREFUSED) => {}
        Err(e) => return Err(e),
    }
    let v6 = stream_socket(AddressFamily::INET6)?;
    match rustix::net::connect(&v6, &SocketAddrV6::new(Ipv6Addr::LOCALHOST, port, 0, 0)) {
        Ok(()) => Ok(v6),
        Err(_) => Err(Errno::CONNREFUSED),
    }
}

fn stream_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

fn pump(socket: &OwnedFd) -> Result<(), Errno> {
    let mut buffer = vec![0; CHUNK];
    let (mut sending, mut receiving) = (true, true);
    while receiving {
        let mut fds = vec![PollFd::new(socket, PollFlags::IN)];
        let stdin = rustix::stdio::stdin();
        if sending {
            fds.push(PollFd::from_borrowed_fd(stdin, PollFlags::IN));
        }
        poll(&mut fds, None)?;
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready.get(1) == Some(&true) {
            match rustix::io::read(stdin, &mut buffer)? {
                0 => {
                    sending = false;
                    rustix::net::shutdown(socket, Shutdown::Write)?;
                }
                n => write_all(std::os::fd::AsFd::as_fd(socket), &buffer[..n])?,
            }
        }
        if ready[0] {
            match rustix::io::read(socket, &mut buffer)? {
                0 => receiving = false,
                n => write_all(rustix::stdio::stdout(), &buffer[..n])?,
            }
        }
    }
    Ok(())
}
