//! Sandboxes that were made before anybody asked for them.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use rustix::process::{Pid, Signal};
use sandstorm_engine::PoolConfig;
use sandstorm_provider::{
    Collected, CreateOptions, EndCause, ExecRequest, ExecStatus, Expected, OpContext, Provider,
    ProviderEvent, ProviderExt, Sandbox,
};
use sandstorm_types::{
    ByteSize, Enforcement, ErrorKind, GuestPath, Lifetime, LimitName, Limits, NetworkPolicy, OnEnd,
    SandboxId, SandboxSpec, TenantId,
};

use crate::Case;
use crate::place::{Host, PATIENCE, PYTHON, Place, eventually, kill, life, until};

pub(crate) const CASES: &[Case] = &[
    ("a_sandbox_that_was_ready_is_like_any_other", a_sandbox_that_was_ready_is_like_any_other),
    ("what_waits_for_one_tenant_is_never_anothers", what_waits_for_one_tenant_is_never_anothers),
    ("what_waits_too_long_is_replaced", what_waits_too_long_is_replaced),
    ("a_drained_pool_leaves_nothing", a_drained_pool_leaves_nothing),
    ("one_that_died_while_it_waited_is_not_given", one_that_died_while_it_waited_is_not_given),
    ("a_killed_host_leaves_nothing_that_waited", a_killed_host_leaves_nothing_that_waited),
    ("a_flood_is_served_and_bounded", a_flood_is_served_and_bounded),
    ("one_that_was_ready_is_taken_over", one_that_was_ready_is_taken_over),
    ("one_that_was_ready_meets_its_limits", one_that_was_ready_meets_its_limits),
    ("one_that_was_ready_has_a_network_of_its_own", one_that_was_ready_has_a_network_of_its_own),
    ("the_pool_comes_back_with_the_launcher", the_pool_comes_back_with_the_launcher),
    ("an_interpreter_waits_for_a_run", an_interpreter_waits_for_a_run),
    ("a_program_cannot_speak_for_its_interpreter", a_program_cannot_speak_for_its_interpreter),
    ("a_program_cannot_take_back_that_it_began", a_program_cannot_take_back_that_it_began),
    ("what_the_last_program_leaves_is_ended", what_the_last_program_leaves_is_ended),
    ("what_was_said_ahead_is_ready_at_the_first_request", what_was_said_ahead_is_ready_at_the_first_request),
    ("the_suite_passes_with_a_pool", the_suite_passes_with_a_pool),
];

pub(crate) const POOL: PoolConfig =
    PoolConfig { max: 8, memory: 256 << 20, max_age: Duration::from_secs(60) };

fn spec() -> SandboxSpec {
    SandboxSpec { enforcement: Enforcement::BestEffort, ..SandboxSpec::default() }
}

fn for_a_run() -> CreateOptions {
    CreateOptions { ephemeral: true, ..CreateOptions::default() }
}

fn tenant(n: u128) -> OpContext {
    OpContext::new(TenantId::from_bits(n))
}

/// Asks once, so that there is demand, and waits until something is ready.
async fn warm_up(host: &Host, spec: &SandboxSpec, options: CreateOptions) {
    let first = host.provider.create(&host.cx, spec, options).await.unwrap().id;
    host.provider.destroy(&host.cx, &first).await.unwrap();
    until("something is ready", || host.provider.ready() > 0).await;
}

/// Makes one that must have been ready: its jail is older than the sandbox.
async fn take(host: &Host, spec: &SandboxSpec, options: CreateOptions) -> Sandbox {
    let made = host.provider.create(&host.cx, spec, options).await.unwrap();
    assert_ne!(host.provider.jail(&made.id).unwrap(), made.id.bare(), "nothing was ready");
    made
}

async fn run(host: &Host, sandbox: &SandboxId, line: &str) -> Collected {
    host.provider.exec_collect(&host.cx, sandbox, ExecRequest::shell(line)).await.unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The first processes of all jails of a launcher.
fn jails(launcher: u32) -> HashSet<i32> {
    let children =
        fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).unwrap_or_default();
    let is_first = |pid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let inside = status.lines().find(|line| line.starts_with("NSpid:")).unwrap_or_default();
        inside.split_whitespace().next_back() == Some("1")
    };
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(is_first).collect()
}

