//! The library in real sandboxes: contexts, also of a host that is killed, and files.
//!
//! A program of its own and not a harnessed test: the launcher must be forked before any thread exists.

#![expect(clippy::print_stdout, reason = "this is a test's report")]
#![expect(clippy::unwrap_used, reason = "a test that finds nothing where something must be has failed")]

/// Names cases once: each becomes a function to call and a line of the report.
macro_rules! cases {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), |world| Box::pin($name(world)))),*] };
}

mod contexts;
mod files;
mod takeover;
mod world;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandstorm_engine::{AGENT, LocalConfig, LocalProvider};
use sandstorm_jail::IdRange;
use sandstorm_jail::launcher::{self, LauncherConfig};

use world::World;

fn main() -> ExitCode {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let (mut passed, mut failed) = (0, 0);
    // These fork, so they come before everything that has threads.
    for (name, case) in takeover::CASES.iter().filter(|(name, _)| name.contains(&filter)) {
        let began = Instant::now();
        let ok = takeover::run(*case);
        println!("{name} ... {} ({:.1} s)", if ok { "ok" } else { "FAILED" }, began.elapsed().as_secs_f64());
        if ok { passed += 1 } else { failed += 1 }
    }
    let launcher = launcher::start(LauncherConfig {
        ids: IdRange { start: 2_013_265_920, blocks: 2000 },
        cgroup_parent: "sandstorm".into(),
        runtime_dir: std::env::temp_dir().join(format!("sandstorm-engine-{}", std::process::id())),
        space_dir: "/var/tmp".into(),
        agent: AGENT,
        zygotes: Vec::new(),
    })
    .expect("the launcher starts");
    let pid = launcher.pid();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let provider = runtime.block_on(async {
        let config = LocalConfig::forked("local", launcher.socket, launcher.abilities);
        Arc::new(LocalProvider::new(config).expect("the engine starts"))
    });
    let world = World::new(Arc::clone(&provider) as Arc<_>);
    for (name, case) in contexts::CASES.iter().chain(files::CASES).filter(|(name, _)| name.contains(&filter))
    {
        let ok = run(&runtime, &world, name, *case);
        if ok { passed += 1 } else { failed += 1 }
    }
    drop(world);
    runtime.block_on(Arc::into_inner(provider).expect("nobody else holds the provider").shut_down());
    drop(runtime);
    launcher::Launcher::join(pid).expect("the launcher ends");
    let _ = std::fs::remove_dir_all(
        std::env::temp_dir().join(format!("sandstorm-engine-{}", std::process::id())),
    );
    println!("engine: {passed} passed, {failed} failed");
    if failed == 0 && (passed > 0 || !filter.is_empty()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(runtime: &tokio::runtime::Runtime, world: &World, name: &str, case: world::Run) -> bool {
    let began = Instant::now();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        runtime.block_on(async {
            tokio::time::timeout(longest(), case(world)).await.expect("the case takes too long");
        });
    }));
    let word = if outcome.is_ok() { "ok" } else { "FAILED" };
    println!("{name} ... {word} ({:.1} s)", began.elapsed().as_secs_f64());
    outcome.is_ok()
}

/// How long a case may take: longer when long races are asked for.
fn longest() -> Duration {
    let long = std::env::var_os("SANDSTORM_RACE_ROUNDS").is_some();
    Duration::from_secs(if long { 3600 } else { 300 })
}
