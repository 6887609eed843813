//! `sandbox shell` at a real terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::{Server, client, json, sandbox};
use crate::support::{PATIENCE, Who, eventually};

/// A terminal with the client in front of it.
struct Desk {
    keys: File,
    /// What the terminal is like, as programs in front of it see it.
    terminal: File,
    pieces: mpsc::Receiver<Vec<u8>>,
    seen: String,
    child: Child,
}

impl Desk {
    fn sit_down(server: &Server, args: &[&str]) -> Self {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let path = ptsname(&keys, Vec::new()).unwrap();
        resize(&File::from(keys.try_clone().unwrap()), 30, 90);
        let terminal = File::options().read(true).write(true).open(path.to_str().unwrap()).unwrap();
        // Makes the terminal the controlling one, so that signals about it arrive, and becomes the client.
        let inner = client(server);
        let mut command = Command::new("setsid");
        command.args(["--ctty"]).arg(inner.get_program()).args(args).env_clear();
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let end = || Stdio::from(terminal.try_clone().unwrap());
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let keys = File::from(keys);
        let mut screen = keys.try_clone().unwrap();
        let (sender, pieces) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 4096];
            while let Ok(n @ 1..) = screen.read(&mut buffer) {
                if sender.send(buffer[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { keys, terminal, pieces, seen: String::new(), child }
    }

    fn type_in(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Reads the screen until it shows `text`, and forgets what was before.
    #[track_caller]
    fn see(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.seen.contains(text) {
            let left = until.saturating_duration_since(Instant::now());
            match self.pieces.recv_timeout(left) {
                Ok(piece) => self.seen.push_str(&String::from_utf8_lossy(&piece)),
                Err(_) => panic!("{text:?} is not to be seen: {:?}", self.seen),
            }
        }
        let after = self.seen.find(text).unwrap() + text.len();
        self.seen.drain(..after);
    }

    /// Whether keys go to the program one by one.
    fn is_raw(&self) -> bool {
        !tcgetattr(&self.terminal).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    fn resize(&self, rows: u16, cols: u16) {
        resize(&self.keys, rows, cols);
    }

    fn leave(mut self) -> (Option<i32>, bool) {
        let code = self.child.wait().unwrap().code();
        (code, self.is_raw())
    }
}

fn resize(terminal: &File, rows: u16, cols: u16) {
    let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).unwrap();
}

#[test]
fn a_shell_is_a_real_terminal() {
    let server = Server::start(Who::Root);
    let id = sandbox(&server);
    let mut desk = Desk::sit_down(&server, &["sandbox", "shell", &id]);
    desk.see("$ ");
    assert!(desk.is_raw());
    desk.type_in("echo size $(stty size)\r");
    desk.see("size 30 90");
    // The program says that it has the terminal: a shell that is just starting one may swallow the interrupt. What is
    // typed while the terminal changes hands is lost, here as anywhere.
    desk.type_in("sh -c \"echo be''gun; exec sleep 1000\"\r");
    desk.see("begun");
    desk.type_in("\u{3}");
    desk.see("$ ");
    desk.type_in("echo still $((40 + 2))\r");
    desk.see("still 42");
    desk.resize(40, 120);
    // The news of the size travels beside the keys.
    desk.type_in("until test \"$(stty size)\" = '40 120'; do sleep 0.1; done; echo resized $((1 + 1))\r");
    desk.see("resized 2");
    desk.type_in(r"printf '\033[3%dmgreen\n' 2; exit 7");
    desk.type_in("\r");
    desk.see("\u{1b}[32mgreen");
    assert_eq!(desk.leave(), (Some(7), false), "the exit code of the shell, and the terminal as it was");
}

#[test]
fn the_terminal_is_given_back_whatever_happens() {
    let mut server = Server::start(Who::Root);
    let id = sandbox(&server);
    let mut desk =
        Desk::sit_down(&server, &["sandbox", "shell", &id, "--", "sh", "-c", "echo ready; exec sleep 1000"]);
    desk.see("ready");
    kill_process(Pid::from_child(&desk.child), Signal::TERM).unwrap();
    assert_eq!(desk.leave(), (Some(143), false));
    eventually("the program ends with its terminal", || {
        json(&server, &["sandbox", "get", &id])["execs_running"] == 0
    });

    let mut desk =
        Desk::sit_down(&server, &["sandbox", "shell", &id, "--", "sh", "-c", "echo ready; exec sleep 1000"]);
    desk.see("ready");
    server.kill();
    desk.see("error:");
    assert_eq!(desk.leave(), (Some(125), false));
}
