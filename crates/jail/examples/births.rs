//! What a jail costs its launcher: makes jails one after the other, each with a guest if asked, ends them and says how
//! long that took. For measuring, under `strace -c -f` or `perf`, too.
//!
//! `births AGENT COUNT [guest]`

#![expect(clippy::print_stdout, reason = "its result is what it prints")]

use std::error::Error;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use sandstorm_agent::frame::Decoder;
use sandstorm_agent::protocol::FromAgent;
use sandstorm_jail::launcher::{self, Answer, LauncherConfig, Request, ZygoteConfig};
use sandstorm_jail::template::{self, Additions};
use sandstorm_jail::{IdRange, JailLimits, JailSpec, Network, OnMemory, Strictness, packet};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [agent, count, rest @ ..] = &words[..] else {
        return Err("usage: births AGENT COUNT [guest]".into());
    };
    let guests = rest.iter().any(|word| word == "guest");
    let runtime = tempfile::tempdir()?;
    let launcher = launcher::start(LauncherConfig {
        ids: IdRange { start: 2_013_265_920, blocks: 1024 },
        cgroup_parent: "sandstorm".into(),
        runtime_dir: runtime.path().to_owned(),
        space_dir: "/var/tmp".into(),
        agent: Box::leak(std::fs::read(agent)?.into_boxed_slice()),
        zygotes: vec![ZygoteConfig {
            name: "python".to_owned(),
            interpreter: "/usr/bin/python3".into(),
            preload: Vec::new(),
            known: Vec::new(),
        }],
    })?;
    let pid = launcher.pid();
    let socket = launcher.socket;
    let hear = || -> Result<_, Box<dyn Error>> {
        Ok(packet::receive::<Answer>(socket.as_fd())?.ok_or("the launcher is gone")?)
    };
    let (mut births, mut joins, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    let mut used = Vec::new();
    for index in 0..count.parse()? {
        let name = format!("birth-{index}");
        let began = Instant::now();
        let spec = Box::new(spec(&name));
        packet::send(socket.as_fd(), &Request::Launch { spec, keep: false }, &[])?;
        let (answer, mut given) = hear()?;
        let Answer::Launched(_) = answer else { return Err(format!("{answer:?}").into()) };
        let mut agent = UnixStream::from(given.remove(0));
        births.push(began.elapsed());
        if guests {
            let began = Instant::now();
            let (name, zygote, owner) = (name.clone(), "python".to_owned(), "owner".to_owned());
            packet::send(socket.as_fd(), &Request::Join { name, zygote, owner, like: None }, &[])?;
            let (answer, _) = hear()?;
            let Answer::Joined { .. } = answer else { return Err(format!("{answer:?}").into()) };
            wait_for_guest(&mut agent)?;
            joins.push(began.elapsed());
        }
        let began = Instant::now();
        packet::send(socket.as_fd(), &Request::Kill { name }, &[])?;
        while !matches!(hear()?.0, Answer::Ended(_)) {}
        ends.push(began.elapsed());
        if index == 0 {
            // The first one brings up the zygote and the groups above.
            births.clear();
            joins.clear();
            ends.clear();
            used.push((cpu(pid)?, children(pid)?));
        }
    }
    used.push((cpu(pid)?, children(pid)?));
    let ends_counted = ends.len().max(1);
    for (what, mut times) in [("birth", births), ("join", joins), ("end", ends)] {
        times.sort_unstable();
        let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
        writeln!(std::io::stdout(), "{what}: p50 {:?}, p90 {:?}, p99 {:?}", at(50), at(90), at(99))?;
    }
    let births = u32::try_from(ends_counted)?;
    println!(
        "processor time for each: launcher {:?}, what it made {:?}",
        (used[1].0 - used[0].0) / births,
        (used[1].1 - used[0].1) / births
    );
    drop(socket);
    Ok(launcher::Launcher::join(pid)?)
}

fn wait_for_guest(agent: &mut UnixStream) -> Result<(), Box<dyn Error>> {
    let mut decoder = Decoder::default();
    let mut buffer = [0; 4096];
    loop {
        while let Some(message) = decoder.take::<FromAgent>()? {
            match message {
                FromAgent::GuestReady { .. } => return Ok(()),
                FromAgent::GuestFailed { failure, .. } => return Err(format!("{failure:?}").into()),
                _ => {}
            }
        }
        match agent.read(&mut buffer)? {
            0 => return Err("the agent is gone".into()),
            length => decoder.push(&buffer[..length]),
        }
    }
}

/// Processor time of the launcher itself, without what it started.
fn cpu(pid: i32) -> Result<Duration, Box<dyn Error>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    Ok(Duration::from_nanos(text.split(' ').next().ok_or("no time")?.parse()?))
}

/// Processor time of those that the launcher made and collected.
fn children(pid: i32) -> Result<Duration, Box<dyn Error>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = text.rsplit_once(')').ok_or("no name")?.1;
    let ticks = rest.split_whitespace().skip(13).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(ticks * 10))
}

fn spec(name: &str) -> JailSpec {
    JailSpec {
        name: name.to_owned(),
        hostname: "sandbox".to_owned(),
        root: template::host(64 << 20, 10_000, Additions::default()),
        limits: JailLimits {
            memory_bytes: 512 << 20,
            processes: 66,
            cpu_milli: 1000,
            cpu_time: None,
            open_files: 1024,
        },
        network: Network::Loopback,
        strictness: Strictness::Strict,
        on_memory: OnMemory::EndAll,
        lifetime: None,
        strict_filter: false,
        joinable: true,
    }
}
