//! The kernel of a context, in a guest of a real zygote in a real jail, goes on in another jail. Needs root.
//!
//! Each case is a process of its own without threads, since it forks a launcher. The agent is this very program.

#![expect(clippy::print_stdout, reason = "this is a test's report")]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

#[path = "../guests/host.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod host;

use std::process::ExitCode;

use rustix::process::{Pid, Signal};
use sandstorm_agent::protocol::{FromAgent, Guest, InputStream, Program, Stream, Task, ToAgent, cost};
use sandstorm_jail::launcher::{Answer, Refusal, Request, TransplantReport};

use host::{Case, Host, PYTHON};

const KERNEL: &str = include_str!("../../../language/kernels/python.py");

const CASES: &[Case] = &[
    ("a context goes on in another jail", goes_on),
    ("copies of copies, and several of one", many),
    ("one surgeon after the other", surgeons),
    ("a jail that ends while it is copied is gone all the same", ends_meanwhile),
    ("what cannot be carried is refused by name", refused),
    ("the interpreter's numbers may differ", numbers),
];

fn main() -> ExitCode {
    if cfg!(not(target_arch = "x86_64")) {
        println!("live forks: skipped, guests cannot be copied on this processor yet");
        return ExitCode::SUCCESS;
    }
    host::report("live forks", CASES.iter())
}

/// A kernel somewhere: the jail, the guest, the task that it is there.
struct Context {
    jail: String,
    guest: u32,
    task: u32,
    cells: u32,
    heard: Vec<u8>,
}

