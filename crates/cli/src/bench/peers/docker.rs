//! Docker, with a daemon of the bench's own: on a socket and a data folder of its own, and stopped with it.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::Signal;

use super::{Common, Peer};
use crate::bench::command::CommandLine;
use crate::bench::server::tell;

/// The image: places to mount on, and nothing that runs.
pub(super) const IMAGE: &str = "sandstorm-bench";

/// A running daemon.
#[derive(Debug)]
pub(super) struct Daemon {
    child: Child,
    client: CommandLine,
}

impl Daemon {
    pub(super) fn start(common: &Common) -> anyhow::Result<Self> {
        let daemon = Path::new("/usr/sbin/dockerd");
        anyhow::ensure!(daemon.exists(), "{} is not installed", daemon.display());
        let folder = common.folder.join("docker");
        std::fs::create_dir_all(&folder).context("could not make a folder for docker")?;
        let address = format!("unix://{}", folder.join("socket").display());
        let log = std::fs::File::create(folder.join("log")).context("could not make the log of docker")?;
        let line = CommandLine::from([daemon])
            .and(["--host", &address, "--data-root"])
            .and([folder.join("data")])
            .and(["--exec-root"])
            .and([folder.join("exec")])
            .and(["--pidfile"])
            .and([folder.join("pid")])
            // No rules and no bridge: the machine's network stays as it is.
            .and(["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-masq=false"]);
        let child = line
            .command()
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("dockerd could not be started")?;
        let client = CommandLine::from(["/usr/bin/docker", "--host"]).and([&address]);
        let mut daemon = Self { child, client };
        daemon.wait(&folder)?;
        let archive = archive(common)?;
        daemon.client.clone().and(["import"]).and([&archive]).and([IMAGE]).told()?;
        Ok(daemon)
    }

    fn wait(&mut self, folder: &Path) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            if self.client.clone().and(["version"]).told().is_ok() {
                return Ok(());
            }
            let ended = self.child.try_wait()?;
            if ended.is_some() || began.elapsed() > Duration::from_secs(30) {
                let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
                bail!("dockerd does not answer: {}", log.lines().last().unwrap_or("it said nothing"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(super) fn client(&self) -> CommandLine {
        self.client.clone()
    }

    /// How it stores images, which decides much of what a start costs.
    pub(super) fn storage(&self) -> anyhow::Result<String> {
        Ok(self.client.clone().and(["info", "--format", "{{.Driver}}"]).told()?.trim().to_owned())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = tell(&self.child, Signal::TERM);
        let began = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if began.elapsed() > Duration::from_secs(20) {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The root that every peer has, as an archive.
pub(super) fn archive(common: &Common) -> anyhow::Result<std::path::PathBuf> {
    let archive = common.folder.join("root.tar");
    if !archive.exists() {
        let line = CommandLine::from(["/usr/bin/tar", "-C"])
            .and([&common.root])
            .and(["-cf"])
            .and([&archive])
            .and(["."]);
        line.told()?;
    }
    Ok(archive)
}

/// The part of a command line that shows the program what a jail shows it.
pub(super) fn view(common: &Common) -> Vec<String> {
    let mounts = &common.mounts;
    let mut arguments = ["--rm", "--network=none", "--read-only", "--workdir=/workspace", "--user=1000:1000"]
        .map(str::to_owned)
        .to_vec();
    arguments.extend(
        ["--cap-drop=ALL", "--security-opt=no-new-privileges", "--env=LANG=C.UTF-8"].map(str::to_owned),
    );
    for path in &mounts.trees {
        arguments.extend(["--volume".to_owned(), format!("{path}:{path}:ro")]);
    }
    // It makes its own.
    for path in mounts.scratch.iter().filter(|path| *path != "/dev/shm") {
        arguments.extend(["--tmpfs".to_owned(), format!("{path}:mode=1777")]);
    }
    arguments
}

pub(super) fn peer(client: CommandLine, common: &Common) -> impl Peer + use<> {
    let view = view(common);
    move |words: &[&str], interactive: bool| {
        let line = client.clone().and(["run"]).and(&view);
        let line = if interactive { line.and(["--interactive"]) } else { line };
        Ok(line.and([IMAGE]).and(words.iter().copied()))
    }
}
