//! How guests and zygotes come and go, and what that leaves.

use std::time::Duration;

use rustix::process::{Pid, Signal};
use sandstorm_agent::protocol::{Ending, ToAgent};
use sandstorm_jail::OnMemory;
use sandstorm_jail::launcher::{Answer, EndCause, RefusalKind, Request};

use crate::Case;
use crate::host::{Host, eventually, zygotes};

pub(crate) const CASES: &[Case] = &[
    ("many jails are built at once, and a kill meanwhile ends one", many_births),
    ("a guest runs one program and its end is told", one_program),
    ("guests of one jail see different numbers", numbers),
    ("a jail ends with its guests in it", end_with_guests),
    ("a zygote that dies takes nobody along", zygote_dies),
    ("a zygote that stops while it forks is given up", zygote_stops),
    ("joins wait for a zygote that warms up", waiting_in_line),
    ("what cannot be had is refused with the reason", refusals),
    ("a guest like another comes from the same zygote", like_another),
    ("a jail is kept later", kept_later),
    ("a paused jail takes its guests along", paused),
    ("a guest that is killed for memory is told as such", memory),
    ("a waiting guest goes on as a copy of another", transplanted),
];

fn many_births(host: &mut Host) {
    let names: Vec<String> = (0..12).map(|i| format!("birth-{i}")).collect();
    for name in &names {
        let spec = Box::new(Host::spec(name));
        host.ask(&Request::Launch { spec, keep: false }, &[]);
    }
    host.ask(&Request::Kill { name: names[11].clone() }, &[]);
    for name in &names[..11] {
        host.launched(name).unwrap();
    }
    // It was built, or it was not: either way its name is free again.
    let name = names[11].clone();
    host.hear(|answer, _| match answer {
        Answer::Refused { name: refused, .. } if *refused == name => Some(()),
        Answer::Ended(ended) if ended.name == name => Some(()),
        _ => None,
    });
    host.launch(&name);
    for name in &names {
        assert_eq!(host.kill(name).stuck, Vec::<String>::new());
    }
}

fn one_program(host: &mut Host) {
    host.launch("one");
    let guest = host.guest("one", "owner");
    assert_eq!(guest, 1);
    let ran = host.python(
        "one",
        Some(guest),
        "import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.exit(7)\n",
    );
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.ending), ("out\n", "err\n", Ending::Code(7)));
    let guest = host.guest("one", "owner");
    assert_eq!(guest, 2);
    let ran = host.python("one", Some(guest), "import os\nos.kill(os.getpid(), 11)\n");
    assert_eq!(ran.ending, Ending::Signal(11));
}

fn numbers(host: &mut Host) {
    host.launch("many");
    for _ in 0..3 {
        host.ask(
            &Request::Join {
                name: "many".to_owned(),
                zygote: "python".to_owned(),
                owner: "owner".to_owned(),
                like: None,
            },
            &[],
        );
    }
    let mut guests: Vec<u32> = (0..3).map(|_| host.joined("many").unwrap()).collect();
    guests.sort_unstable();
    assert_eq!(guests, [1, 2, 3]);
    for guest in guests {
        host.ready("many", guest);
        let ran = host.python("many", Some(guest), "print('here')\n");
        assert_eq!(ran.stdout, "here\n");
    }
}

fn end_with_guests(host: &mut Host) {
    for round in 0..3 {
        let name = format!("full-{round}");
        host.launch(&name);
        let waiting = host.guest(&name, "owner");
        let running = host.guest(&name, "owner");
        assert_ne!(waiting, running);
        host.start(&name, Some(running), "while True: pass\n");
        // One may be on its way in while the jail ends.
        let (zygote, owner) = ("python".to_owned(), "owner".to_owned());
        host.ask(&Request::Join { name: name.clone(), zygote, owner, like: None }, &[]);
        let ended = host.kill(&name);
        assert_eq!((ended.cause, ended.stuck), (EndCause::Asked, Vec::new()));
        let _ = host.joined(&name);
    }
}

fn zygote_dies(host: &mut Host) {
    host.launch("left");
    let guest = host.guest("left", "owner");
    let [zygote] = zygotes(host.launcher())[..] else { panic!("there is one zygote") };
    rustix::process::kill_process(Pid::from_raw(zygote).unwrap(), Signal::KILL).unwrap();
    let launcher = host.launcher();
    eventually("the zygote is still there", || zygotes(launcher).is_empty());
    let ran = host.python("left", Some(guest), "print('alive')\n");
    assert_eq!((ran.stdout.as_str(), ran.ending), ("alive\n", Ending::Code(0)));
    // The next one who asks gets another, once the launcher knows of the loss; whoever asks before is refused.
    let mut again = None;
    eventually("no other zygote comes", || {
        again = host.join("left", "python", "owner", None).ok();
        again.is_some()
    });
    let again = again.unwrap();
    host.ready("left", again);
    assert_eq!(host.python("left", Some(again), "print('new')\n").stdout, "new\n");
}

