//! Guests to copy: a zygote of the tests' own and what it makes.

use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use sandstorm_jail::launcher::TransplantReport;
use sandstorm_jail::seccomp::{self, Arch};
use sandstorm_jail::transplant::{Guest, TransplantError, transplant};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transplant/zygote.py");
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Zygote {
    child: Child,
    listener: UnixListener,
    pub(crate) directory: tempfile::TempDir,
}

impl Zygote {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Guests are other users.
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let address = directory.path().join("socket");
        let listener = UnixListener::bind(&address).unwrap();
        std::fs::set_permissions(&address, PermissionsExt::from_mode(0o777)).unwrap();
        let filter = directory.path().join("filter");
        std::fs::write(&filter, seccomp::payload(Arch::host(), false).bytes()).unwrap();
        let child = Command::new("/usr/bin/python3")
            .args([Path::new(PROGRAM), &address, &filter])
            .current_dir("/")
            .env_clear()
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child, listener, directory }
    }

    /// A guest that waits for its job.
    pub(crate) fn guest(&mut self) -> TestGuest {
        self.guest_after(0)
    }

    /// The same with another number in its namespace.
    pub(crate) fn guest_after(&mut self, use_up: u32) -> TestGuest {
        writeln!(self.child.stdin.as_mut().unwrap(), "{use_up}").unwrap();
        let (side, _) = self.listener.accept().unwrap();
        side.set_read_timeout(Some(PATIENCE)).unwrap();
        let peer = rustix::net::sockopt::socket_peercred(&side).unwrap();
        let (inode, streams) = warm_word(&side);
        let pidfd = pidfd_open(peer.pid, PidfdFlags::empty()).unwrap();
        let guest = TestGuest { pid: peer.pid, pidfd, side, streams, inode };
        guest.wait_until_it_sleeps();
        guest
    }

    /// A guest that serves code.
    pub(crate) fn running(&mut self) -> TestGuest {
        let mut guest = self.guest();
        guest.begin();
        guest
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn warm_word(side: &UnixStream) -> (u64, Vec<OwnedFd>) {
    let mut word = [0; 12];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut word)];
    let received = rustix::net::recvmsg(side, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC).unwrap();
    assert_eq!((received.bytes, &word[..4]), (12, &b"WARM"[..]));
    let streams = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    (u64::from_le_bytes(word[4..].try_into().unwrap()), streams)
}

pub(crate) struct TestGuest {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
    pub(crate) side: UnixStream,
    /// The other ends of its input, output and error.
    pub(crate) streams: Vec<OwnedFd>,
    inode: u64,
}

impl TestGuest {
    /// Gives the job.
    pub(crate) fn begin(&mut self) {
        self.side.write_all(b"job!").unwrap();
        assert_eq!(self.run("0"), "0");
    }

    /// Runs code and gives the repr of its value, "done", or a traceback.
    pub(crate) fn run(&mut self, code: &str) -> String {
        self.try_run(code).unwrap()
    }

    pub(crate) fn try_run(&mut self, code: &str) -> std::io::Result<String> {
        self.send(code)?;
        let answer = self.answer()?;
        self.wait_until_it_sleeps();
        Ok(answer)
    }

    pub(crate) fn send(&mut self, code: &str) -> std::io::Result<()> {
        let length = u32::try_from(code.len()).unwrap();
        self.side.write_all(&[&length.to_le_bytes(), code.as_bytes()].concat())
    }

    pub(crate) fn answer(&mut self) -> std::io::Result<String> {
        let mut length = [0; 4];
        self.side.read_exact(&mut length)?;
        let mut answer = vec![0; u32::from_le_bytes(length) as usize];
        self.side.read_exact(&mut answer)?;
        Ok(String::from_utf8(answer).unwrap())
    }

    /// An answer is there a moment before the guest reads again.
    pub(crate) fn wait_until_it_sleeps(&self) {
        let begun = std::time::Instant::now();
        let call = format!("/proc/{}/syscall", self.pid.as_raw_nonzero());
        while begun.elapsed() < PATIENCE {
            match std::fs::read_to_string(&call) {
                Ok(call) if call.starts_with("0 ") || call.starts_with("45 ") => return,
                Ok(_) => std::thread::yield_now(),
                Err(_) => return,
            }
        }
    }

    pub(crate) fn waits_for_its_job(&self) -> bool {
        let call = format!("/proc/{}/syscall", self.pid.as_raw_nonzero());
        std::fs::read_to_string(call).unwrap().starts_with("0 0x3 ")
    }

    pub(crate) fn as_guest(&self) -> Guest<'_> {
        Guest { pid: self.pid.as_raw_nonzero().get(), pidfd: self.pidfd.as_fd(), side: Some(self.inode) }
    }

    pub(crate) fn copy_to(&self, destination: &TestGuest) -> Result<TransplantReport, TransplantError> {
        transplant(self.as_guest(), destination.as_guest())
    }

    /// The words of a refusal that must leave both as they were.
    pub(crate) fn refused(&mut self, destination: &mut TestGuest) -> String {
        let error = self.copy_to(destination).unwrap_err();
        assert!(!error.destination_spoiled, "{error}");
        destination.begin();
        error.to_string()
    }

    pub(crate) fn kill(&self) {
        rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL).unwrap();
    }

    /// Whether it goes on. Waits until it waits itself, or is at its end: what was killed may be on its way there.
    pub(crate) fn goes_on(&self) -> bool {
        let begun = std::time::Instant::now();
        let call = format!("/proc/{}/syscall", self.pid.as_raw_nonzero());
        loop {
            assert!(begun.elapsed() < PATIENCE, "it neither waits nor ends");
            let waits = std::fs::read_to_string(&call).is_ok_and(|call| call.starts_with("0 "));
            if self.is_ending() {
                return false;
            }
            if waits {
                return true;
            }
            std::thread::yield_now();
        }
    }

    /// Whether it has ended, or has been killed and does not know yet.
    fn is_ending(&self) -> bool {
        const KILLED: u64 = 1 << 8;
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid.as_raw_nonzero()));
        let Ok(status) = status else { return true };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").trim();
        let pending = |name: &str| u64::from_str_radix(field(name), 16).is_ok_and(|set| set & KILLED != 0);
        field("State:").starts_with(['Z', 'X']) || pending("SigPnd:") || pending("ShdPnd:")
    }

    pub(crate) fn has_ended_after(&self, patience: Duration) -> bool {
        let patience = Timespec::try_from(patience).unwrap();
        poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&patience)).unwrap() == 1
    }
}
