//! The template `host`: this machine's own programs and libraries, read-only, and a generated `/etc`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::spec::{RootSpec, Tree};

/// Trees of the host that every sandbox sees. Where the host has a link instead of a directory, so has the sandbox.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Parts of `/etc` that programs need to find their own: they are public and hold no secret.
const ETC: [&str; 4] = ["/etc/alternatives", "/etc/ld.so.cache", "/etc/ssl/certs", "/etc/ssl/openssl.cnf"];

/// Programs that the host does not have, or that do not work without its rights. They are found by whoever has the folder in
/// `PATH`.
pub const PROGRAMS: &str = "/etc/sandstorm/bin";

const PYTHON: &str = "/usr/bin/python3";

/// Runs what it is asked to with the rights that the caller has: there are no others to be had inside.
const SUDO: &[u8] = include_bytes!("template/sudo.sh");

/// What a caller adds to the host's own.
#[derive(Debug, Clone, Default)]
pub struct Additions {
    /// Further trees: toolchains named in the configuration, dependency layers.
    pub trees: Vec<Tree>,
    /// The name server to write, if names can be resolved at all.
    pub name_server: Option<std::net::IpAddr>,
}

/// The paths of the host that the template itself shows.
pub(crate) fn host_paths() -> impl Iterator<Item = &'static Path> {
    SYSTEM.into_iter().chain(ETC).map(Path::new)
}

/// Describes the root of a sandbox on this host.
pub fn host(scratch_bytes: u64, scratch_inodes: u64, additions: Additions) -> RootSpec {
    let mut trees = Vec::new();
    let mut links = Vec::new();
    for path in SYSTEM.into_iter().chain(ETC).map(Path::new) {
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => {
                if let Ok(target) = fs::read_link(path) {
                    links.push((path.to_owned(), target));
                }
            }
            Ok(_) => trees.push(same(path)),
            Err(_) => {}
        }
    }
    trees.extend(additions.trees);
    // Many programs ask for the interpreter by the name that a host may not have.
    if Path::new(PYTHON).exists() && !Path::new("/usr/bin/python").exists() {
        links.push((Path::new(PROGRAMS).join("python"), PYTHON.into()));
    }
    let mut files = etc(additions.name_server);
    files.push((Path::new(PROGRAMS).join("sudo"), SUDO.into()));
    RootSpec {
        trees,
        links,
        files,
        scratch_bytes,
        scratch_inodes,
        scratch_on_disk: false,
        exposed: Vec::new(),
    }
}

fn same(path: &Path) -> Tree {
    Tree { source: path.to_owned(), target: path.to_owned() }
}

/// The generated part of `/etc`. Without a network the resolver file is empty, so that look-ups fail at once.
fn etc(name_server: Option<std::net::IpAddr>) -> Vec<(PathBuf, Vec<u8>)> {
    let resolver = name_server.map(|address| format!("nameserver {address}\n")).unwrap_or_default();
    [
        (
            "/etc/passwd",
            "root:x:0:0:root:/root:/bin/bash\n\
             user:x:1000:1000:user:/home/user:/bin/bash\n\
             nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
                .to_owned(),
        ),
        ("/etc/group", "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n".to_owned()),
        ("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n127.0.1.1 sandbox\n".to_owned()),
        ("/etc/hostname", "sandbox\n".to_owned()),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n".to_owned()),
        ("/etc/resolv.conf", resolver),
        ("/etc/os-release", fs::read_to_string("/usr/lib/os-release").unwrap_or_default()),
    ]
    .into_iter()
    .map(|(path, content)| (PathBuf::from(path), content.into_bytes()))
    .collect()
}
