//! The client of a launcher with zygotes, and the host of the agents in its jails.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use sandstorm_agent::frame::{Decoder, encode};
use sandstorm_agent::protocol::{Ending, FromAgent, Guest, PayloadWalls, Program, Stream, Task, ToAgent};
use sandstorm_jail::launcher::{
    self, Answer, Ended, GuestId, Launcher, LauncherConfig, Refusal, Request, ZygoteConfig,
};
use sandstorm_jail::template::{self, Additions};
use sandstorm_jail::{IdRange, JailLimits, JailSpec, Network, OnMemory, Strictness, packet};
use sandstorm_sys::fork::{Forked, exit_now, fork};
use sandstorm_sys::process::reap;

pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// What the memory of the launcher's host is full of, in pieces: as a whole it is nowhere else.
pub(crate) const MARK: [&str; 3] = ["mark of the ", "host: ", "0f1d7c5e"];

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A case and its name.
pub(crate) type Case = (&'static str, fn(&mut Host));

/// Runs the cases whose name has the word on the command line, each in a process of its own: it forks a launcher, for which
/// a process must have no threads. Executed as the agent, this program is the mold of all PID 1s.
#[expect(clippy::print_stdout, reason = "this is a test's report")]
pub(crate) fn report<'a>(title: &str, cases: impl Iterator<Item = &'a Case>) -> ExitCode {
    if std::env::args().next().as_deref() == Some("sandstorm-agent") {
        return sandstorm_jail::mold::main();
    }
    if !rustix::process::geteuid().is_root() {
        println!("{title}: skipped, only root has zygotes");
        // Where nothing may be left out, that is a failure.
        return ExitCode::from(u8::from(std::env::var_os("SANDSTORM_REQUIRE_ALL").is_some()));
    }
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let (mut passed, mut failed) = (0, 0);
    for (name, case) in cases.filter(|(name, _)| name.contains(&filter)) {
        let began = Instant::now();
        let ok = run(*case);
        println!("{name} ... {} ({:.1} s)", if ok { "ok" } else { "FAILED" }, began.elapsed().as_secs_f64());
        if ok { passed += 1 } else { failed += 1 }
    }
    println!("{title}: {passed} passed, {failed} failed");
    if failed == 0 && (passed > 0 || !filter.is_empty()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(case: fn(&mut Host)) -> bool {
    match fork().unwrap() {
        Forked::Parent { pid } => reap(pid).unwrap().ending == sandstorm_sys::process::Ending::Code(0),
        Forked::Child => {
            let mut host = Host::new();
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(&mut host)));
            let left = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| host.leave()));
            exit_now(if ran.is_ok() && left.is_ok() { 0 } else { 1 })
        }
    }
}

pub(crate) struct Host {
    dir: tempfile::TempDir,
    socket: Option<OwnedFd>,
    launcher: i32,
    agents: HashMap<String, Agent>,
    /// Answers that nobody waited for yet.
    said: Vec<(Answer, Vec<OwnedFd>)>,
    next_task: u32,
}

struct Agent {
    stream: UnixStream,
    decoder: Decoder,
    said: Vec<FromAgent>,
}

/// What came of a program.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) ending: Ending,
    pub(crate) walls: PayloadWalls,
}

