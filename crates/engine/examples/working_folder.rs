//! Starts programs in working folders that a hostile caller would ask for, and prints where each of them was.
//!
//! `working_folder RUNTIME_DIR FOLDER…`: for each folder one line, `FOLDER: ` and the words of the program, or `refused`.

use std::io::Write as _;
use std::path::PathBuf;

use sandstorm_engine::{AGENT, LocalConfig, LocalProvider};
use sandstorm_jail::IdRange;
use sandstorm_jail::launcher::{self, Launcher, LauncherConfig};
use sandstorm_provider::{CreateOptions, ExecRequest, OpContext, Provider as _, ProviderExt as _};
use sandstorm_types::{Enforcement, SandboxSpec, TenantId};

/// Says where it is, and what it sees one level up from there and in the host's root, if it got there.
const PROGRAM: &str = "pwd -P; ls -d ../var ../../var ../../../var var 2>/dev/null; true";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let runtime_dir = words.next().map(PathBuf::from).ok_or("usage: working_folder RUNTIME_DIR FOLDER...")?;
    // Left open on purpose, across exec too: a folder of the host that no number inside may lead to.
    let leaked = rustix::fs::open("/", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty())?;
    let Launcher { socket, abilities, .. } = launcher::start(LauncherConfig {
        ids: IdRange { start: 2_013_265_920, blocks: 1024 },
        cgroup_parent: PathBuf::from("sandstorm"),
        runtime_dir,
        space_dir: "/var/tmp".into(),
        agent: AGENT,
        zygotes: Vec::new(),
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let config = LocalConfig::forked("local", socket, abilities);
        let provider = LocalProvider::new(config)?;
        let cx = OpContext::new(TenantId::LOCAL);
        let spec = SandboxSpec { enforcement: Enforcement::BestEffort, ..SandboxSpec::default() };
        let id = provider.create(&cx, &spec, CreateOptions::default()).await?.id;
        let links = "ln -s / to-root; ln -s /proc/self/fd/7 to-descriptor; ln -s ../../.. to-parent";
        provider.exec_collect(&cx, &id, ExecRequest::shell(links)).await?;
        for folder in words {
            let cwd = Some(folder.parse()?);
            let said = match provider
                .exec_collect(&cx, &id, ExecRequest { cwd, ..ExecRequest::shell(PROGRAM) })
                .await
            {
                Ok(done) => {
                    String::from_utf8_lossy(&done.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
                }
                Err(_) => "refused".to_owned(),
            };
            writeln!(std::io::stdout(), "{folder}: {said}")?;
        }
        provider.shut_down().await;
        Ok::<_, Box<dyn std::error::Error>>(())
    })?;
    drop(leaked);
    Ok(())
}
