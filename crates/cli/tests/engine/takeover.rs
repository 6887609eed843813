//! Contexts whose host is killed, and the host that takes them over.
//!
//! Each case is a process of its own that forks the host before it has threads. It runs before anything else here.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use sandstorm_control::{CellStatus, Context, ContextEvent, Spoken, StartContext};
use sandstorm_engine::{AGENT, LocalConfig, LocalProvider};
use sandstorm_jail::IdRange;
use sandstorm_jail::launcher::resident::{self, ResidentConfig};
use sandstorm_jail::launcher::{LauncherConfig, MountSources, Request};
use sandstorm_language::{Catalogue, Roots};
use sandstorm_sys::fork::{Forked, exit_now, fork};
use sandstorm_sys::process::{Ending, reap};

use crate::world::{PATIENCE, World};

/// What is tested, and its name.
type Case = (&'static str, fn(&Path));

pub(crate) const CASES: &[Case] = &[
    ("a_context_outlives_its_host", a_context_outlives_its_host),
    (
        "a_cell_that_was_never_sent_is_told_from_one_that_was",
        a_cell_that_was_never_sent_is_told_from_one_that_was,
    ),
];

/// Runs a case in a process of its own.
pub(crate) fn run(case: fn(&Path)) -> bool {
    match fork().unwrap() {
        Forked::Parent { pid } => reap(pid).unwrap().ending == Ending::Code(0),
        Forked::Child => {
            let dir = tempfile::tempdir().unwrap();
            let ran = std::panic::catch_unwind(|| case(dir.path()));
            if let Ok(resident) = resident::connect(&dir.path().join("launcher.sock")) {
                use std::os::fd::AsFd;
                let _ = sandstorm_jail::packet::send(resident.socket.as_fd(), &Request::Shutdown, &[]);
                let give_up = Instant::now() + PATIENCE;
                while dir.path().join("launcher.sock").exists() && Instant::now() < give_up {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
            drop(dir);
            exit_now(if ran.is_ok() { 0 } else { 1 })
        }
    }
}

/// A host in this process, which works on what the launcher at this place has.
fn live<T>(dir: &Path, life: impl AsyncFnOnce(World, Arc<LocalProvider>) -> T) -> T {
    let socket = dir.join("launcher.sock");
    let launcher = resident::connect_or_start(&ResidentConfig {
        socket: socket.clone(),
        allowed_uid: rustix::process::geteuid().as_raw(),
        launcher: LauncherConfig {
            ids: IdRange { start: 2_013_265_920, blocks: 2000 },
            cgroup_parent: "sandstorm".into(),
            runtime_dir: dir.join("run"),
            space_dir: "/var/tmp".into(),
            agent: AGENT,
            zygotes: Vec::new(),
        },
        orphan_after: Duration::from_secs(60),
        mount_sources: MountSources { trees: toolchain().1, ..MountSources::default() },
    })
    .unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let config = LocalConfig {
            resident: Some(socket),
            journals: Some(dir.join("journals")),
            ..LocalConfig::forked("local", launcher.socket, launcher.abilities)
        };
        let provider = Arc::new(LocalProvider::new(config).unwrap());
        life(World::new(Arc::clone(&provider) as Arc<_>), provider).await
    })
}

fn toolchain() -> (sandstorm_language::Toolchain, Vec<PathBuf>) {
    let toolchain = Catalogue::embedded().get("python").unwrap().detect(&Roots::host()).unwrap();
    let mounts = toolchain.mounts.clone();
    (toolchain, mounts)
}

async fn start(world: &World) -> Context {
    let (toolchain, mounts) = toolchain();
    let sandbox = world.sandbox(&mounts).await;
    let language = Catalogue::embedded().get("python").unwrap();
    let start = StartContext { lasting: true, ..StartContext::default() };
    let provider = Arc::clone(&world.provider);
    Context::start(provider, &world.cx, &sandbox, language, &toolchain, &world.limits, start).await.unwrap()
}

/// What is noted of a context before a cell: its exec, where the cell's events begin, and its number.
fn note(dir: &Path, context: &Context) {
    let beside = dir.join("note.new");
    std::fs::write(&beside, format!("{} {} {}", context.exec(), context.position(), context.next_cell()))
        .unwrap();
    std::fs::rename(beside, dir.join("note")).unwrap();
}

fn host(dir: &Path, life: fn(&Path)) -> Pid {
    match fork().unwrap() {
        Forked::Parent { pid } => Pid::from_raw(pid).unwrap(),
        Forked::Child => {
            life(dir);
            exit_now(0)
        }
    }
}

fn kill(pid: Pid) {
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    let _ = reap(pid.as_raw_nonzero().get());
}

fn wait_for(path: &Path) {
    let give_up = Instant::now() + PATIENCE;
    while !path.exists() {
        assert!(Instant::now() < give_up, "{} does not appear", path.display());
        std::thread::sleep(Duration::from_millis(2));
    }
}

async fn adopt(dir: &Path, world: &World, provider: &LocalProvider) -> (Context, u64) {
    assert_eq!(provider.adopt().await.unwrap().len(), 1);
    let note = std::fs::read_to_string(dir.join("note")).unwrap();
    let words: Vec<&str> = note.split(' ').collect();
    let (exec, at) = (words[0].parse().unwrap(), words[1].parse().unwrap());
    let number: u64 = words[2].parse().unwrap();
    let shared = Arc::clone(&world.provider);
    let adopting = Context::adopt(shared, &world.cx, exec, at, number + 1, &world.limits, &Spoken::Channel);
    let context = adopting.await.unwrap();
    (context, number)
}

fn a_context_outlives_its_host(dir: &Path) {
    let first = host(dir, |dir| {
        live(dir, async |world, _| {
            let mut context = start(&world).await;
            let interrupter = Context::interrupter();
            let cell = context.execute("x = 41; print('before')", &interrupter, None).await.unwrap();
            assert_eq!(cell.stdout, b"before\n");
            context.commit().await.unwrap();
            // A thread goes on talking between cells, on both ways.
            let talk = "import threading, time\ndef talk():\n    for i in range(200):\n        \
                        display(i)\n        time.sleep(0.005)\nthreading.Thread(target=talk).start()";
            context.execute(talk, &interrupter, None).await.unwrap();
            note(dir, &context);
            let slow = "for i in range(40):\n    print(i, flush=True); time.sleep(0.02)\nx + 1";
            let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
            let tell = move |event| drop(sender.send(event));
            let began = async {
                while !matches!(events.recv().await, Some(ContextEvent::Output { .. }) | None) {}
                std::fs::write(dir.join("began"), "").unwrap();
                while events.recv().await.is_some() {}
            };
            let _ = tokio::join!(context.execute(slow, &interrupter, Some(&tell)), began);
            std::future::pending::<()>().await;
        });
    });
    // In the middle of the cell, wherever that is.
    wait_for(&dir.join("began"));
    std::thread::sleep(Duration::from_millis(250));
    kill(first);
    std::thread::sleep(Duration::from_millis(100));
    live(dir, async |world, provider| {
        let (mut context, number) = adopt(dir, &world, &provider).await;
        let interrupter = Context::interrupter();
        let cell = context.resume_cell(number, &interrupter, None).await.unwrap().expect("the cell ran");
        let printed: String = (0..40).map(|n| format!("{n}\n")).collect();
        assert_eq!(String::from_utf8_lossy(&cell.stdout), printed);
        let main = cell.results.iter().find(|result| result.main).expect("a value");
        assert_eq!((main.data["text/plain"].as_str(), cell.status), (Some("42"), CellStatus::Ok));
        context.commit().await.unwrap();
        // The next cell is not confused by the probe, nor by what the thread said.
        let cell = context.execute("x", &interrupter, None).await.unwrap();
        assert_eq!(cell.results.iter().find(|r| r.main).unwrap().data["text/plain"], "41");
        assert_eq!(cell.execution_count, 4, "a probe counts as a cell");
        context.shut_down().await.unwrap();
    });
}

fn a_cell_that_was_never_sent_is_told_from_one_that_was(dir: &Path) {
    let first = host(dir, |dir| {
        live(dir, async |world, _| {
            let mut context = start(&world).await;
            context.execute("y = 5", &Context::interrupter(), None).await.unwrap();
            // It notes what it is about to do, and dies before it does it.
            note(dir, &context);
            std::future::pending::<()>().await;
        });
    });
    wait_for(&dir.join("note"));
    kill(first);
    live(dir, async |world, provider| {
        let (mut context, number) = adopt(dir, &world, &provider).await;
        let interrupter = Context::interrupter();
        assert_eq!(context.resume_cell(number, &interrupter, None).await.unwrap(), None);
        let cell = context.execute("y", &interrupter, None).await.unwrap();
        assert_eq!(cell.results[0].data["text/plain"], "5");
        context.shut_down().await.unwrap();
    });
}