impl Host {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // What may get nowhere: memory, and a descriptor that an exec does not close.
        Box::leak(MARK.concat().repeat(1000).into_boxed_str());
        fs::write(dir.path().join("inherited"), "x").unwrap();
        std::mem::forget(open_for_all(&dir.path().join("inherited")));
        let agent: &'static [u8] = Box::leak(fs::read("/proc/self/exe").unwrap().into_boxed_slice());
        let zygote = |name: &str, interpreter: PathBuf| ZygoteConfig {
            name: name.to_owned(),
            interpreter,
            preload: Vec::new(),
            known: Vec::new(),
        };
        fs::create_dir(dir.path().join("space")).unwrap();
        let unfit = dir.path().join("python");
        fs::copy(PYTHON, &unfit).unwrap();
        std::os::unix::fs::chown(&unfit, Some(1000), None).unwrap();
        let Launcher { socket, .. } = {
            let launcher = launcher::start(LauncherConfig {
                ids: IdRange { start: 2_013_265_920, blocks: 4000 },
                cgroup_parent: PathBuf::from("sandstorm"),
                runtime_dir: dir.path().join("run"),
                space_dir: dir.path().join("space"),
                agent,
                zygotes: vec![
                    zygote("python", PYTHON.into()),
                    zygote("absent", "/usr/bin/no-such-python".into()),
                    zygote("unfit", unfit),
                    zygote("false", "/usr/bin/false".into()),
                ],
            })
            .unwrap();
            assert!(launcher.abilities.zygotes);
            launcher
        };
        // The launcher is the only child of this process.
        let children = format!("/proc/self/task/{}/children", std::process::id());
        let launcher = fs::read_to_string(children).unwrap().trim().parse().unwrap();
        Self { dir, socket: Some(socket), launcher, agents: HashMap::new(), said: Vec::new(), next_task: 0 }
    }

    /// Closes the socket and looks whether anything is left.
    pub(crate) fn leave(&mut self) {
        let mut ours = vec![self.launcher];
        ours.extend(children(self.launcher));
        drop(self.socket.take());
        Launcher::join(self.launcher).unwrap();
        for pid in ours {
            assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{pid} is left");
        }
        let leases = fs::read_dir(self.path("run/instances")).map_or(0, Iterator::count);
        assert_eq!(leases, 0, "a lease is left: something stands below it");
    }

    /// A path in a folder of its own.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn launcher(&self) -> i32 {
        self.launcher
    }

    pub(crate) fn ask(&self, request: &Request, descriptors: &[OwnedFd]) {
        let given: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        packet::send(self.socket.as_ref().unwrap().as_fd(), request, &given).unwrap();
    }

    /// The first answer that fits.
    pub(crate) fn hear<T>(&mut self, mut fits: impl FnMut(&Answer, &mut Vec<OwnedFd>) -> Option<T>) -> T {
        let give_up = Instant::now() + PATIENCE;
        loop {
            for index in 0..self.said.len() {
                let (answer, descriptors) = &mut self.said[index];
                if let Some(heard) = fits(answer, descriptors) {
                    self.said.remove(index);
                    return heard;
                }
            }
            let socket = self.socket.as_ref().unwrap();
            assert!(readable(socket, give_up), "no answer; there were {:?}", self.said);
            let answer = packet::receive(socket.as_fd()).unwrap().expect("the launcher is gone");
            self.said.push(answer);
        }
    }

    pub(crate) fn spec(name: &str) -> JailSpec {
        JailSpec {
            name: name.to_owned(),
            hostname: "sandbox".to_owned(),
            root: template::host(16 << 20, 1000, Additions::default()),
            limits: JailLimits {
                memory_bytes: 256 << 20,
                processes: 32,
                cpu_milli: 2000,
                cpu_time: None,
                open_files: 256,
            },
            network: Network::Loopback,
            strictness: Strictness::Strict,
            on_memory: OnMemory::EndProcess,
            lifetime: None,
            strict_filter: false,
            joinable: true,
        }
    }

    pub(crate) fn launch(&mut self, name: &str) {
        self.launch_spec(Self::spec(name)).unwrap();
    }

    pub(crate) fn launch_spec(&mut self, spec: JailSpec) -> Result<i32, Refusal> {
        let name = spec.name.clone();
        self.ask(&Request::Launch { spec: Box::new(spec), keep: false }, &[]);
        self.launched(&name)
    }

    /// Waits for a jail; PID 1's number on the host comes back.
    pub(crate) fn launched(&mut self, name: &str) -> Result<i32, Refusal> {
        let (socket, pid) = self.hear(|answer, descriptors| match answer {
            Answer::Launched(launched) if launched.name == name => {
                Some(Ok((descriptors.remove(0), launched.pid)))
            }
            Answer::Refused { name: refused, refusal } if refused == name => Some(Err(refusal.clone())),
            _ => None,
        })?;
        let stream = UnixStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let agent = Agent { stream, decoder: Decoder::default(), said: Vec::new() };
        self.agents.insert(name.to_owned(), agent);
        self.from_agent(name, |said| matches!(said, FromAgent::Ready { .. }).then_some(()));
        Ok(pid)
    }

    /// A guest for this owner, waiting.
    pub(crate) fn guest(&mut self, name: &str, owner: &str) -> u32 {
        let guest = self.join(name, "python", owner, None).unwrap();
        self.ready(name, guest);
        guest
    }

    pub(crate) fn join(
        &mut self,
        name: &str,
        zygote: &str,
        owner: &str,
        like: Option<GuestId>,
    ) -> Result<u32, Refusal> {
        let (name, zygote, owner) = (name.to_owned(), zygote.to_owned(), owner.to_owned());
        self.ask(&Request::Join { name: name.clone(), zygote, owner, like }, &[]);
        self.joined(&name)
    }

    pub(crate) fn joined(&mut self, name: &str) -> Result<u32, Refusal> {
        self.hear(|answer, _| match answer {
            Answer::Joined { name: joined, guest } if joined == name => Some(Ok(*guest)),
            Answer::NotJoined { name: refused, refusal } if refused == name => Some(Err(refusal.clone())),
            _ => None,
        })
    }

    /// Waits until a guest waits; its walls come back.
    pub(crate) fn ready(&mut self, name: &str, number: u32) -> PayloadWalls {
        self.from_agent(name, |said| match said {
            FromAgent::GuestReady { guest, walls } if *guest == number => Some(*walls),
            FromAgent::GuestFailed { guest, failure } if *guest == number => panic!("{failure:?}"),
            _ => None,
        })
    }

    pub(crate) fn kill(&mut self, name: &str) -> Ended {
        self.ask(&Request::Kill { name: name.to_owned() }, &[]);
        self.ended(name)
    }

    pub(crate) fn ended(&mut self, name: &str) -> Ended {
        self.hear(|answer, _| match answer {
            Answer::Ended(ended) if ended.name == name => Some(ended.clone()),
            _ => None,
        })
    }

    pub(crate) fn done(&mut self, name: &str) -> Result<(), Refusal> {
        self.hear(|answer, _| match answer {
            Answer::Done { name: done } if done == name => Some(Ok(())),
            Answer::Refused { name: refused, refusal } if refused == name => Some(Err(refusal.clone())),
            _ => None,
        })
    }

    /// Runs a Python program to its end: by a guest, or as the agent starts it.
    pub(crate) fn python(&mut self, name: &str, guest: Option<u32>, code: &str) -> Ran {
        let id = self.start(name, guest, code);
        self.ran(name, id)
    }

    pub(crate) fn start(&mut self, name: &str, guest: Option<u32>, code: &str) -> u32 {
        self.next_task += 1;
        let id = self.next_task;
        let script = format!("/workspace/program-{id}.py");
        let argv = [PYTHON, &script].map(str::to_owned).to_vec();
        let env = [
            ("PATH", "/usr/bin:/bin"),
            ("HOME", "/home/user"),
            ("LANG", "C.UTF-8"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
            ("PYTHONUNBUFFERED", "1"),
            ("PYTHONUTF8", "1"),
        ];
        let program = Program {
            argv,
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            cwd: "/workspace".to_owned(),
            root: false,
            terminal: None,
            side_channel: false,
            last: false,
            files: vec![(script.into_bytes().into(), code.as_bytes().to_vec().into())],
            guest: guest.map(Guest::Run),
        };
        self.say(name, &ToAgent::Start { id, lasting: None, task: Task::Program(program) });
        id
    }

    pub(crate) fn ran(&mut self, name: &str, id: u32) -> Ran {
        let (mut stdout, mut stderr, mut walls) = (Vec::new(), Vec::new(), None);
        let ending = self.from_agent(name, |said| {
            match said {
                FromAgent::Started { id: of, walls: found } if *of == id => walls = Some(*found),
                FromAgent::Output { id: of, stream: Stream::Output, bytes } if *of == id => {
                    stdout.extend_from_slice(bytes);
                }
                FromAgent::Output { id: of, stream: Stream::Error, bytes } if *of == id => {
                    stderr.extend_from_slice(bytes);
                }
                FromAgent::Failed { id: of, failure } if *of == id => panic!("{failure:?}"),
                FromAgent::Exited { id: of, ending, .. } if *of == id => return Some(*ending),
                _ => {}
            }
            None
        });
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ran { stdout: text(stdout), stderr: text(stderr), ending, walls: walls.expect("it was started") }
    }

    pub(crate) fn say(&mut self, name: &str, message: &ToAgent) {
        let bytes = encode(message).unwrap();
        self.agents.get_mut(name).unwrap().stream.write_all(&bytes).unwrap();
    }

    /// Lets go of the connection to an agent.
    pub(crate) fn hang_up(&mut self, name: &str) {
        self.agents.remove(name);
    }

    /// Goes through what an agent says, from the first thing that nobody heard, until something fits. What came before that
    /// stays for others.
    #[expect(clippy::wrong_self_convention, reason = "what comes from the agent is meant, no conversion")]
    pub(crate) fn from_agent<T>(&mut self, name: &str, mut fits: impl FnMut(&FromAgent) -> Option<T>) -> T {
        let agent = self.agents.get_mut(name).unwrap();
        let mut next = 0;
        loop {
            while next < agent.said.len() {
                if let Some(heard) = fits(&agent.said[next]) {
                    agent.said.remove(next);
                    return heard;
                }
                next += 1;
            }
            while let Some(message) = agent.decoder.take::<FromAgent>().unwrap() {
                agent.said.push(message);
            }
            if next == agent.said.len() {
                let mut buffer = [0; 4096];
                let length = agent.stream.read(&mut buffer).unwrap();
                assert!(length > 0, "the agent is gone; it said {:?}", agent.said);
                agent.decoder.push(&buffer[..length]);
            }
        }
    }
}

/// A descriptor that survives an exec.
pub(crate) fn open_for_all(path: &Path) -> OwnedFd {
    rustix::fs::open(path, rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap()
}

/// Processes of the host that have this one as their parent.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// The zygotes of a launcher: those of its children that run our program.
pub(crate) fn zygotes(launcher: i32) -> Vec<i32> {
    let is_zygote = |pid: &i32| {
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        words.contains("/zygote/python.py") && groups.contains("zygote_")
    };
    children(launcher).into_iter().filter(is_zygote).collect()
}

/// Waits for something to become true.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < give_up, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn readable(socket: &OwnedFd, until: Instant) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let left = until.saturating_duration_since(Instant::now());
    let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: 0 };
    poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)).is_ok_and(|n| n > 0)
}
