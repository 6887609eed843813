//! Limits of sandboxes that live on: what one program did is not held against the next.

use std::time::Duration;

use futures_util::StreamExt;
use sandstorm_provider::{
    Collected, CreateOptions, EndCause, ExecRequest, ExecStatus, Provider, ProviderExt,
};
use sandstorm_types::{
    ByteSize, Enforcement, ErrorKind, Lifetime, LimitName, LimitSet, Limits, OnEnd, SandboxId, SandboxSpec,
    State,
};

use crate::Case;
use crate::faults::is_first;
use crate::place::{Host, Place, kill, life, until};

pub(crate) const CASES: &[Case] = &[
    ("memory_ends_a_program_and_not_its_sandbox", memory_ends_a_program_and_not_its_sandbox),
    ("memory_that_ran_out_without_a_host_is_told", memory_that_ran_out_without_a_host_is_told),
    ("memory_that_ends_the_agent_ends_the_sandbox", memory_that_ends_the_agent_ends_the_sandbox),
    ("a_run_ends_as_a_whole_for_memory", a_run_ends_as_a_whole_for_memory),
    ("a_full_space_ends_nobody", a_full_space_ends_nobody),
    ("what_the_space_leaves_is_not_for_programs", what_the_space_leaves_is_not_for_programs),
    ("refused_processes_are_not_held_against_the_next", refused_processes_are_not_held_against_the_next),
    ("the_launcher_has_no_clock_for_what_is_kept", the_launcher_has_no_clock_for_what_is_kept),
];

/// Takes memory until somebody puts an end to it.
const EAT: &str = "x=0123456789abcdef; while :; do x=$x$x; done";

async fn make(host: &Host, limits: Limits, ephemeral: bool) -> SandboxId {
    let spec = SandboxSpec { enforcement: Enforcement::BestEffort, limits, ..SandboxSpec::default() };
    let options = CreateOptions { ephemeral, ..CreateOptions::default() };
    host.provider.create(&host.cx, &spec, options).await.unwrap().id
}

async fn small(host: &Host) -> SandboxId {
    make(host, Limits { memory: ByteSize::mib(64), ..Limits::default() }, false).await
}

async fn run(host: &Host, sandbox: &SandboxId, line: &str) -> Collected {
    host.provider.exec_collect(&host.cx, sandbox, ExecRequest::shell(line)).await.unwrap()
}

fn clean(done: &Collected, status: i32) {
    let wanted = (ExecStatus::Code(status), EndCause::Program, LimitSet::EMPTY);
    assert_eq!((done.end.status, done.end.cause, done.end.limits_hit), wanted, "{done:?}");
}

const OVER_MEMORY: EndCause = EndCause::Limit(LimitName::Memory);

fn memory_ends_a_program_and_not_its_sandbox(place: &Place) {
    place.live(life!(|host| {
        if !host.groups {
            return;
        }
        let sandbox = small(host).await;
        let bystanders = [
            host.background(&sandbox, "while [ ! -e done ]; do sleep 0.05; done; echo fine").await,
            host.background(&sandbox, "while [ ! -e done ]; do sleep 0.05; done; exit 3").await,
        ];
        // A background program, as a context is one.
        let eater = host.background(&sandbox, EAT).await;
        let end = host.whole(&eater).await.end;
        assert_eq!((end.status, end.cause), (ExecStatus::Signal(9), OVER_MEMORY));
        // A shell that tells of its child's end by a code, and one to which it does not matter.
        let told = run(host, &sandbox, &format!("sh -c '{EAT}'; exit 7")).await.end;
        assert_eq!((told.status, told.cause), (ExecStatus::Code(7), OVER_MEMORY));
        let nevertheless = run(host, &sandbox, &format!("sh -c '{EAT}'; echo on")).await;
        assert_eq!(
            (nevertheless.end.status, nevertheless.end.cause),
            (ExecStatus::Code(0), EndCause::Program)
        );
        assert_eq!(nevertheless.end.limits_hit, LimitSet::EMPTY.with(LimitName::Memory));
        clean(&run(host, &sandbox, "echo clean").await, 0);
        // That nothing was counted is what tells these apart, not how they end.
        clean(&run(host, &sandbox, "exit 137").await, 137);
        let killed = run(host, &sandbox, "kill -9 $$").await.end;
        assert_eq!((killed.status, killed.cause), (ExecStatus::Signal(9), EndCause::Program));
        // The one that took memory and came to a good end is put down to nobody, so what is left is told to those who
        // ran at the time; another eater takes it upon itself.
        assert_eq!(run(host, &sandbox, EAT).await.end.cause, OVER_MEMORY);
        host.output(&sandbox, "touch done").await;
        for (bystander, status) in bystanders.iter().zip([0, 3]) {
            clean(&host.whole(bystander).await, status);
        }
        assert!(host.provider.get(&host.cx, &sandbox).await.unwrap().state.is_ready());
    }));
}

