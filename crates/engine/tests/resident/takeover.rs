//! A host dies, another one goes on.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use sandstorm_provider::{
    AttachFrom, CreateOptions, EndCause, ExecEvent, ExecRequest, ExecSignal, ExecStatus, HostMount, Provider,
    Stdin,
};
use sandstorm_types::{Enforcement, ErrorKind, ExecId, SandboxId, SandboxSpec, State, Transition};

use crate::Case;
use crate::faults::groups;
use crate::place::{Host, PATIENCE, Place, eventually, kill, life, until};

pub(crate) const CASES: &[Case] = &[
    ("no_byte_is_lost_or_doubled", no_byte_is_lost_or_doubled),
    ("many_hosts_make_one_output", many_hosts_make_one_output),
    ("what_does_not_last_ends_at_once", what_does_not_last_ends_at_once),
    ("the_end_of_a_program_is_not_lost", the_end_of_a_program_is_not_lost),
    ("input_goes_on_where_it_was", input_goes_on_where_it_was),
    ("a_paused_sandbox_stays_paused", a_paused_sandbox_stays_paused),
    ("time_limits_go_on", time_limits_go_on),
    ("one_shot_sandboxes_go_with_their_host", one_shot_sandboxes_go_with_their_host),
    ("many_sandboxes_are_taken_over_quickly", many_sandboxes_are_taken_over_quickly),
    ("the_suite_for_every_provider_passes", the_suite_for_every_provider_passes),
    ("a_newer_host_takes_the_place_of_an_older", a_newer_host_takes_the_place_of_an_older),
    ("a_newer_host_says_what_may_be_shown", a_newer_host_says_what_may_be_shown),
];

const LINES: usize = 60_000;

fn counting(lines: usize) -> String {
    format!("i=0; while [ $i -lt {lines} ]; do echo $i; i=$((i+1)); done")
}

fn counted(lines: usize) -> String {
    (0..lines).map(|n| format!("{n}\n")).collect()
}

fn sandbox(host: &Host) -> SandboxId {
    host.told("sandbox").parse().unwrap()
}

fn exec(host: &Host) -> ExecId {
    host.told("exec").parse().unwrap()
}

/// Compares without printing a megabyte.
fn same(found: &[u8], wanted: &str) {
    let differ = found.iter().zip(wanted.as_bytes()).position(|(a, b)| a != b);
    assert!(
        found == wanted.as_bytes(),
        "{} bytes instead of {}, different from {differ:?} on",
        found.len(),
        wanted.len()
    );
}

fn no_byte_is_lost_or_doubled(place: &Place) {
    let host = place.fork_host(life!(|host| {
        let sandbox = host.sandbox().await;
        host.tell("sandbox", sandbox);
        host.tell("exec", host.background(&sandbox, &counting(LINES)).await);
    }));
    place.note("exec");
    std::thread::sleep(Duration::from_millis(60));
    kill(host);
    // Meanwhile the program fills its window and waits.
    std::thread::sleep(Duration::from_millis(300));
    place.live(life!(|host| {
        assert_eq!(host.provider.adopt().await.unwrap(), [sandbox(host)]);
        let done = host.whole(&exec(host)).await;
        same(&done.stdout, &counted(LINES));
        assert_eq!((done.end.status, done.end.cause), (ExecStatus::Code(0), EndCause::Program));
        assert_eq!(done.end.written.stdout, counted(LINES).len() as u64);
        // Numbers of events stand: each attach gives the same ones.
        let all: Vec<_> = host
            .provider
            .attach(&host.cx, &exec(host), AttachFrom::START)
            .await
            .unwrap()
            .events
            .collect()
            .await;
        let later = host.provider.attach(&host.cx, &exec(host), AttachFrom::Seq(3)).await.unwrap();
        assert_eq!(later.first, 3);
        let rest: Vec<_> = later.events.collect().await;
        assert_eq!(rest.len() + 3, all.len());
        assert_eq!(rest[0].as_ref().unwrap(), all[3].as_ref().unwrap());
        assert_eq!(host.output(&sandbox(host), "echo works").await, "works\n");
    }));
}

