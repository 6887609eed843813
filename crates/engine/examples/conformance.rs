//! Judges the local provider by the suite for all providers and prints the report.
//!
//! `conformance RUNTIME_DIR [PREFIX]`: leases and locks go below the folder; only cases whose `suite/name` starts with
//! the prefix run. A program of its own and no test, because the launcher must be forked before any thread exists.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use sandstorm_engine::{AGENT, LocalConfig, LocalProvider, SnapshotConfig};
use sandstorm_jail::IdRange;
use sandstorm_jail::launcher::{self, Launcher, LauncherConfig};
use sandstorm_provider::conformance;
use sandstorm_types::ByteSize;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let runtime_dir = words.next().map(PathBuf::from).ok_or("usage: conformance RUNTIME_DIR [PREFIX]")?;
    let prefix = words.next().unwrap_or_default();
    let saved = runtime_dir.join("snapshots");
    let launcher = launcher::start(LauncherConfig {
        ids: IdRange { start: 2_013_265_920, blocks: 1024 },
        cgroup_parent: PathBuf::from("sandstorm"),
        runtime_dir,
        space_dir: "/var/tmp".into(),
        agent: AGENT,
        zygotes: Vec::new(),
    })?;
    let pid = launcher.pid();
    let Launcher { socket, abilities, .. } = launcher;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        let snapshots = Some(SnapshotConfig { folder: saved, most: ByteSize::gib(1) });
        let config = LocalConfig { snapshots, ..LocalConfig::forked("local", socket, abilities) };
        let provider = LocalProvider::new(config)?;
        let report = conformance::run_cases(&provider, &prefix).await;
        provider.shut_down().await;
        Ok::<_, std::io::Error>(report)
    })?;
    drop(runtime);
    Launcher::join(pid)?;
    write!(std::io::stdout(), "{report}")?;
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