fn memory_that_ran_out_without_a_host_is_told(place: &Place) {
    let first = place.fork_host(life!(|host| {
        let sandbox = small(host).await;
        if host.groups {
            // An old kill, which must not be told again.
            assert_eq!(run(host, &sandbox, EAT).await.end.cause, OVER_MEMORY);
        }
        let wait = "while [ ! -e go ]; do sleep 0.05; done";
        host.tell("eater", host.background(&sandbox, &format!("{wait}; sleep 0.5; {EAT}")).await);
        host.tell("other", host.background(&sandbox, &format!("{wait}; sleep 2; kill -9 $$")).await);
        host.tell("groups", host.groups);
        host.output(&sandbox, "touch go").await;
        host.tell("gone", "");
    }));
    place.note("gone");
    kill(first);
    std::thread::sleep(Duration::from_millis(1200));
    place.live(life!(|host| {
        assert_eq!(host.provider.adopt().await.unwrap().len(), 1);
        if host.told("groups") != "true" {
            return;
        }
        let end = host.whole(&host.told("eater").parse().unwrap()).await.end;
        assert_eq!((end.status, end.cause), (ExecStatus::Signal(9), OVER_MEMORY));
        let other = host.whole(&host.told("other").parse().unwrap()).await.end;
        assert_eq!(other.status, ExecStatus::Signal(9));
    }));
}

fn memory_that_ends_the_agent_ends_the_sandbox(place: &Place) {
    place.live(life!(|host| {
        if !host.groups || !rustix::process::geteuid().is_root() {
            return;
        }
        let sandbox = small(host).await;
        let score = |pid: rustix::process::Pid| format!("/proc/{}/oom_score_adj", pid.as_raw_nonzero());
        let first = host.processes(&sandbox).into_iter().find(is_first).unwrap();
        let scores = host.output(&sandbox, "cat /proc/self/oom_score_adj").await;
        let agents: i32 = std::fs::read_to_string(score(first)).unwrap().trim().parse().unwrap();
        let payloads: i32 = scores.trim().parse().unwrap();
        assert!(0 <= agents && agents < payloads, "the agent goes first: {agents}, {payloads}");
        assert!(agents > 0, "the sandbox goes no sooner than the host's processes");
        let lower = run(host, &sandbox, "echo -1 > /proc/self/oom_score_adj").await;
        assert_ne!(lower.end.status, ExecStatus::Code(0), "a program hides behind the host's processes");
        if sandstorm_jail::landlock::kernel_abi() > 0 {
            let line = "echo 0 > /proc/self/oom_score_adj || cat /proc/self/oom_score_adj";
            let found = host.output(&sandbox, line).await;
            assert_eq!(found.trim(), payloads.to_string(), "a program hides behind those of other sandboxes");
        }
        // An old kill is not what ends it later.
        assert_eq!(run(host, &sandbox, EAT).await.end.cause, OVER_MEMORY);
        let mut events = host.provider.events();
        // Files count as memory of the sandbox and of no process, so that the agent weighs more than what eats, once both have
        // scores that only the host can give them.
        let wait = "until read s < /proc/$$/oom_score_adj && [ $s = 0 ]; do sleep 0.05; done";
        let shy = format!("{wait}; head -c 500M /dev/zero > /tmp/fill; {EAT}");
        let rank = async {
            let mut shell = None;
            until("the program runs", || {
                let others = host.processes(&sandbox).into_iter().filter(|pid| !is_first(pid));
                shell = others.min_by_key(|pid| pid.as_raw_nonzero());
                shell.is_some()
            })
            .await;
            std::fs::write(score(first), "1000").unwrap();
            std::fs::write(score(shell.unwrap()), "0").unwrap();
        };
        let (done, ()) = futures_util::future::join(run(host, &sandbox, &shy), rank).await;
        assert_eq!(done.end.cause, OVER_MEMORY);
        events.next().await.unwrap();
        let state = host.provider.get(&host.cx, &sandbox).await.unwrap().state;
        let State::Failed { reason } = state else { panic!("{state:?}") };
        assert!(reason.contains("Memory"), "{reason}");
    }));
}