fn many_hosts_make_one_output(place: &Place) {
    let first = place.fork_host(life!(|host| {
        let sandbox = host.sandbox().await;
        host.tell("sandbox", sandbox);
        host.tell("exec", host.background(&sandbox, &counting(5 * LINES)).await);
    }));
    place.note("exec");
    std::thread::sleep(Duration::from_millis(30));
    kill(first);
    for after in [5, 20, 50, 0, 80, 33] {
        let next = place.fork_host(life!(|host| {
            host.provider.adopt().await.unwrap();
            host.tell("adopted", "");
        }));
        place.note("adopted");
        std::thread::sleep(Duration::from_millis(after));
        kill(next);
        std::fs::remove_file(place.path("notes/adopted")).unwrap();
    }
    place.live(life!(|host| {
        host.provider.adopt().await.unwrap();
        same(&host.whole(&exec(host)).await.stdout, &counted(5 * LINES));
    }));
}

fn what_does_not_last_ends_at_once(place: &Place) {
    let host = place.fork_host(life!(|host| {
        let sandbox = host.sandbox().await;
        host.tell("sandbox", sandbox);
        host.background(&sandbox, "sleep 3333").await;
        let request = ExecRequest::shell("echo begun; sleep 4444");
        host.tell("exec", request.id);
        let mut exec = host.provider.exec(&host.cx, &sandbox, request).await.unwrap();
        exec.events.next().await;
        exec.events.next().await;
        host.tell("begun", "");
        std::mem::forget(exec);
    }));
    place.note("begun");
    kill(host);
    let killed = Instant::now();
    place.live(life!(|host| {
        host.provider.adopt().await.unwrap();
        let done = host.whole(&exec(host)).await;
        same(&done.stdout, "begun\n");
        assert_eq!((done.end.status, done.end.cause), (ExecStatus::Signal(9), EndCause::Caller));
        let commands = host.output(&sandbox(host), "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").await;
        assert!(commands.contains("sleep 3333"), "what lasts is gone: {commands}");
        assert!(!commands.contains("sleep 4444"), "what does not last lives: {commands}");
    }));
    assert!(killed.elapsed() < PATIENCE, "it took {:?}", killed.elapsed());
}

fn the_end_of_a_program_is_not_lost(place: &Place) {
    let host = place.fork_host(life!(|host| {
        let sandbox = host.sandbox().await;
        host.tell("sandbox", sandbox);
        host.tell("exec", host.background(&sandbox, "sleep 0.2; echo late >&2; exit 7").await);
    }));
    place.note("exec");
    kill(host);
    std::thread::sleep(Duration::from_millis(500));
    // One that hears the end and dies, and one that finds it noted.
    let next = place.fork_host(life!(|host| {
        host.provider.adopt().await.unwrap();
        assert_eq!(host.whole(&exec(host)).await.end.status, ExecStatus::Code(7));
        host.tell("heard", "");
    }));
    place.note("heard");
    kill(next);
    place.live(life!(|host| {
        host.provider.adopt().await.unwrap();
        let done = host.whole(&exec(host)).await;
        same(&done.stderr, "late\n");
        assert_eq!((done.end.status, done.end.cause), (ExecStatus::Code(7), EndCause::Program));
        // Nothing of it is left with the agent: its id could be used again.
        assert_eq!(host.output(&sandbox(host), "echo on").await, "on\n");
    }));
}

