//! Podman, with storage of the bench's own.

use super::{Common, Peer, docker};
use crate::bench::command::CommandLine;

/// The beginning of every command line, with the image in place.
pub(super) fn client(common: &Common) -> anyhow::Result<CommandLine> {
    let folder = common.folder.join("podman");
    let client = CommandLine::from(["/usr/bin/podman", "--root"])
        .and([folder.join("root")])
        .and(["--runroot"])
        .and([folder.join("run")])
        .and(["--tmpdir"])
        .and([folder.join("tmp")])
        // The runtime that knows hybrid control groups, and a manager that needs no other daemon.
        .and(["--runtime=/usr/sbin/runc", "--cgroup-manager=cgroupfs", "--events-backend=file"]);
    let archive = docker::archive(common)?;
    client.clone().and(["import"]).and([&archive]).and([docker::IMAGE]).told()?;
    Ok(client)
}

pub(super) fn peer(client: CommandLine, common: &Common) -> impl Peer + use<> {
    let view = docker::view(common);
    move |words: &[&str], interactive: bool| {
        // Its defaults raise limits, which root may not do everywhere.
        let line =
            client.clone().and(["run", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"]).and(&view);
        let line = if interactive { line.and(["--interactive"]) } else { line };
        Ok(line.and([docker::IMAGE]).and(words.iter().copied()))
    }
}