fn a_run_ends_as_a_whole_for_memory(place: &Place) {
    place.live(life!(|host| {
        if !host.groups {
            return;
        }
        let limits = Limits { memory: ByteSize::mib(64), ..Limits::default() };
        let sandbox = make(host, limits, true).await;
        let mut events = host.provider.events();
        let done = run(host, &sandbox, &format!("sh -c '{EAT}'; sleep 20; echo on")).await;
        assert_eq!((done.end.cause, done.stdout.len()), (OVER_MEMORY, 0));
        events.next().await.unwrap();
        let state = host.provider.get(&host.cx, &sandbox).await.unwrap().state;
        assert!(matches!(state, State::Failed { .. }), "{state:?}");
    }));
}

/// More of everything than the memory limit of the programs, which is 64 MiB.
fn roomy() -> Limits {
    Limits { memory: ByteSize::mib(64), disk: ByteSize::mib(160), inodes: 20_000, ..Limits::default() }
}

fn a_full_space_ends_nobody(place: &Place) {
    place.live(life!(|host| {
        if !host.groups {
            return;
        }
        for ephemeral in [false, true] {
            let sandbox = make(host, roomy(), ephemeral).await;
            // As a context is one, with half of its memory.
            let held =
                "x=$(head -c 6M /dev/zero | tr '\\0' x); while [ ! -e /dev/shm/done ]; do sleep 0.05; done";
            let bystander = host.background(&sandbox, &format!("{held}; echo ${{#x}}")).await;
            // First as many files as there may be, each with a name that costs memory, then all bytes.
            let crowd = "n=$(head -c 200 /dev/zero | tr '\\0' n); i=0; \
                         while [ $i -lt 5000 ]; do i=$((i+1)); : > /tmp/$n$i || exit 9; done";
            clean(&run(host, &sandbox, crowd).await, 0);
            let full = run(host, &sandbox, "head -c 400M /dev/zero > full; echo $?; wc -c < full").await;
            assert_eq!(
                (full.end.status, full.end.cause),
                (ExecStatus::Code(0), EndCause::Program),
                "{full:?}"
            );
            assert_eq!(full.end.limits_hit, LimitSet::EMPTY.with(LimitName::Disk));
            let said = String::from_utf8(full.stdout.to_vec()).unwrap();
            let (status, size) = said.trim().split_once('\n').unwrap();
            assert_eq!(status, "1", "it was not refused: {said}");
            assert!(size.trim().parse::<u64>().unwrap() > 140 << 20, "{said}");
            let path = "/workspace/more".parse().unwrap();
            let body = vec![1; 8 << 20].into();
            let refused = host.provider.write_bytes(&host.cx, &sandbox, &path, body).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::FileSystem, "{refused}");
            // What programs may have is theirs although the space is full, and no more than that.
            let own = run(host, &sandbox, "x=$(head -c 4M /dev/zero | tr '\\0' x); echo ${#x}").await;
            assert_eq!((own.end.cause, &own.stdout[..]), (EndCause::Program, &b"4194304\n"[..]));
            if !ephemeral {
                assert_eq!(run(host, &sandbox, EAT).await.end.cause, OVER_MEMORY);
            }
            assert_eq!(host.output(&sandbox, "rm full; touch /dev/shm/done; echo on").await, "on\n");
            let end = host.whole(&bystander).await;
            assert_eq!((end.end.cause, &end.stdout[..]), (EndCause::Program, &b"6291456\n"[..]));
            assert!(host.provider.get(&host.cx, &sandbox).await.unwrap().state.is_ready());
        }
    }));
}