fn input_goes_on_where_it_was(place: &Place) {
    let host = place.fork_host(life!(|host| {
        let sandbox = host.sandbox().await;
        let mut request = ExecRequest::shell("cat; cat <&3 >&3");
        (request.background, request.lasting, request.channel) = (true, true, true);
        request.stdin = Stdin::Stream;
        let exec = host.provider.exec(&host.cx, &sandbox, request).await.unwrap();
        exec.input.deliver("first ", None).await.unwrap();
        host.tell("sandbox", sandbox);
        host.tell("exec", exec.id);
        std::mem::forget(exec);
    }));
    place.note("exec");
    kill(host);
    place.live(life!(|host| {
        host.provider.adopt().await.unwrap();
        let mut found = host.provider.attach(&host.cx, &exec(host), AttachFrom::START).await.unwrap();
        // As one who does not know what the program has had.
        assert_eq!(found.input.deliver("first second", Some(0)).await.unwrap(), Some(12));
        found.input.close().await.unwrap();
        let channel = found.channel.take().unwrap();
        let long = vec![b'm'; 3 << 20];
        channel.send(long.clone()).await.unwrap();
        channel.close().await;
        let (mut printed, mut said) = (Vec::new(), Vec::new());
        while let Some(event) = found.events.next().await {
            match event.unwrap() {
                ExecEvent::Output { bytes, .. } => printed.extend_from_slice(&bytes),
                ExecEvent::Channel { bytes, .. } => said.extend_from_slice(&bytes),
                ExecEvent::Started | ExecEvent::Exited(_) => {}
            }
        }
        same(&printed, "first second");
        assert!(said == long, "{} bytes came back of {}", said.len(), long.len());
    }));
}

fn a_paused_sandbox_stays_paused(place: &Place) {
    if !place.connect().abilities.freezer {
        return;
    }
    let host = place.fork_host(life!(|host| {
        let sandbox = host.sandbox().await;
        host.tell("sandbox", sandbox);
        // It would not stand still by itself, whoever looks when.
        let ticking = "echo up; while [ ! -e go ]; do echo tick; sleep 0.02; done; echo down";
        let exec = host.background(&sandbox, ticking).await;
        let mut events = host.provider.attach(&host.cx, &exec, AttachFrom::START).await.unwrap().events;
        events.next().await;
        events.next().await;
        host.provider.transition(&host.cx, &sandbox, Transition::Pause).await.unwrap();
        host.tell("exec", exec);
    }));
    place.note("exec");
    kill(host);
    place.live(life!(|host| {
        host.provider.adopt().await.unwrap();
        let id = sandbox(host);
        assert_eq!(host.provider.get(&host.cx, &id).await.unwrap().state, State::Paused);
        let refused = host.provider.exec(&host.cx, &id, ExecRequest::shell("true")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        let refused = host.provider.signal(&host.cx, &exec(host), ExecSignal::Kill).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        // What it wrote can be heard while it stands still.
        let mut events = host.provider.attach(&host.cx, &exec(host), AttachFrom::START).await.unwrap().events;
        let give_up = Instant::now() + PATIENCE;
        while let Ok(more) = tokio::time::timeout(Duration::from_millis(500), events.next()).await {
            assert!(Instant::now() < give_up, "a program of a paused sandbox goes on: {more:?}");
        }
        host.provider.transition(&host.cx, &id, Transition::Resume).await.unwrap();
        host.output(&id, "touch go").await;
        let done = host.whole(&exec(host)).await;
        let ticks = String::from_utf8_lossy(&done.stdout).matches("tick\n").count();
        same(&done.stdout, &format!("up\n{}down\n", "tick\n".repeat(ticks)));
        assert_eq!(host.output(&id, "echo works").await, "works\n");
    }));
}

fn time_limits_go_on(place: &Place) {
    let host = place.fork_host(life!(|host| {
        let sandbox = host.sandbox().await;
        let mut request = ExecRequest::shell("sleep 60");
        (request.background, request.lasting) = (true, true);
        request.timeout = Some(Duration::from_millis(1500));
        host.tell("began", milliseconds());
        host.tell("exec", host.provider.exec(&host.cx, &sandbox, request).await.unwrap().id);
    }));
    place.note("exec");
    kill(host);
    place.live(life!(|host| {
        host.provider.adopt().await.unwrap();
        let end = host.whole(&exec(host)).await.end;
        assert_eq!(end.cause, EndCause::Limit(sandstorm_types::LimitName::Wall));
        // Not before its time, and long before its own end.
        let took = milliseconds() - host.told("began").parse::<u128>().unwrap();
        assert!((1500..50_000).contains(&took), "it took {took} ms");
    }));
}

/// By the clock that all processes have.
fn milliseconds() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()
}

