//! Ways to isolate that this machine has. The jail is ours; the others are looked for, and not used yet.

use std::path::{Path, PathBuf};

use sandstorm_types::ErrorKind;

use super::check::Check;
use super::probe::Probe;

const GROUP: &str = "engines";

/// Where programs of the system are.
const FOLDERS: [&str; 6] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Name, program and how to get it.
const OTHERS: [(&str, &str, &str); 6] = [
    ("bwrap", "bwrap", "apt-get install bubblewrap"),
    ("runc", "runc", "apt-get install runc"),
    ("runsc", "runsc", "install gVisor's runsc (Debian: from the backports of the release)"),
    ("docker", "docker", "apt-get install docker.io"),
    ("podman", "podman", "apt-get install podman"),
    ("qemu", QEMU, "apt-get install qemu-system"),
];

#[cfg(target_arch = "x86_64")]
const QEMU: &str = "qemu-system-x86_64";
#[cfg(not(target_arch = "x86_64"))]
const QEMU: &str = "qemu-system-aarch64";

pub(crate) fn checks(probe: &Probe<'_>) -> Vec<Check> {
    let mut all = jail(probe);
    all.extend(OTHERS.iter().map(|(name, program, install)| match find(program) {
        Some(path) => {
            let said = probe.ask(&[&path.to_string_lossy(), "--version"]).unwrap_or_default();
            let version = version_in(&said).unwrap_or("version unknown");
            Check::ok(GROUP, *name, format!("{version} at {}; not used yet", path.display()))
        }
        None => Check::missing(GROUP, *name, "not installed; not used yet", *install),
    }));
    all
}

fn jail(probe: &Probe<'_>) -> Vec<Check> {
    let made = match &probe.made {
        Ok(made) => made,
        Err(e) => return vec![Check::broken(GROUP, "jail", chain(e), Some(advice(e)))],
    };
    let took = format!("works: a fresh sandbox took {:.0} ms", made.took.as_secs_f64() * 1000.0);
    let strict = match &probe.strict {
        Ok(()) => Check::ok(GROUP, "jail --strict", "every wall and limit can be had"),
        Err(e) => Check::missing(
            GROUP,
            "jail --strict",
            format!("refused: {}", chain(e)),
            "see what is missing above",
        ),
    };
    let network = match &probe.network {
        Ok(()) => Check::ok(GROUP, "jail --network", "connections of sandboxes can be let out by name"),
        Err(e) => {
            let fix =
                "load nf_tables, nft_chain_nat and nft_redir with modprobe, or boot a kernel that has them";
            Check::missing(GROUP, "jail --network", format!("only `none` works: {}", chain(e)), fix)
        }
    };
    let mut all = vec![Check::ok(GROUP, "jail", took), strict, network];
    all.extend(made.walls.missing.iter().map(|wall| {
        let fix = wall.fix.clone().unwrap_or_else(|| "none is known".to_owned());
        Check::missing(GROUP, format!("jail: {}", wall.name), wall.reason.clone(), fix)
    }));
    all
}

pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = inner.source();
    }
    text
}

/// The commonest reasons for no jail at all, by what the kernel refused.
pub(super) fn advice(error: &sandstorm_provider::Error) -> String {
    let text = chain(error);
    if text.contains("user namespaces") {
        return "see the switches of the kernel above; in a container, allow it to make user namespaces"
            .to_owned();
    }
    if text.contains("'proc'") {
        return "the container around us masks /proc: start it with --security-opt systempaths=unconfined"
            .to_owned();
    }
    if text.contains("fork the launcher") {
        return "end other programs of this user, or raise the limit of its processes (`ulimit -u`)"
            .to_owned();
    }
    if text.contains("could not use") {
        return "remove that folder, or set XDG_RUNTIME_DIR to one of your own".to_owned();
    }
    match error.kind() {
        ErrorKind::Capacity => "end other sandboxes, or raise ids.blocks in the configuration".to_owned(),
        _ => "see what is broken above; in a container, start it with --privileged or run outside".to_owned(),
    }
}

fn find(program: &str) -> Option<PathBuf> {
    FOLDERS.iter().map(|dir| Path::new(dir).join(program)).find(|path| path.is_file())
}

/// The first word that is a version: digits with dots.
fn version_in(text: &str) -> Option<&str> {
    text.split(|c: char| c.is_whitespace() || c == ',' || c == '(')
        .map(|word| word.trim_start_matches(['v', '-']).trim_start_matches("release-"))
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_print() {
        for (said, version) in [
            ("bubblewrap 0.8.0\n", "0.8.0"),
            ("runc version 1.1.5+ds1\ncommit: 1.1.5", "1.1.5+ds1"),
            ("Docker version 26.1.5+dfsg1, build a72d7cd", "26.1.5+dfsg1"),
            ("QEMU emulator version 7.2.15 (Debian 1:7.2+dfsg-7)", "7.2.15"),
            ("runsc version release-20250101.0\nspec: 1.1.0", "20250101.0"),
        ] {
            assert_eq!(version_in(said), Some(version));
        }
        assert_eq!(version_in("no idea"), None);
    }
}