/// Takes some 160 MiB, which the programs and the space might have together, and then a little again and again.
const TAKE: &str = "x=$(head -c 10M /dev/zero | tr '\\0' x); y=$x$x$x$x; x=$y$y; while :; do z=$y; done";

fn what_the_space_leaves_is_not_for_programs(place: &Place) {
    place.live(life!(|host| {
        if !host.groups {
            return;
        }
        let limits = Limits { disk: ByteSize::mib(512), ..roomy() };
        let sandbox = make(host, limits, false).await;
        for _ in 0..2 {
            assert_eq!(run(host, &sandbox, TAKE).await.end.cause, OVER_MEMORY);
            // All of it is there for files again.
            let whole = "head -c 400M /dev/zero > file && rm file; echo $?";
            assert_eq!(host.output(&sandbox, whole).await, "0\n");
        }
        // A file that is in memory only is no file of the space.
        let hidden = "exec 9<>/dev/shm/file; rm /dev/shm/file; head -c 400M /dev/zero >&9; echo $?";
        assert_eq!(host.output(&sandbox, hidden).await, "0\n");
        assert_eq!(run(host, &make(host, limits, true).await, TAKE).await.end.cause, OVER_MEMORY);
    }));
}

fn refused_processes_are_not_held_against_the_next(place: &Place) {
    place.live(life!(|host| {
        if !host.groups {
            return;
        }
        let sandbox = make(host, Limits { processes: 16, ..Limits::default() }, false).await;
        let line = "i=0; while [ $i -lt 40 ]; do sleep 0.2 & i=$((i+1)); done; wait";
        let crowd = run(host, &sandbox, line).await;
        assert!(crowd.end.limits_hit.contains(LimitName::Processes), "{crowd:?}");
        // A shell gives up at the first refusal and leaves the crowd behind. Its first process stays.
        until("the crowd is gone", || host.processes(&sandbox).len() <= 1).await;
        clean(&run(host, &sandbox, "sleep 0.01; echo clean").await, 0);
    }));
}

fn the_launcher_has_no_clock_for_what_is_kept(place: &Place) {
    place.live(life!(|host| {
        let lifetime = Lifetime { after: Duration::from_millis(200), then: OnEnd::Delete };
        let spec = SandboxSpec { enforcement: Enforcement::BestEffort, lifetime, ..SandboxSpec::default() };
        let make = async |ephemeral| {
            let options = CreateOptions { ephemeral, ..CreateOptions::default() };
            host.provider.create(&host.cx, &spec, options).await.unwrap().id
        };
        let mut events = host.provider.events();
        let (kept, one_shot) = (make(false).await, make(true).await);
        // The other has one, which ends it a second later.
        events.next().await.unwrap();
        let state = host.provider.get(&host.cx, &one_shot).await.unwrap().state;
        assert!(matches!(&state, State::Failed { reason } if reason.contains("Lifetime")), "{state:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(host.output(&kept, "echo lives").await, "lives\n");
    }));
}
