//! Programs that a warm interpreter runs: they must not be told from others, but by their parent, which is outside.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use sandstorm_provider::{
    AttachFrom, Collected, CreateOptions, EndCause, ExecEvent, ExecRequest, ExecSignal, ExecStatus, Provider,
    ProviderExt, Stdin,
};
use sandstorm_types::{
    ByteSize, Enforcement, ErrorKind, ExecId, LimitName, LimitSet, Limits, SandboxId, SandboxSpec, State,
    Stream, Transition,
};

use crate::Case;
use crate::place::{Host, PATIENCE, PYTHON, Place, kill, life, until};

pub(crate) const CASES: &[Case] = &[
    ("a_guest_runs_a_program_as_a_process_of_its_own_does", as_a_process_of_its_own),
    ("what_a_guest_cannot_run_runs_as_ever", what_a_guest_cannot_run_runs_as_ever),
    ("a_guest_is_signalled_and_ended", a_guest_is_signalled_and_ended),
    ("a_guest_has_a_channel_of_its_own", a_guest_has_a_channel_of_its_own),
    ("a_guest_that_lasts_is_taken_over", a_guest_that_lasts_is_taken_over),
    ("a_guest_stands_still_with_its_sandbox", a_guest_stands_still_with_its_sandbox),
    ("memory_of_guests_is_put_down_to_the_right_one", memory_is_put_down_to_the_right_one),
    ("many_guests_run_at_once", many_guests_run_at_once),
    ("a_dead_zygote_is_replaced", a_dead_zygote_is_replaced),
    ("guests_are_quicker", guests_are_quicker),
];

/// Tells a guest from a child of the agent.
const PARENT: &str = "import os; print(os.getppid())";

fn request(code: &str) -> ExecRequest {
    let mut request = ExecRequest::program([PYTHON, "main.py", "an argument"]);
    for name in ["PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONUTF8"] {
        request.env.insert(name.parse().unwrap(), "1".to_owned()).unwrap();
    }
    request.files = vec![("/workspace/main.py".parse().unwrap(), Bytes::from(code.to_owned()))];
    request
}

fn lasting(code: &str) -> ExecRequest {
    ExecRequest { background: true, lasting: true, ..request(code) }
}

async fn run(host: &Host, sandbox: &SandboxId, code: &str) -> Collected {
    collect(host, sandbox, request(code)).await
}

async fn collect(host: &Host, sandbox: &SandboxId, request: ExecRequest) -> Collected {
    host.provider.exec_collect(&host.cx, sandbox, request).await.unwrap()
}