fn a_sandbox_that_was_ready_is_like_any_other(place: &Place) {
    place.pool.set(Some(POOL));
    place.live(life!(|host| {
        let cold = CreateOptions { pooled: false, ..for_a_run() };
        let cold = host.provider.create(&host.cx, &spec(), cold).await.unwrap();
        assert_eq!(host.provider.jail(&cold.id).unwrap(), cold.id.bare());
        warm_up(host, &spec(), for_a_run()).await;
        let warm = take(host, &spec(), for_a_run()).await;
        assert_eq!((&warm.walls, &warm.state, &warm.limits), (&cold.walls, &cold.state, &cold.limits));
        for sandbox in [cold.id, warm.id] {
            assert_eq!(
                text(&run(host, &sandbox, "echo $((6*7)); id -u; ls -A /workspace /tmp").await.stdout),
                { "42\n1000\n/tmp:\n\n/workspace:\n" }
            );
            let usage = host.provider.usage(&host.cx, &sandbox).await.unwrap();
            assert!(!host.groups || usage.memory.as_u64() > 0);
            host.provider.destroy(&host.cx, &sandbox).await.unwrap();
            assert_eq!(host.processes(&sandbox), []);
        }
        // Kept ones come from the same shelf: whether one is kept is said when it is taken.
        until("another is ready", || host.provider.ready() > 0).await;
        let kept = take(host, &spec(), CreateOptions::default()).await;
        assert_eq!(text(&run(host, &kept.id, "echo kept").await.stdout), "kept\n");
    }));
}

fn what_waits_for_one_tenant_is_never_anothers(place: &Place) {
    place.pool.set(Some(POOL));
    place.live(life!(|host| {
        let (one, two) = (tenant(1), tenant(2));
        let mut seen = [HashSet::new(), HashSet::new()];
        let mut hits = 0;
        for _ in 0..15 {
            for (cx, seen) in [&one, &two].into_iter().zip(&mut seen) {
                let made = host.provider.create(cx, &spec(), for_a_run()).await.unwrap().id;
                let jail = host.provider.jail(&made).unwrap();
                hits += u32::from(jail != made.bare());
                // Used once, and never again by anybody.
                assert!(seen.insert(jail));
                run(host, &made, "echo mine > /tmp/mine").await;
                host.provider.destroy(cx, &made).await.unwrap();
            }
        }
        assert!(hits > 0, "nothing was ever ready");
        assert!(seen[0].is_disjoint(&seen[1]));
        // Ready for one is not ready for the other.
        until("something is ready", || host.provider.ready() > 0).await;
        let third = host.provider.create(&tenant(3), &spec(), for_a_run()).await.unwrap().id;
        assert_eq!(host.provider.jail(&third).unwrap(), third.bare());
    }));
}

fn what_waits_too_long_is_replaced(place: &Place) {
    place.pool.set(Some(PoolConfig { max_age: Duration::from_secs(2), ..POOL }));
    place.live(life!(|host| {
        warm_up(host, &spec(), for_a_run()).await;
        let before = jails(host.launcher);
        assert!(!before.is_empty());
        until("others wait in their place", || {
            let after = jails(host.launcher);
            !after.is_empty() && before.is_disjoint(&after)
        })
        .await;
    }));
}

fn a_drained_pool_leaves_nothing(place: &Place) {
    place.pool.set(Some(POOL));
    place.live(life!(|host| {
        warm_up(host, &spec(), for_a_run()).await;
        host.provider.drain_pool().await;
        assert_eq!(host.provider.ready(), 0);
        until("every jail is gone", || jails(host.launcher).is_empty()).await;
        for _ in 0..3 {
            let made = host.provider.create(&host.cx, &spec(), for_a_run()).await.unwrap().id;
            assert_eq!(host.provider.jail(&made).unwrap(), made.bare());
            host.provider.destroy(&host.cx, &made).await.unwrap();
        }
        until("every jail is gone", || jails(host.launcher).is_empty()).await;
    }));
}