fn zygote_stops(host: &mut Host) {
    host.launch("stopped");
    host.guest("stopped", "owner");
    let [zygote] = zygotes(host.launcher())[..] else { panic!("there is one zygote") };
    let zygote = Pid::from_raw(zygote).unwrap();
    rustix::process::kill_process(zygote, Signal::STOP).unwrap();
    let (name, owner) = ("stopped".to_owned(), "owner".to_owned());
    host.ask(&Request::Join { name, zygote: "python".to_owned(), owner, like: None }, &[]);
    // Everything else goes on meanwhile.
    host.launch("other");
    host.kill("other");
    let refused = host.joined("stopped").unwrap_err();
    assert!(refused.message.contains("did not answer in time"), "{}", refused.message);
    host.guest("stopped", "owner");
}

fn waiting_in_line(host: &mut Host) {
    let names: Vec<String> = (0..20).map(|i| format!("line-{i}")).collect();
    for name in &names {
        host.launch(name);
    }
    for name in &names {
        let (zygote, owner) = ("python".to_owned(), "owner".to_owned());
        host.ask(&Request::Join { name: name.clone(), zygote, owner, like: None }, &[]);
    }
    for name in &names {
        let guest = host.joined(name).unwrap();
        host.ready(name, guest);
        assert_eq!(host.python(name, Some(guest), "print(1)\n").stdout, "1\n");
    }
    assert_eq!(zygotes(host.launcher()).len(), 1);
}

fn refusals(host: &mut Host) {
    host.launch("open");
    let mut closed = Host::spec("closed");
    closed.joinable = false;
    host.launch_spec(closed).unwrap();
    let mut strict = Host::spec("strict");
    strict.strict_filter = true;
    host.launch_spec(strict).unwrap();
    let cases = [
        ("closed", "python", None, RefusalKind::Forbidden, "cannot be put"),
        ("strict", "python", None, RefusalKind::Forbidden, "cannot be put"),
        ("nowhere", "python", None, RefusalKind::Gone, "no such jail"),
        ("open", "unknown", None, RefusalKind::Host, "there is no zygote"),
        ("open", "absent", None, RefusalKind::Host, "cannot be found"),
        ("open", "unfit", None, RefusalKind::Host, "only root can change"),
        ("open", "false", None, RefusalKind::Host, "the zygote ended"),
        ("open", "python", Some(("open".to_owned(), 9)), RefusalKind::Host, "no guest 9"),
    ];
    for (jail, zygote, like, kind, words) in cases {
        let refused = host.join(jail, zygote, "owner", like).unwrap_err();
        assert!(refused.kind == kind && refused.message.contains(words), "{jail} {zygote}: {refused:?}");
    }
    // One that does not come up is not tried again and again.
    let refused = host.join("open", "false", "owner", None).unwrap_err();
    assert!(refused.message.contains("the zygote ended"), "{}", refused.message);
    let guest = host.guest("open", "owner");
    let refused = host.join("open", "python", "thief", Some(("open".to_owned(), guest))).unwrap_err();
    assert!(refused.message.contains("is gone"), "another owner's zygote forks: {}", refused.message);
}

fn like_another(host: &mut Host) {
    host.launch("source");
    host.launch("copy");
    let source = host.guest("source", "owner");
    let like = Some(("source".to_owned(), source));
    let copy = host.join("copy", "python", "owner", like.clone()).unwrap();
    host.ready("copy", copy);
    let [zygote] = zygotes(host.launcher())[..] else { panic!("there is one zygote") };
    rustix::process::kill_process(Pid::from_raw(zygote).unwrap(), Signal::KILL).unwrap();
    let launcher = host.launcher();
    eventually("the zygote is still there", || zygotes(launcher).is_empty());
    // Another of the same name will not do. The launcher may find that out when it looks, listens or speaks.
    let refused = host.join("copy", "python", "owner", like).unwrap_err();
    let words = refused.message;
    let known = ["is gone", "the zygote ended", "could not speak to a zygote"];
    assert!(known.iter().any(|known| words.contains(known)), "{words}");
}