async fn begin(host: &Host, sandbox: &SandboxId, request: ExecRequest) -> ExecId {
    host.provider.exec(&host.cx, sandbox, request).await.unwrap().id
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A sandbox in which guests can be had. The first one has to wait for its zygote, and nobody waits for that.
async fn warm(host: &Host, limits: Limits) -> SandboxId {
    let spec = SandboxSpec { enforcement: Enforcement::BestEffort, limits, ..SandboxSpec::default() };
    let sandbox = host.provider.create(&host.cx, &spec, CreateOptions::default()).await.unwrap().id;
    let give_up = Instant::now() + PATIENCE;
    while text(&run(host, &sandbox, PARENT).await.stdout) != "0\n" {
        assert!(Instant::now() < give_up, "there are no guests");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    sandbox
}

/// Guests need a launcher that may enter any jail.
fn can_be_had(place: &Place) -> bool {
    place.zygotes.set(true);
    rustix::process::geteuid().is_root()
}

async fn ends_without_a_trace(host: &Host, sandbox: &SandboxId) {
    if !host.groups {
        return;
    }
    // Its first process stays.
    until("no process is left", || host.processes(sandbox).len() <= 1).await;
}

/// What a program sees of itself and of its surroundings.
const LOOK: &str = r#"
import os, sys
print(sys.argv, os.getcwd(), sorted(os.environ.items()))
print(sorted(os.listdir("/proc/self/fd"))[:3], len(os.listdir("/proc/self/fd")))
print(os.getuid(), os.getgid(), os.getgroups(), os.umask(0), os.getpgid(0) == os.getpid() == os.getsid(0))
wanted = ("Cap", "NoNewPrivs", "Seccomp:", "SigBlk", "SigIgn", "SigCgt")
print([line for line in open("/proc/self/status").read().splitlines() if line.startswith(wanted)])
print([os.readlink("/proc/self/ns/" + kind) for kind in ("pid", "mnt", "net", "ipc", "uts", "user", "cgroup")])
print(open("/proc/self/cgroup").read(), open("/proc/self/limits").read(), open("/proc/self/oom_score_adj").read())
print(sys.stdin.read(), file=sys.stderr)
sys.exit(7)
"#;

fn as_a_process_of_its_own(place: &Place) {
    if !can_be_had(place) {
        return;
    }
    place.live(life!(|host| {
        let sandbox = warm(host, Limits::default()).await;
        let look = |cold: bool| {
            let mut request = request(LOOK);
            request.stdin = Stdin::Given(Bytes::from("given ".repeat(10_000)));
            request.cwd = Some("/tmp".parse().unwrap());
            if cold {
                // A variable that an interpreter reads when it starts.
                request.env.insert("PYTHONHASHSEED".parse().unwrap(), "random".to_owned()).unwrap();
            }
            request.command = sandstorm_provider::Command::Program(
                [PYTHON, "/workspace/main.py", "-x", ""].map(str::to_owned).to_vec(),
            );
            request
        };
        let (guest, own) =
            (collect(host, &sandbox, look(false)).await, collect(host, &sandbox, look(true)).await);
        let own_words = text(&own.stdout).replace(", ('PYTHONHASHSEED', 'random')", "");
        assert_eq!(text(&guest.stdout), own_words);
        assert_eq!(guest.stderr, own.stderr);
        assert_eq!(guest.stderr.len(), 60_001);
        assert_eq!((guest.end.status, guest.end.cause), (ExecStatus::Code(7), EndCause::Program));
        // It dies of its own signal, and of an exception, as ever.
        let died = run(host, &sandbox, "import os; os.kill(os.getpid(), 15)").await.end;
        assert_eq!((died.status, died.cause), (ExecStatus::Signal(15), EndCause::Program));
        let failed = run(host, &sandbox, "1 / 0").await;
        assert_eq!(failed.end.status, ExecStatus::Code(1));
        assert!(text(&failed.stderr).contains("line 1, in <module>\n    1 / 0\n"), "{failed:?}");
        // What is too large to go with the job, and what is too large for one message.
        for size in [100_000, 300_000] {
            let mut request = request("print(len(open('large').read()))");
            request.files.push(("/workspace/large".parse().unwrap(), Bytes::from(vec![b'x'; size])));
            assert_eq!(text(&collect(host, &sandbox, request).await.stdout), format!("{size}\n"));
        }
        ends_without_a_trace(host, &sandbox).await;
    }));
}

fn what_a_guest_cannot_run_runs_as_ever(place: &Place) {
    if !can_be_had(place) {
        return;
    }
    place.live(life!(|host| {
        let sandbox = warm(host, Limits::default()).await;
        let on_the_line = ExecRequest::program([PYTHON, "-c", PARENT]);
        assert_eq!(text(&collect(host, &sandbox, on_the_line).await.stdout), "1\n");
        let bare = ExecRequest { env: Default::default(), ..request(PARENT) };
        assert_eq!(text(&collect(host, &sandbox, bare).await.stdout), "1\n", "it would not be buffered");
        assert_eq!(host.output(&sandbox, "echo $PPID").await, "1\n");
        // A job that fails is told as it is elsewhere.
        let nowhere = ExecRequest { cwd: Some("/nowhere".parse().unwrap()), ..request(PARENT) };
        let error = host.provider.exec(&host.cx, &sandbox, nowhere).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
        let mut unwritable = request(PARENT);
        unwritable.files.push(("/usr/x".parse().unwrap(), Bytes::new()));
        let error = host.provider.exec(&host.cx, &sandbox, unwritable).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileSystem, "{error}");
        assert_eq!(text(&run(host, &sandbox, PARENT).await.stdout), "0\n");
        ends_without_a_trace(host, &sandbox).await;
    }));
}

fn a_guest_is_signalled_and_ended(place: &Place) {
    if !can_be_had(place) {
        return;
    }
    place.live(life!(|host| {
        let sandbox = warm(host, Limits::default()).await;
        let children = "import subprocess, time\nsubprocess.Popen(['sleep', '100'])\nprint('on')\n";
        // By its time.
        let slow = ExecRequest {
            timeout: Some(Duration::from_millis(300)),
            ..request(&format!("{children}time.sleep(100)"))
        };
        let end = collect(host, &sandbox, slow).await.end;
        assert_eq!((end.status, end.cause), (ExecStatus::Signal(9), EndCause::Limit(LimitName::Wall)));
        ends_without_a_trace(host, &sandbox).await;
        // By what it writes.
        let loud = ExecRequest { output: Some(ByteSize::kib(1)), ..request("while True: print('x' * 1000)") };
        let done = collect(host, &sandbox, loud).await;
        assert_eq!(done.end.cause, EndCause::Limit(LimitName::Output));
        assert_eq!((done.stdout.len(), done.end.truncated.stdout), (1024, true));
        // By a signal, to which it may have an answer.
        let answer = "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(5))\nprint('on')\ntime.sleep(100)";
        for (code, signal, status, cause) in [
            (answer, ExecSignal::Terminate, ExecStatus::Code(5), EndCause::Program),
            ("import time\nprint('on')\ntime.sleep(100)", ExecSignal::Interrupt, ExecStatus::Signal(2), EndCause::Caller),
            ("import time\nprint('on')\ntime.sleep(100)", ExecSignal::Kill, ExecStatus::Signal(9), EndCause::Caller),
        ] {
            let mut exec = host.provider.exec(&host.cx, &sandbox, request(code)).await.unwrap();
            while !matches!(exec.events.next().await.unwrap().unwrap(), ExecEvent::Output { .. }) {}
            host.provider.signal(&host.cx, &exec.id, signal).await.unwrap();
            let end = exec.collect().await.unwrap().end;
            assert_eq!((end.status, end.cause), (status, cause));
        }
        // By nobody listening any more.
        let mut exec = host.provider.exec(&host.cx, &sandbox, request(&format!("{children}time.sleep(100)"))).await.unwrap();
        while !matches!(exec.events.next().await.unwrap().unwrap(), ExecEvent::Output { .. }) {}
        drop(exec);
        ends_without_a_trace(host, &sandbox).await;
    }));
}

fn a_guest_has_a_channel_of_its_own(place: &Place) {
    const ECHO: &str = "import os\nprint('before', os.getppid())\n\
                while (said := os.read(3, 65536)):\n    os.write(3, said.upper())\n";
    if !can_be_had(place) {
        return;
    }
    place.live(life!(|host| {
        let sandbox = warm(host, Limits::default()).await;
        let mut exec = host
            .provider
            .exec(&host.cx, &sandbox, ExecRequest { channel: true, ..request(ECHO) })
            .await
            .unwrap();
        let channel = exec.channel.take().unwrap();
        channel.send("one ".repeat(100_000)).await.unwrap();
        let (mut said, mut printed) = (Vec::new(), Vec::new());
        while said.len() < 400_000 {
            match exec.events.next().await.unwrap().unwrap() {
                ExecEvent::Channel { bytes, .. } => said.extend_from_slice(&bytes),
                ExecEvent::Output { stream: Stream::Stdout, bytes, .. } => {
                    assert!(said.is_empty(), "what was printed before comes before");
                    printed.extend_from_slice(&bytes);
                }
                _ => {}
            }
        }
        assert_eq!(printed, b"before 0\n");
        assert_eq!(said, "ONE ".repeat(100_000).as_bytes());
        channel.close().await;
        assert_eq!(exec.collect().await.unwrap().end.status, ExecStatus::Code(0));
        // Without one there is nothing at that place.
        let closed =
            run(host, &sandbox, "import os\ntry: os.fstat(3)\nexcept OSError as e: print(e.errno)").await;
        assert_eq!(text(&closed.stdout), "9\n");
    }));
}

fn a_guest_that_lasts_is_taken_over(place: &Place) {
    const COUNTING: &str = "import os, time\nprint(os.getppid())\n\
                    for n in range(40000): print(n)\n\
                    while not os.path.exists('go'): time.sleep(0.01)\n\
                    print('end')\nraise SystemExit(9)\n";
    if !can_be_had(place) {
        return;
    }
    let host = place.fork_host(life!(|host| {
        let sandbox = warm(host, Limits::default()).await;
        host.tell("sandbox", sandbox);
        let gone = begin(
            host,
            &sandbox,
            ExecRequest { background: true, ..request("import time; time.sleep(100)") },
        );
        host.tell("gone", gone.await);
        host.tell("exec", begin(host, &sandbox, lasting(COUNTING)).await);
    }));
    place.note("exec");
    std::thread::sleep(Duration::from_millis(30));
    kill(host);
    std::thread::sleep(Duration::from_millis(100));
    place.live(life!(|host| {
        let sandbox: SandboxId = host.told("sandbox").parse().unwrap();
        let exec: ExecId = host.told("exec").parse().unwrap();
        assert_eq!(host.provider.adopt().await.unwrap(), [sandbox]);
        host.output(&sandbox, "touch go").await;
        let done = host.whole(&exec).await;
        let wanted: String = (0..40000).map(|n| format!("{n}\n")).collect();
        assert_eq!(text(&done.stdout), format!("0\n{wanted}end\n"));
        assert_eq!((done.end.status, done.end.cause), (ExecStatus::Code(9), EndCause::Program));
        let other = host.whole(&host.told("gone").parse().unwrap()).await.end;
        assert_eq!(other.cause, EndCause::Caller, "what does not last went with its host");
        ends_without_a_trace(host, &sandbox).await;
        // There are guests for the new host as well.
        let give_up = Instant::now() + PATIENCE;
        while text(&run(host, &sandbox, PARENT).await.stdout) != "0\n" {
            assert!(Instant::now() < give_up, "there are no guests");
        }
    }));
}

fn a_guest_stands_still_with_its_sandbox(place: &Place) {
    if !can_be_had(place) {
        return;
    }
    place.live(life!(|host| {
        if !host.provider.capabilities().pause {
            return;
        }
        let sandbox = warm(host, Limits::default()).await;
        let ticking = "import time\nwhile True:\n    print('tick')\n    time.sleep(0.01)\n";
        let exec = begin(host, &sandbox, lasting(ticking)).await;
        let mut begun = host.provider.attach(&host.cx, &exec, AttachFrom::START).await.unwrap().events;
        while !matches!(begun.next().await.unwrap().unwrap(), ExecEvent::Output { .. }) {}
        let paused = host.provider.transition(&host.cx, &sandbox, Transition::Pause).await.unwrap();
        assert_eq!(paused.state, State::Paused);
        let count = || async {
            let attached = host.provider.attach(&host.cx, &exec, AttachFrom::START).await.unwrap().events;
            let quiet = tokio::time::timeout(Duration::from_millis(150), attached.count()).await;
            assert!(quiet.is_err(), "it ended");
            let kept = host.provider.attach(&host.cx, &exec, AttachFrom::START).await.unwrap();
            kept.events.ready_chunks(100_000).next().await.unwrap().len()
        };
        // What it said before may still be on its way; what moves is never counted twice with the same result.
        let give_up = Instant::now() + PATIENCE;
        let mut before = count().await;
        loop {
            match count().await {
                now if now == before => break,
                now => before = now,
            }
            assert!(Instant::now() < give_up, "it moves");
        }
        host.provider.transition(&host.cx, &sandbox, Transition::Resume).await.unwrap();
        let give_up = Instant::now() + PATIENCE;
        while count().await == before {
            assert!(Instant::now() < give_up, "it does not go on");
        }
        assert_eq!(text(&run(host, &sandbox, PARENT).await.stdout), "0\n");
        host.provider.signal(&host.cx, &exec, ExecSignal::Kill).await.unwrap();
        assert_eq!(host.whole(&exec).await.end.cause, EndCause::Caller);
    }));
}

fn memory_is_put_down_to_the_right_one(place: &Place) {
    const EAT: &str = "x = []\nwhile True: x.append(bytearray(1 << 20))";
    if !can_be_had(place) {
        return;
    }
    place.live(life!(|host| {
        if !host.groups {
            return;
        }
        let sandbox = warm(host, Limits { memory: ByteSize::mib(64), ..Limits::default() }).await;
        let waiting =
            "import os, time\nwhile not os.path.exists('done'): time.sleep(0.02)\nraise SystemExit(3)";
        let bystander = begin(host, &sandbox, lasting(waiting)).await;
        for _ in 0..3 {
            let end = run(host, &sandbox, EAT).await.end;
            assert_eq!((end.status, end.cause), (ExecStatus::Signal(9), EndCause::Limit(LimitName::Memory)));
            // The next one is not blamed for it, however it ends and however soon it begins.
            let next = run(host, &sandbox, "raise SystemExit(137)").await.end;
            let clean = (ExecStatus::Code(137), EndCause::Program, LimitSet::EMPTY);
            assert_eq!((next.status, next.cause, next.limits_hit), clean);
            let killed = run(host, &sandbox, "import os; os.kill(os.getpid(), 9)").await.end;
            assert_eq!((killed.status, killed.cause), (ExecStatus::Signal(9), EndCause::Program));
        }
        host.output(&sandbox, "touch done").await;
        let end = host.whole(&bystander).await.end;
        assert_eq!((end.status, end.cause), (ExecStatus::Code(3), EndCause::Program));
    }));
}

fn many_guests_run_at_once(place: &Place) {
    if !can_be_had(place) {
        return;
    }
    place.live(life!(|host| {
        let limits = Limits { processes: 100, memory: ByteSize::mib(512), ..Limits::default() };
        let sandbox = warm(host, limits).await;
        let all = (0..50).map(|n| async move {
            let mut request = request(&format!(
                "import os, sys, time\ntime.sleep(0.2)\nprint({n}, os.getppid(), sys.stdin.read())"
            ));
            request.files[0].0 = format!("/workspace/main{n}.py").parse().unwrap();
            request.command =
                sandstorm_provider::Command::Program(vec![PYTHON.to_owned(), format!("main{n}.py")]);
            request.stdin = Stdin::Given(Bytes::from(format!("in {n}")));
            let done = collect(host, &sandbox, request).await;
            assert_eq!(text(&done.stdout), format!("{n} 0 in {n}\n"), "{done:?}");
        });
        futures_util::future::join_all(all).await;
        ends_without_a_trace(host, &sandbox).await;
    }));
}

fn a_dead_zygote_is_replaced(place: &Place) {
    if !can_be_had(place) {
        return;
    }
    place.live(life!(|host| {
        let sandbox = warm(host, Limits::default()).await;
        let children = format!("/proc/{0}/task/{0}/children", host.launcher);
        let is_zygote = |pid: &i32| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.starts_with(PYTHON)
        };
        let children = std::fs::read_to_string(children).unwrap_or_default();
        let zygotes: Vec<i32> =
            children.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(is_zygote).collect();
        assert!(!zygotes.is_empty(), "there is no zygote among {children}");
        let lives = begin(host, &sandbox, lasting("import time\ntime.sleep(0.5)\nprint('alive')")).await;
        for zygote in zygotes {
            let pid = rustix::process::Pid::from_raw(zygote).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        // Programs run meanwhile, in whichever way, and in guests again after a while.
        let give_up = Instant::now() + PATIENCE;
        loop {
            match text(&run(host, &sandbox, PARENT).await.stdout).as_str() {
                "0\n" => break,
                "1\n" => assert!(Instant::now() < give_up, "there are no guests"),
                other => panic!("{other}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(text(&host.whole(&lives).await.stdout), "alive\n", "a guest does not need its zygote");
    }));
}

/// Prints how long programs take in each way. Figures are for people; that a guest is not slower is all that is asked.
fn guests_are_quicker(place: &Place) {
    if !can_be_had(place) {
        return;
    }
    place.live(life!(|host| {
        let sandbox = warm(host, Limits::default()).await;
        // One of each in turn, so that both have the same machine, however busy it is.
        let mut times = [(); 2].map(|()| (Vec::new(), Vec::new()));
        for _ in 0..60 {
            for (cold, (first, whole)) in [false, true].into_iter().zip(&mut times) {
                let mut request = request("print(1)");
                if cold {
                    request.env.insert("PYTHONHASHSEED".parse().unwrap(), "random".to_owned()).unwrap();
                }
                let began = Instant::now();
                let mut exec = host.provider.exec(&host.cx, &sandbox, request).await.unwrap();
                while !matches!(exec.events.next().await.unwrap().unwrap(), ExecEvent::Output { .. }) {}
                first.push(began.elapsed());
                exec.collect().await.unwrap();
                whole.push(began.elapsed());
            }
        }
        for ((first, whole), way) in times.iter_mut().zip(["guest put in", "own process"]) {
            first.sort_unstable();
            whole.sort_unstable();
            println!("  {way}: first byte {:?}, whole {:?} (p50 of 60)", first[30], whole[30]);
        }
        assert!(times[0].1[30] < times[1].1[30], "a guest is no quicker");
    }));
}
