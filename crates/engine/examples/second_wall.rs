//! A jail with a hole in its mounts: does Landlock alone still keep the guest out?
//!
//! `second_wall RUNTIME_DIR GRANTED EXPOSED`: both folders of the host are mounted inside, at `/granted` and
//! `/exposed`, but only the first is in the Landlock rules, as every mounted tree of a real jail is. A shell inside
//! tries both, and what it prints is printed here.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use sandstorm_agent::frame::{Decoder, encode};
use sandstorm_agent::protocol::{FromAgent, Program, Task, ToAgent};
use sandstorm_engine::AGENT;
use sandstorm_jail::launcher::{self, Answer, Launcher, LauncherConfig, Request};
use sandstorm_jail::{IdRange, JailLimits, JailSpec, Network, OnMemory, Strictness, Tree, packet, template};

const SCRIPT: &str = "for place in granted exposed; do
    grep -q \" /$place ro,\" /proc/self/mountinfo && echo $place is mounted
    cat /$place/secret 2>&1 && echo $place is read
    ( exec 5< /$place/secret ) 2> /dev/null && echo $place is opened
    cp /$place/program /tmp/$place 2> /dev/null && echo $place is copied
    /$place/program 2> /dev/null && echo $place is executed
done; true";

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1).map(PathBuf::from);
    let (Some(runtime_dir), Some(granted), Some(exposed)) = (words.next(), words.next(), words.next()) else {
        return Err("usage: second_wall RUNTIME_DIR GRANTED EXPOSED".into());
    };
    let Launcher { socket, .. } = launcher::start(LauncherConfig {
        ids: IdRange { start: 2_013_265_920, blocks: 1024 },
        cgroup_parent: PathBuf::from("sandstorm"),
        runtime_dir,
        space_dir: "/var/tmp".into(),
        agent: AGENT,
        zygotes: Vec::new(),
    })?;
    let tree = |source, target: &str| Tree { source, target: PathBuf::from(target) };
    let additions = template::Additions { trees: vec![tree(granted, "/granted")], name_server: None };
    let mut root = template::host(16 << 20, 1000, additions);
    root.exposed = vec![tree(exposed, "/exposed")];
    let spec = JailSpec {
        name: format!("second-wall-{}", std::process::id()),
        hostname: "sandbox".to_owned(),
        root,
        limits: JailLimits {
            memory_bytes: 256 << 20,
            processes: 64,
            cpu_milli: 1000,
            cpu_time: None,
            open_files: 256,
        },
        network: Network::Loopback,
        strictness: Strictness::BestEffort,
        on_memory: OnMemory::EndAll,
        lifetime: None,
        strict_filter: false,
        joinable: false,
    };
    packet::send(socket.as_fd(), &Request::Launch { spec: Box::new(spec), keep: false }, &[])?;
    let agent = match packet::receive::<Answer>(socket.as_fd())? {
        Some((Answer::Launched(_), descriptors)) => {
            descriptors.into_iter().next().ok_or("no socket to the agent")?
        }
        other => return Err(format!("no jail: {other:?}").into()),
    };
    let mut agent = UnixStream::from(agent);
    let argv = ["/bin/bash", "-c", SCRIPT].map(str::to_owned).to_vec();
    agent.write_all(&encode(&ToAgent::Start {
        id: 1,
        lasting: None,
        task: Task::Program(program(argv)),
    })?)?;
    let mut decoder = Decoder::default();
    let mut buffer = [0; 4096];
    loop {
        while let Some(message) = decoder.take::<FromAgent>()? {
            match message {
                FromAgent::Output { bytes, .. } => std::io::stdout().write_all(&bytes)?,
                FromAgent::Exited { .. } => return Ok(()),
                FromAgent::Failed { failure, .. } => return Err(format!("not started: {failure:?}").into()),
                _ => {}
            }
        }
        match agent.read(&mut buffer)? {
            0 => return Err("the agent is gone".into()),
            n => decoder.push(&buffer[..n]),
        }
    }
}

fn program(argv: Vec<String>) -> Program {
    Program {
        argv,
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        cwd: "/workspace".to_owned(),
        ..Program::default()
    }
}