impl Context {
    /// Starts the kernel in a guest.
    fn start(host: &mut Host, jail: &str) -> Self {
        host.launch(jail);
        let guest = host.guest(jail, "owner");
        let env = [
            ("PATH", "/usr/bin:/bin"),
            ("HOME", "/home/user"),
            ("LANG", "C.UTF-8"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
            ("PYTHONUNBUFFERED", "1"),
            ("PYTHONUTF8", "1"),
            ("SANDSTORM_KERNEL_FD", "3"),
        ];
        let program = Program {
            argv: [PYTHON, "/tmp/kernel.py"].map(str::to_owned).to_vec(),
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            cwd: "/workspace".to_owned(),
            files: vec![(b"/tmp/kernel.py".to_vec().into(), KERNEL.as_bytes().to_vec().into())],
            ..program(Guest::Run(guest))
        };
        let mut context = Self::of(host, jail, guest, 1, program);
        context.message(host, "ready");
        context
    }

    /// Follows a copy.
    fn copied(host: &mut Host, jail: &str, guest: u32) -> Self {
        Self::of(host, jail, guest, 1, program(Guest::Transplanted(guest)))
    }

    fn of(host: &mut Host, jail: &str, guest: u32, task: u32, program: Program) -> Self {
        host.say(jail, &ToAgent::Start { id: task, lasting: None, task: Task::Program(program) });
        host.from_agent(jail, |said| match said {
            FromAgent::Started { id, .. } if *id == task => Some(()),
            FromAgent::Failed { id, failure } if *id == task => panic!("{failure:?}"),
            _ => None,
        });
        Self { jail: jail.to_owned(), guest, task, cells: 0, heard: Vec::new() }
    }

    /// Runs a cell and gives its value, or what was raised, as text.
    fn cell(&mut self, host: &mut Host, code: &str) -> String {
        self.cells += 1;
        let message = serde_json::json!({"type": "execute", "id": self.cells, "code": code}).to_string();
        let frame = [&(message.len() as u32).to_le_bytes(), message.as_bytes()].concat();
        let bytes = frame.into();
        host.say(&self.jail, &ToAgent::Input { id: self.task, to: InputStream::Side, bytes });
        host.say(&self.jail, &ToAgent::Commit { id: self.task });
        let mut value = String::new();
        loop {
            let message = self.next(host);
            match message["type"].as_str().unwrap() {
                "result" => value = message["data"]["text/plain"].as_str().unwrap().to_owned(),
                "error" => value = format!("{} {}", message["name"], message["value"]),
                "done" => return value,
                _ => {}
            }
        }
    }

    fn message(&mut self, host: &mut Host, kind: &str) {
        while self.next(host)["type"] != kind {}
    }

    fn next(&mut self, host: &mut Host) -> serde_json::Value {
        loop {
            if let Some((length, rest)) = self.heard.split_first_chunk::<4>() {
                let length = u32::from_le_bytes(*length) as usize;
                if rest.len() >= length {
                    let message = serde_json::from_slice(&rest[..length]).unwrap();
                    self.heard.drain(..4 + length);
                    return message;
                }
            }
            let task = self.task;
            let bytes = host.from_agent(&self.jail, |said| match said {
                FromAgent::Output { id, stream: Stream::Side, bytes } if *id == task => Some(bytes.clone()),
                FromAgent::Exited { id, ending, .. } if *id == task => panic!("the kernel ended: {ending:?}"),
                _ => None,
            });
            let credit = cost(bytes.len());
            host.say(&self.jail, &ToAgent::Credit { id: task, stream: Stream::Side, bytes: credit });
            self.heard.extend_from_slice(&bytes);
        }
    }

    /// Its copy in a new jail.
    fn fork(&mut self, host: &mut Host, jail: &str) -> Result<(Self, TransplantReport), Refusal> {
        host.launch(jail);
        self.fork_into(host, jail)
    }

    fn fork_into(&mut self, host: &mut Host, jail: &str) -> Result<(Self, TransplantReport), Refusal> {
        let from = (self.jail.clone(), self.guest);
        let guest = host.join(jail, "python", "owner", Some(from.clone()))?;
        host.ready(jail, guest);
        host.ask(&Request::Transplant { from, to: (jail.to_owned(), guest) }, &[]);
        let report = host.hear(|answer, _| match answer {
            Answer::Transplanted { name, report } if name == jail => Some(Ok(*report)),
            Answer::NotTransplanted { name, refusal } if name == jail => Some(Err(refusal.clone())),
            _ => None,
        })?;
        Ok((Self::copied(host, jail, guest), report))
    }
}

fn program(guest: Guest) -> Program {
    Program { side_channel: true, guest: Some(guest), ..Program::default() }
}

fn goes_on(host: &mut Host) {
    let mut source = Context::start(host, "from");
    source.cell(
        host,
        "import os, decimal, sqlite3, dataclasses\nos.chdir('/home/user')\nvalues = {'a': [1, 2]}",
    );
    source.cell(
        host,
        "@dataclasses.dataclass\nclass Point:\n    x: int\npoint = Point(decimal.Decimal(1) / 3)",
    );
    source.cell(
        host,
        "base = sqlite3.connect(':memory:'); base.execute('create table t (n)'); data = os.urandom(10 << 20)",
    );
    source.cell(host, "import signal\nheard = []\nsignal.signal(signal.SIGUSR1, lambda *_: heard.append(1))");
    let (mut copy, report) = source.fork(host, "to").unwrap();
    println!("10 MiB, real jails: {report:?}");
    let question =
        "values, point, base.execute('select count(*) from t').fetchone(), os.getcwd(), hash(data)";
    let answer = source.cell(host, question);
    assert!(answer.contains("'/home/user'") && answer.contains("Point"), "{answer}");
    assert_eq!(copy.cell(host, question), answer);
    // It is in the other jail: what it writes there is not here.
    copy.cell(host, "open('/workspace/mine', 'w').write('x'); values['a'].append(3); os.kill(os.getpid(), signal.SIGUSR1)");
    assert_eq!(
        copy.cell(host, "os.listdir('/workspace'), values, heard"),
        "(['mine'], {'a': [1, 2, 3]}, [1])"
    );
    assert_eq!(source.cell(host, "os.listdir('/workspace'), values, heard"), "([], {'a': [1, 2]}, [])");
    // Its walls are whole: nothing of the copying is left open.
    assert_eq!(copy.cell(host, "sorted(int(n) for n in os.listdir('/proc/self/fd'))[:3]"), "[0, 1, 2]");
    assert_eq!(
        copy.cell(host, "len(os.listdir('/proc/self/fd'))"),
        source.cell(host, "len(os.listdir('/proc/self/fd'))")
    );
    let walls = "[line for line in open('/proc/self/status') if line.startswith(('Cap', 'NoNew', 'Seccomp', 'TracerPid', 'Sig'))]";
    assert_eq!(copy.cell(host, walls), source.cell(host, walls));
    // Threads, children and interrupts work in it.
    assert_eq!(
        copy.cell(host, "import subprocess; subprocess.run(['/bin/echo', 'x'], capture_output=True).stdout"),
        "b'x\\n'"
    );
    assert_eq!(
        copy.cell(host, "import concurrent.futures as f\nlist(f.ThreadPoolExecutor(3).map(abs, [-1, -2]))"),
        "[1, 2]"
    );
    // The end of one is not the end of the other.
    host.kill("from");
    assert_eq!(copy.cell(host, "values['a'][-1]"), "3");
}

fn many(host: &mut Host) {
    let mut source = Context::start(host, "from");
    source.cell(host, "n = 0");
    let mut family = Vec::new();
    for number in 0..4 {
        source.cell(host, "n += 1");
        let (copy, report) = source.fork(host, &format!("to-{number}")).unwrap();
        println!("next to nothing, real jails: {report:?}");
        family.push(copy);
    }
    let (mut child, _) = family[0].fork(host, "child").unwrap();
    child.cell(host, "n += 100");
    let (mut grandchild, _) = child.fork(host, "grandchild").unwrap();
    assert_eq!(grandchild.cell(host, "n"), "101");
    for (number, copy) in family.iter_mut().enumerate() {
        assert_eq!(copy.cell(host, "n"), (number + 1).to_string());
    }
}

/// One that waits takes the next order and has nothing of the launcher's; one that is killed is replaced.
fn surgeons(host: &mut Host) {
    let mut source = Context::start(host, "from");
    assert!(waiting_surgeons(host.launcher()).is_empty());
    for round in 0..3 {
        let (mut copy, _) = source.fork(host, &format!("to-{round}-0")).unwrap();
        let [surgeon] = waiting_surgeons(host.launcher())[..] else { panic!("one surgeon waits") };
        source.fork(host, &format!("to-{round}-1")).unwrap();
        assert_eq!(waiting_surgeons(host.launcher()), [surgeon]);
        assert_eq!(descriptors(surgeon), ["0", "1", "2", "3"]);
        rustix::process::kill_process(Pid::from_raw(surgeon).unwrap(), Signal::KILL).unwrap();
        if round == 0 {
            // Else the next order comes when its end is not yet known.
            host::eventually("it was not collected", || !host::children(host.launcher()).contains(&surgeon));
        }
        assert_eq!(copy.cell(host, "6 * 7"), "42");
    }
}

/// At whatever moment: whoever traces it must hear of its end, or nobody does.
fn ends_meanwhile(host: &mut Host) {
    for step in 0..24 {
        let (from, to) = (format!("from-{step}"), format!("to-{step}"));
        let source = Context::start(host, &from);
        host.launch(&to);
        let like = (from.clone(), source.guest);
        let guest = host.join(&to, "python", "owner", Some(like.clone())).unwrap();
        host.ready(&to, guest);
        host.ask(&Request::Transplant { from: like, to: (to.clone(), guest) }, &[]);
        std::thread::sleep(std::time::Duration::from_micros(500 * (step / 2)));
        let (first, second) = if step % 2 == 0 { (&from, &to) } else { (&to, &from) };
        host.kill(first);
        host.kill(second);
    }
    goes_on(host);
}

fn descriptors(pid: i32) -> Vec<String> {
    let listed = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let mut names: Vec<_> = listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Children that are forks of the launcher itself: all others run a program of their own.
fn waiting_surgeons(launcher: i32) -> Vec<i32> {
    let program = |pid: &i32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let own = program(&launcher);
    host::children(launcher).into_iter().filter(|child| program(child) == own).collect()
}

fn refused(host: &mut Host) {
    let mut source = Context::start(host, "from");
    host.launch("to");
    let cases = [
        ("f = open('/workspace/x', 'w')", "f.close()", "an open file /workspace/x"),
        ("import socket; f = socket.socket()", "f.close()", "a socket"),
        (
            "import subprocess; f = subprocess.Popen(['/bin/sleep', '99'])",
            "f.kill(); f.wait()",
            "child processes",
        ),
        (
            "import threading; e = threading.Event(); t = threading.Thread(target=e.wait); t.start()",
            "e.set(); t.join()",
            "2 threads",
        ),
    ];
    for (make, undo, words) in cases {
        source.cell(host, make);
        let refusal = source.fork_into(host, "to").err().unwrap();
        assert!(refusal.message.contains(words), "{make}: {refusal:?}");
        source.cell(host, undo);
    }
    let (mut copy, _) = source.fork_into(host, "to").unwrap();
    assert_eq!(copy.cell(host, "e.is_set()"), "True");
}

fn numbers(host: &mut Host) {
    let mut source = Context::start(host, "from");
    source.cell(host, "import os, threading, signal\nnumber = os.getpid()");
    host.launch("to");
    // Others were there before.
    for _ in 0..3 {
        host.python("to", None, "pass");
    }
    let (mut copy, _) = source.fork_into(host, "to").unwrap();
    assert_eq!(copy.cell(host, "number == os.getpid()"), "False");
    copy.cell(host, "signal.signal(signal.SIGUSR1, lambda *_: None); signal.raise_signal(signal.SIGUSR1)");
    assert_eq!(
        copy.cell(host, "t = threading.Thread(target=int); t.start(); t.join(); threading.active_count()"),
        "1"
    );
}