fn one_that_died_while_it_waited_is_not_given(place: &Place) {
    place.pool.set(Some(POOL));
    place.live(life!(|host| {
        for kept in [false, true] {
            let options = || CreateOptions { ephemeral: !kept, ..CreateOptions::default() };
            warm_up(host, &spec(), options()).await;
            let killed = jails(host.launcher);
            for pid in &killed {
                let _ = rustix::process::kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL);
            }
            // One that dies in the very moment in which it is taken is a sandbox that died: the news has to be here.
            until("the launcher knows", || jails(host.launcher).is_disjoint(&killed)).await;
            // What the launcher says comes in order: whoever has heard of this one has heard of those.
            let cold = CreateOptions { pooled: false, ..for_a_run() };
            let cold = host.provider.create(&host.cx, &spec(), cold).await.unwrap().id;
            host.provider.destroy(&host.cx, &cold).await.unwrap();
            let made = host.provider.create(&host.cx, &spec(), options()).await.unwrap().id;
            assert_eq!(text(&run(host, &made, "echo alive").await.stdout), "alive\n");
            host.provider.destroy(&host.cx, &made).await.unwrap();
        }
    }));
}

fn a_killed_host_leaves_nothing_that_waited(place: &Place) {
    place.pool.set(Some(POOL));
    let host = place.fork_host(life!(|host| {
        warm_up(host, &spec(), for_a_run()).await;
        host.tell("launcher", host.launcher);
        host.tell("ready", host.provider.ready());
    }));
    place.note("ready");
    let launcher: u32 = place.note("launcher").parse().unwrap();
    assert!(!jails(launcher).is_empty());
    kill(host);
    eventually("no jail outlives its host", || jails(launcher).is_empty());
    assert!(Path::new(&format!("/proc/{launcher}")).exists());
    place.pool.set(None);
    place.live(life!(|host| assert_eq!(host.provider.adopt().await.unwrap(), [])));
}