fn kept_later(host: &mut Host) {
    let keep = |host: &mut Host, name: &str, lifetime| {
        let name = name.to_owned();
        host.ask(&Request::Keep { name: name.clone(), on_memory: OnMemory::EndAll, lifetime }, &[]);
        host.done(&name)
    };
    host.launch("short");
    keep(host, "short", Some(Duration::from_millis(300))).unwrap();
    assert_eq!(host.ended("short").cause, EndCause::Lifetime);
    assert_eq!(keep(host, "short", None).unwrap_err().kind, RefusalKind::Gone);
    host.launch("long");
    let cookie = rustix::fs::memfd_create("cookie", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let name = "long".to_owned();
    let request = Request::Keep { name, on_memory: OnMemory::EndProcess, lifetime: None };
    host.ask(&request, &[cookie]);
    host.done("long").unwrap();
    host.ask(&Request::List, &[]);
    host.hear(|answer, _| matches!(answer, Answer::Listed { name, .. } if name == "long").then_some(()));
    let mut plain = Host::spec("plain");
    plain.joinable = false;
    host.launch_spec(plain).unwrap();
    let cookie = rustix::fs::memfd_create("cookie", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let name = "plain".to_owned();
    host.ask(&Request::Keep { name, on_memory: OnMemory::EndAll, lifetime: None }, &[cookie]);
    assert!(host.done("plain").is_err(), "a jail without a door cannot be found again");
}

fn paused(host: &mut Host) {
    host.launch("still");
    let guest = host.guest("still", "owner");
    let code = "import time\nlast = time.monotonic()\nprint('up')\n\
                while (now := time.monotonic()) - last < 1: last = now\nprint('gap')\n";
    let task = host.start("still", Some(guest), code);
    host.from_agent("still", |said| {
        matches!(said, sandstorm_agent::protocol::FromAgent::Output { .. }).then_some(())
    });
    host.ask(&Request::Pause { name: "still".to_owned() }, &[]);
    host.done("still").unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    host.ask(&Request::Resume { name: "still".to_owned() }, &[]);
    host.done("still").unwrap();
    // The end of the first line may have come by itself.
    assert_eq!(host.ran("still", task).stdout.trim_start(), "gap\n");
    host.ask(&Request::Pause { name: "still".to_owned() }, &[]);
    host.done("still").unwrap();
    assert_eq!(host.kill("still").stuck, Vec::<String>::new());
}

fn memory(host: &mut Host) {
    let mut spec = Host::spec("tight");
    spec.limits.memory_bytes = 48 << 20;
    host.launch_spec(spec).unwrap();
    let guest = host.guest("tight", "owner");
    let ran = host.python("tight", Some(guest), "kept = []\nwhile True: kept.append(b'x' * 100_000)\n");
    assert_eq!(ran.ending, Ending::Signal(9));
    // The jail lives: the guest went first.
    assert_eq!(host.python("tight", None, "print(1)\n").stdout, "1\n");
    let mut spec = Host::spec("all");
    spec.limits.memory_bytes = 48 << 20;
    spec.on_memory = OnMemory::EndAll;
    host.launch_spec(spec).unwrap();
    let guest = host.guest("all", "owner");
    host.start("all", Some(guest), "kept = []\nwhile True: kept.append(b'x' * 100_000)\n");
    assert_eq!(host.ended("all").cause, EndCause::Memory);
}

fn transplanted(host: &mut Host) {
    host.launch("from");
    host.launch("to");
    let source = host.guest("from", "owner");
    let copy = host.join("to", "python", "owner", Some(("from".to_owned(), source))).unwrap();
    host.ready("to", copy);
    let (from, to) = (("from".to_owned(), source), ("to".to_owned(), copy));
    // One that has not even a job cannot be copied, and says why; the other still waits for its own.
    host.ask(&Request::Transplant { from: from.clone(), to: to.clone() }, &[]);
    let answer = host.hear(|answer, _| match answer {
        Answer::NotTransplanted { refusal, .. } => Some(Err(refusal.clone())),
        Answer::Transplanted { name, report } => Some(Ok((name.clone(), *report))),
        _ => None,
    });
    if let Ok((name, report)) = answer {
        assert!(name == "to" && report.pages > 0, "{report:?}");
    }
    // Guests of two zygotes are never copied to one another.
    let other = host.guest("to", "somebody else");
    host.ask(&Request::Transplant { from, to: ("to".to_owned(), other) }, &[]);
    let refused = host.hear(|answer, _| match answer {
        Answer::NotTransplanted { refusal, .. } => Some(refusal.clone()),
        _ => None,
    });
    assert_eq!(refused.kind, RefusalKind::Forbidden);
    assert!(refused.message.contains("not of one zygote"), "{}", refused.message);
    host.say("to", &ToAgent::Dismiss { guest: other });
    host.hang_up("from");
}
