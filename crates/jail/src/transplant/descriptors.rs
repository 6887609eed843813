//! What a guest has open. Only its three streams and its side channel can be mirrored: the destination has its own.

use super::error::{Cause, doing};
use super::process::Process;

/// Most descriptors that are looked at; more are refused anyway.
const MOST: usize = 64;

/// The open descriptors of a guest: which of the three streams, and the side channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Descriptors {
    pub(super) streams: [bool; 3],
    pub(super) side: i32,
    pub(super) close_on_exec: bool,
}

impl Descriptors {
    /// Fails with the name of what else is open. `inode`: the one that the side channel has to have, if known.
    pub(super) fn of(process: &Process, side: i32, inode: Option<u64>) -> Result<Self, Cause> {
        let mut found = Self { streams: [false; 3], side, close_on_exec: false };
        let mut others = Vec::new();
        let mut side_is_open = false;
        for (number, target) in list(process)? {
            let is_stream = usize::try_from(number).ok().filter(|number| *number < 3);
            match is_stream {
                Some(stream) if target.starts_with("pipe:[") => found.streams[stream] = true,
                _ if number == side && is_side(&target, inode) => side_is_open = true,
                _ => others.push(format!("{} (descriptor {number})", describe(&target))),
            }
        }
        if !others.is_empty() {
            let what = others.join(", ");
            return Err(Cause::refused(format!(
                "the {} has open what cannot be carried: {what}",
                process.who
            )));
        }
        if !side_is_open {
            return Err(Cause::refused(format!("the {} does not wait on its side channel", process.who)));
        }
        found.close_on_exec = flags(process, side)? & CLOSE_ON_EXEC != 0;
        Ok(found)
    }
}

const CLOSE_ON_EXEC: u64 = 0o2_000_000;

fn is_side(target: &str, inode: Option<u64>) -> bool {
    match inode {
        Some(inode) => target == format!("socket:[{inode}]"),
        None => target.starts_with("socket:["),
    }
}

/// Numbers and what they lead to, in order.
fn list(process: &Process) -> Result<Vec<(i32, String)>, Cause> {
    let failed = |e| process.failed("fd", e);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(process.path("fd")).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(target) = process.link(&format!("fd/{number}"))? {
            found.push((number, target.to_string_lossy().into_owned()));
        }
        if found.len() > MOST {
            return Err(Cause::refused(format!("the {} has over {MOST} descriptors open", process.who)));
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn describe(target: &str) -> String {
    match target.split_once(':') {
        Some(("socket", _)) => "a socket".to_owned(),
        Some(("pipe", _)) => "a pipe".to_owned(),
        Some(("anon_inode", kind)) => format!("a kernel object {kind}"),
        _ => format!("an open file {target}"),
    }
}

fn flags(process: &Process, number: i32) -> Result<u64, Cause> {
    let name = format!("fdinfo/{number}");
    let text = process.text(&name, 64 << 10)?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    flags
        .and_then(|flags| u64::from_str_radix(flags.trim(), 8).ok())
        .ok_or_else(|| doing(format!("read {name}"))(std::io::ErrorKind::InvalidData.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_have_names() {
        assert_eq!(describe("/workspace/x"), "an open file /workspace/x");
        assert_eq!(describe("socket:[1]"), "a socket");
        assert_eq!(describe("anon_inode:[eventpoll]"), "a kernel object [eventpoll]");
    }

    #[test]
    fn a_file_cannot_pass_for_the_side_channel() {
        assert!(is_side("socket:[12]", Some(12)) && is_side("socket:[12]", None));
        assert!(!is_side("socket:[12]", Some(1)) && !is_side("/workspace/socket:[12]", None));
    }
}