fn a_flood_is_served_and_bounded(place: &Place) {
    place.pool.set(Some(POOL));
    place.live(life!(|host| {
        let flood = tenant(1);
        let one = |n: u32| {
            let flood = &flood;
            async move {
                let made = host.provider.create(flood, &spec(), for_a_run()).await.unwrap().id;
                let said = run(host, &made, &format!("echo {n}")).await;
                assert_eq!(text(&said.stdout), format!("{n}\n"));
                host.provider.destroy(flood, &made).await.unwrap();
                assert!(host.provider.ready() <= POOL.max, "{} are ready", host.provider.ready());
                host.provider.jail(&made)
            }
        };
        futures_util::stream::iter(0..150).map(one).buffer_unordered(16).count().await;
        until("the pool is full", || host.provider.ready() == POOL.max).await;
        // Somebody else comes, and gets a part of it soon.
        for _ in 0..2 {
            let made = host.provider.create(&host.cx, &spec(), for_a_run()).await.unwrap().id;
            host.provider.destroy(&host.cx, &made).await.unwrap();
        }
        let give_up = Instant::now() + PATIENCE;
        loop {
            let made = host.provider.create(&host.cx, &spec(), for_a_run()).await.unwrap().id;
            let hit = host.provider.jail(&made).unwrap() != made.bare();
            host.provider.destroy(&host.cx, &made).await.unwrap();
            if hit {
                break;
            }
            assert!(Instant::now() < give_up, "whoever takes little gets nothing");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        until("it is within bounds", || jails(host.launcher).len() <= POOL.max + 1).await;
    }));
}

fn one_that_was_ready_is_taken_over(place: &Place) {
    place.pool.set(Some(POOL));
    let host = place.fork_host(life!(|host| {
        warm_up(host, &spec(), CreateOptions::default()).await;
        let lives = take(host, &spec(), CreateOptions::default()).await.id;
        run(host, &lives, "echo remembered > /workspace/note").await;
        until("another is ready", || host.provider.ready() > 0).await;
        let dies = take(host, &spec(), CreateOptions::default()).await.id;
        host.tell("dies", dies);
        host.tell("first", host.processes(&dies).iter().map(|pid| pid.as_raw_nonzero().get()).min().unwrap());
        host.tell("lives", lives);
    }));
    place.note("lives");
    let first: i32 = place.note("first").parse().unwrap();
    kill(host);
    rustix::process::kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
    eventually("the launcher knows of its end", || !Path::new(&format!("/proc/{first}")).exists());
    place.live(life!(|host| {
        let (lives, dies): (SandboxId, SandboxId) =
            (host.told("lives").parse().unwrap(), host.told("dies").parse().unwrap());
        let mut events = host.provider.events();
        assert_eq!(host.provider.adopt().await.unwrap(), [lives]);
        match events.next().await.unwrap() {
            ProviderEvent::Ended { sandbox, .. } => assert_eq!(sandbox, dies),
            other => panic!("{other:?}"),
        }
        assert_eq!(text(&run(host, &lives, "cat /workspace/note").await.stdout), "remembered\n");
        host.provider.destroy(&host.cx, &lives).await.unwrap();
        assert_eq!(host.processes(&lives), []);
    }));
    let left: Vec<_> = fs::read_dir(place.path("journals")).unwrap().flatten().map(|e| e.path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

fn one_that_was_ready_meets_its_limits(place: &Place) {
    place.pool.set(Some(POOL));
    place.live(life!(|host| {
        if !host.groups {
            return;
        }
        const EAT: &str = "x=0123456789abcdef; while :; do x=$x$x; done";
        let limits = Limits { memory: ByteSize::mib(64), ..Limits::default() };
        let small = SandboxSpec { limits, ..spec() };
        warm_up(host, &small, for_a_run()).await;
        let once = take(host, &small, for_a_run()).await.id;
        assert_eq!(run(host, &once, EAT).await.end.cause, EndCause::Limit(LimitName::Memory));
        until("the whole of it ended", || host.processes(&once).is_empty()).await;
        until("another is ready", || host.provider.ready() > 0).await;
        let kept = take(host, &small, CreateOptions::default()).await.id;
        assert_eq!(run(host, &kept, EAT).await.end.cause, EndCause::Limit(LimitName::Memory));
        assert_eq!(text(&run(host, &kept, "echo on").await.stdout), "on\n");
        // The launcher's own clock was set when it was taken.
        until("another is ready", || host.provider.ready() > 0).await;
        let lifetime = Lifetime { after: Duration::from_millis(200), then: OnEnd::Delete };
        let short = take(host, &SandboxSpec { lifetime, ..small.clone() }, for_a_run()).await.id;
        until("its lifetime is over", || host.processes(&short).is_empty()).await;
    }));
}

fn one_that_was_ready_has_a_network_of_its_own(place: &Place) {
    place.pool.set(Some(POOL));
    place.live(life!(|host| {
        let open = SandboxSpec { network: NetworkPolicy::Open, ..spec() };
        let Ok(first) = host.provider.create(&host.cx, &open, for_a_run()).await else {
            println!("  skipped: connections cannot be captured here");
            return;
        };
        host.provider.destroy(&host.cx, &first.id).await.unwrap();
        until("something is ready", || host.provider.ready() > 0).await;
        let warm = take(host, &open, for_a_run()).await;
        assert_eq!(warm.walls, first.walls);
        // A sandbox without a network is another kind.
        until("another is ready", || host.provider.ready() > 0).await;
        let made = host.provider.create(&host.cx, &spec(), for_a_run()).await.unwrap().id;
        assert_eq!(host.provider.jail(&made).unwrap(), made.bare());
        // A kept one that was ready can be given a network later.
        warm_up(host, &spec(), CreateOptions::default()).await;
        let kept = loop {
            let made = host.provider.create(&host.cx, &spec(), CreateOptions::default()).await.unwrap().id;
            if host.provider.jail(&made).unwrap() != made.bare() {
                break made;
            }
        };
        host.provider.set_network(&host.cx, &kept, NetworkPolicy::Open).await.unwrap();
        assert_eq!(text(&run(host, &kept, "echo on").await.stdout), "on\n");
    }));
}

fn the_pool_comes_back_with_the_launcher(place: &Place) {
    place.pool.set(Some(POOL));
    place.live(life!(|host| {
        warm_up(host, &spec(), for_a_run()).await;
        let launcher = Pid::from_raw(host.launcher.try_into().unwrap()).unwrap();
        rustix::process::kill_process(launcher, Signal::KILL).unwrap();
        // Until the loss is known, one is given that is gone, or there is nobody to make one.
        let give_up = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < give_up, "nothing is ready again");
            if let Ok(made) = host.provider.create(&host.cx, &spec(), for_a_run()).await {
                let was_ready = host.provider.jail(&made.id).is_some_and(|jail| jail != made.id.bare());
                let said =
                    host.provider.exec_collect(&host.cx, &made.id, ExecRequest::shell("echo again")).await;
                let _ = host.provider.destroy(&host.cx, &made.id).await;
                if was_ready && said.is_ok_and(|said| said.stdout == "again\n") {
                    break;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }));
}

fn for_python() -> CreateOptions {
    let expects = Some(Expected { interpreter: PYTHON.into(), modules: Vec::new() });
    CreateOptions { expects, ..for_a_run() }
}

fn program(path: &GuestPath, code: &str) -> ExecRequest {
    let mut request = ExecRequest::program(vec![PYTHON.to_owned(), path.to_string()]);
    for name in ["PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONUTF8"] {
        request.env.insert(name.parse().unwrap(), "1".to_owned()).unwrap();
    }
    request.files = vec![(path.clone(), code.to_owned().into())];
    request.last = true;
    request
}

fn an_interpreter_waits_for_a_run(place: &Place) {
    place.pool.set(Some(POOL));
    place.zygotes.set(true);
    place.live(life!(|host| {
        warm_up(host, &spec(), for_python()).await;
        let sandbox = take(host, &spec(), for_python()).await.id;
        let waiting = host.processes(&sandbox).len();
        let path: GuestPath = "/workspace/main.py".parse().unwrap();
        let code =
            "import os, sys\nprint(sys.argv, os.getpid(), os.getuid(), os.listdir('.'))\nsys.exit(5)\n";
        let done = host.provider.exec_collect(&host.cx, &sandbox, program(&path, code)).await.unwrap();
        assert_eq!(done.end.status, ExecStatus::Code(5), "{done:?}");
        let pid = if waiting > 1 { 2 } else { 3 };
        println!("  {waiting} processes waited; the program was {}", text(&done.stdout).trim());
        if rustix::process::geteuid().is_root() {
            assert_eq!(waiting, 2, "the agent and an interpreter wait");
            assert_eq!(
                text(&done.stdout),
                format!("['/workspace/main.py'] {pid} 1000 ['main.py']\n"),
                "{}",
                text(&done.stderr)
            );
        }
    }));
}

/// The last word of an interpreter goes over a socket that its program can write to. What it writes there is no word: the
/// program ends when and as it ends, at once or after a while.
fn a_program_cannot_speak_for_its_interpreter(place: &Place) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    place.pool.set(Some(POOL));
    place.zygotes.set(true);
    place.live(life!(|host| {
        warm_up(host, &spec(), for_python()).await;
        let path: GuestPath = "/workspace/main.py".parse().unwrap();
        let mut found = 0;
        for bad in ["b'x'", "b'\\0' * 7", "b'x' * 100", "b'\\0\\x10\\0\\0'"] {
            for pause in ["0", "0.05"] {
                let code = format!(
                    "import os, signal, sys, time\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\n\
                     try: os.write(1023, {bad})\nexcept OSError: print('nothing there')\n\
                     time.sleep({pause})\nprint('on')\nsys.exit(3)\n"
                );
                until("another is ready", || host.provider.ready() > 0).await;
                let sandbox = take(host, &spec(), for_python()).await.id;
                let done =
                    host.provider.exec_collect(&host.cx, &sandbox, program(&path, &code)).await.unwrap();
                assert_eq!(
                    (done.end.status, done.end.cause),
                    (ExecStatus::Code(3), EndCause::Program),
                    "{bad} {pause}: {done:?}"
                );
                found += u32::from(text(&done.stdout) == "on\n");
                host.provider.destroy(&host.cx, &sandbox).await.unwrap();
            }
        }
        assert!(found > 0, "none could write there");
    }));
}

/// Whoever hears that nothing was begun may begin it once more, here or elsewhere.
fn a_program_cannot_take_back_that_it_began(place: &Place) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    place.pool.set(Some(POOL));
    place.zygotes.set(true);
    place.live(life!(|host| {
        warm_up(host, &spec(), for_python()).await;
        let path: GuestPath = "/workspace/main.py".parse().unwrap();
        for step in ["guest", "fork", "streams", "interpreter", "elsewhere"] {
            // As an interpreter refuses a job: the length, an errno, the step.
            let code = format!(
                "import os, struct, sys, time\nstep = b'{step}'\n\
                 os.write(1023, struct.pack('<II', 4 + len(step), 12) + step)\n\
                 time.sleep(0.05)\nprint('on')\nsys.exit(3)\n"
            );
            until("another is ready", || host.provider.ready() > 0).await;
            let sandbox = take(host, &spec(), for_python()).await.id;
            match host.provider.exec_collect(&host.cx, &sandbox, program(&path, &code)).await {
                Ok(done) => assert_eq!(done.end.status, ExecStatus::Code(3), "{step}: {done:?}"),
                Err(error) => {
                    assert!(!error.is_not_started(), "{step}: {error:?}");
                    assert_ne!(error.kind(), ErrorKind::Capacity, "{step}: {error:?}");
                }
            }
            host.provider.destroy(&host.cx, &sandbox).await.unwrap();
        }
    }));
}

/// Also where nobody destroys the sandbox: quiet ones a moment later, and those that write at once, since their output
/// would never end.
fn what_the_last_program_leaves_is_ended(place: &Place) {
    place.pool.set(Some(POOL));
    place.zygotes.set(true);
    place.live(life!(|host| {
        warm_up(host, &spec(), for_python()).await;
        let path: GuestPath = "/workspace/main.py".parse().unwrap();
        for child in ["exec sleep 3600", "while :; do echo more; done"] {
            let code = format!(
                "import subprocess, sys\nprint('first', flush=True)\n\
                 subprocess.Popen(['/bin/sh', '-c', {child:?}])\nsys.exit(3)\n"
            );
            let sandbox = take(host, &spec(), for_python()).await.id;
            let done = host.provider.exec_collect(&host.cx, &sandbox, program(&path, &code)).await.unwrap();
            assert_eq!((done.end.status, done.end.cause), (ExecStatus::Code(3), EndCause::Program));
            assert!(text(&done.stdout).starts_with("first\n"), "{}", text(&done.stderr));
            until("only the agent is left", || host.processes(&sandbox).len() == 1).await;
        }
    }));
}

fn what_was_said_ahead_is_ready_at_the_first_request(place: &Place) {
    place.pool.set(Some(POOL));
    place.zygotes.set(true);
    place.live(life!(|host| {
        host.provider.keep_ready(host.cx.tenant(), &spec(), &for_python(), 3);
        until("three are ready", || host.provider.ready() == 3).await;
        take(host, &spec(), for_python()).await;
        take(host, &spec(), for_python()).await;
        until("three are ready again", || host.provider.ready() == 3).await;
    }));
}

fn the_suite_passes_with_a_pool(place: &Place) {
    place.pool.set(Some(POOL));
    place.zygotes.set(true);
    place.live(life!(|host| {
        let report = sandstorm_provider::conformance::run(&*host.provider).await;
        assert!(report.passed(), "{report}");
    }));
}
