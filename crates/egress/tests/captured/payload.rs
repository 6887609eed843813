//! The sandbox's side: commands come in as lines on standard input, which is a socket, and so do answers go out.

use std::io::{BufRead, BufReader, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, connect,
    sendmsg, socket_with, sockopt,
};
use sandstorm_jail::network::{NAMESERVER, capture_all};

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run() {
    let mut parent = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    send_sockets(&parent);
    let mut held = Vec::new();
    for line in BufReader::new(parent.try_clone().unwrap()).lines() {
        let answer = match obey(&line.unwrap(), &mut held) {
            Ok(answer) => format!("ok {answer}\n"),
            Err(error) => format!("err {error}\n"),
        };
        parent.write_all(answer.as_bytes()).unwrap();
    }
}

/// Captures the network and keeps no end of it, as the real launcher does.
fn send_sockets(parent: &UnixStream) {
    let sockets = capture_all().unwrap().into_fds();
    let borrowed: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(6))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)));
    sendmsg(parent, &[IoSlice::new(b"s")], &mut ancillary, SendFlags::empty()).unwrap();
}

fn obey(line: &str, held: &mut Vec<TcpStream>) -> Result<String, String> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["resolve", name] => resolve(name),
        ["tcp", address, text] => {
            tcp(address.parse().unwrap(), text).map_err(|error| format!("{:?}", error.kind()))
        }
        ["udp", address] => UdpSocket::bind("0.0.0.0:0")
            .and_then(|socket| socket.send_to(b"x", address))
            .map(|_| String::new())
            .map_err(|error| format!("{:?}", error.kind())),
        ["hold", address, count] => {
            for _ in 0..count.parse::<usize>().unwrap() {
                held.push(TcpStream::connect(address).map_err(|error| error.to_string())?);
            }
            Ok(String::new())
        }
        ["flood", address, count] => flood(address.parse().unwrap(), count.parse().unwrap()),
        ["release"] => {
            held.clear();
            Ok(String::new())
        }
        _ => panic!("no such command: {line}"),
    }
}

/// Starts that many connections as fast as they can be started, waits for none, and says how many the kernel tracks.
fn flood(address: SocketAddr, count: usize) -> Result<String, String> {
    for _ in 0..count {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        // Closed with a reset, so that a port is free again at once.
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
        let _ = connect(&socket, &address);
    }
    std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count")
        .map(|count| count.trim().to_owned())
        .map_err(|error| error.to_string())
}

fn tcp(address: SocketAddr, text: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(text.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn resolve(name: &str) -> Result<String, String> {
    let mut query = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(u8::try_from(label.len()).unwrap());
        query.extend_from_slice(label.as_bytes());
    }
    query.extend_from_slice(&[0, 0, 1, 0, 1]);
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect((NAMESERVER, 53)).unwrap();
    socket.send(&query).unwrap();
    let mut reply = [0; 512];
    let length = socket.recv(&mut reply).unwrap();
    match (reply[3] & 0x0f, reply[..length].last_chunk::<4>()) {
        (0, Some(address)) => Ok(std::net::Ipv4Addr::from(*address).to_string()),
        (5, _) => Err("REFUSED".to_owned()),
        (code, _) => Err(format!("code {code}")),
    }
}