fn one_shot_sandboxes_go_with_their_host(place: &Place) {
    let host = place.fork_host(life!(|host| {
        let spec = sandstorm_types::SandboxSpec {
            enforcement: sandstorm_types::Enforcement::BestEffort,
            ..Default::default()
        };
        let options = sandstorm_provider::CreateOptions { ephemeral: true, ..Default::default() };
        let sandbox = host.provider.create(&host.cx, &spec, options).await.unwrap().id;
        host.background(&sandbox, "sleep 1000").await;
        host.tell("sandbox", sandbox);
    }));
    let id: SandboxId = place.note("sandbox").parse().unwrap();
    kill(host);
    eventually("its groups are gone", || groups(&id).is_empty());
    place.live(life!(|host| {
        assert_eq!(host.provider.adopt().await.unwrap(), []);
        until("its processes are gone", || host.processes(&sandbox(host)).is_empty()).await;
    }));
}

fn many_sandboxes_are_taken_over_quickly(place: &Place) {
    let host = place.fork_host(life!(|host| {
        for _ in 0..60 {
            let sandbox = host.sandbox().await;
            host.background(&sandbox, "echo here; sleep 1000").await;
        }
        host.tell("done", "");
    }));
    place.note("done");
    kill(host);
    place.live(life!(|host| {
        let began = Instant::now();
        assert_eq!(host.provider.adopt().await.unwrap().len(), 60);
        let one = host.provider.list(&host.cx, Default::default()).next().await.unwrap().unwrap().id;
        let usage = host.provider.usage(&host.cx, &one).await.unwrap();
        assert!(!host.groups || usage.processes >= 1 && usage.memory.as_u64() > 0, "{usage:?}");
        let took = began.elapsed();
        println!("  60 sandboxes taken over in {took:?}");
        // It takes a hundredth of that; the rest is patience with a busy machine.
        assert!(took < Duration::from_secs(10), "{took:?}");
    }));
}

/// The same promises as with a forked launcher, though everything is written down here.
fn the_suite_for_every_provider_passes(place: &Place) {
    place.live(life!(|host| {
        let report = sandstorm_provider::conformance::run(&*host.provider).await;
        assert!(report.passed(), "{report}");
    }));
}

fn a_newer_host_takes_the_place_of_an_older(place: &Place) {
    let older = place.fork_host(life!(|host| {
        let sandbox = host.sandbox().await;
        host.tell("sandbox", sandbox);
        host.tell("exec", host.background(&sandbox, "sleep 1; echo kept").await);
    }));
    place.note("exec");
    place.live(life!(|host| {
        assert_eq!(host.provider.adopt().await.unwrap(), [sandbox(host)]);
        // The older one sees its connections close, and must not take the sandbox with it.
        same(&host.whole(&exec(host)).await.stdout, "kept\n");
        assert_eq!(host.provider.get(&host.cx, &sandbox(host)).await.unwrap().state, State::Ready);
    }));
    kill(older);
}

/// A launcher lives longer than the servers that it was made for and serves, and the host changes meanwhile.
fn a_newer_host_says_what_may_be_shown(place: &Place) {
    let older = place.connect();
    let home = std::fs::canonicalize(place.path(".")).unwrap();
    place.patterns.replace(vec![home.join("java-*-jdk").to_str().unwrap().to_owned()]);
    place.live(move |host| {
        Box::pin(async move {
            assert_eq!(host.launcher, older.pid, "it is another launcher");
            let show = async |name: &str| {
                let source = home.join(name);
                std::fs::create_dir(&source).unwrap();
                std::fs::write(source.join("found"), "here\n").unwrap();
                let mounts = vec![HostMount { source, target: "/opt/shown".into() }];
                let spec = SandboxSpec { enforcement: Enforcement::BestEffort, ..SandboxSpec::default() };
                let options = CreateOptions { mounts, ..CreateOptions::default() };
                host.provider.create(&host.cx, &spec, options).await
            };
            let shows = show("java-17-jdk").await.unwrap().id;
            assert_eq!(host.output(&shows, "cat /opt/shown/found").await, "here\n");
            assert!(show("secret").await.is_err(), "it shows what nobody allowed");
        })
    });
}
