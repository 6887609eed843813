//! Files as people see them.

use std::io;

use sandstorm_client::{FileChange, FileInfo, FileKind, FoundPaths, Listing};
use sandstorm_types::GuestPath;

use super::super::table::{Cell, Table};
use super::super::{Output, units};
use crate::complaint::{note, paints, safe};

pub(super) fn listing(output: Output, below: &GuestPath, listing: &Listing) -> io::Result<()> {
    output.show(listing, || table(below, &listing.entries).text(paints(&io::stdout())))?;
    warn(output, listing.more);
    Ok(())
}

/// What is not shown must not be taken for what is not there.
fn warn(output: Output, more: bool) {
    if more && !output.json {
        note("there is more than is shown");
    }
}

fn table(below: &GuestPath, entries: &[FileInfo]) -> Table {
    let mut table = Table::new(&["MODE", "SIZE", "MODIFIED", "NAME"]);
    for entry in entries {
        let name =
            entry.path.relative_to(below).filter(|name| !name.is_empty()).unwrap_or(entry.path.as_str());
        let size = if entry.kind == FileKind::File { units::bytes(entry.size) } else { "-".to_owned() };
        let name = match (entry.kind, &entry.target) {
            (FileKind::Directory, _) => Cell::painted(format!("{name}/"), "1;34"),
            (FileKind::Link, Some(target)) => Cell::painted(format!("{name} -> {target}"), "36"),
            (FileKind::Link, None) => Cell::painted(name, "36"),
            (FileKind::File, _) if entry.mode & 0o111 != 0 => Cell::painted(name, "32"),
            _ => name.into(),
        };
        table.row([mode(entry).into(), size.into(), entry.modified.to_string().into(), name]);
    }
    table
}

/// `drwxr-xr-x`.
fn mode(entry: &FileInfo) -> String {
    let kind = match entry.kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Link => 'l',
        FileKind::Other => '?',
    };
    let bit = |place: u32| match entry.mode >> place & 1 {
        0 => '-',
        _ => ['x', 'w', 'r'][place as usize % 3],
    };
    std::iter::once(kind).chain((0..9).rev().map(bit)).collect()
}

/// A file's facts with its bits as people know them.
pub(super) fn for_people(info: &FileInfo) -> serde_json::Value {
    let mut value = serde_json::to_value(info).unwrap_or_default();
    value["mode"] = mode(info).into();
    value
}

pub(super) fn found(output: Output, found: &FoundPaths) -> io::Result<()> {
    output.show(found, || found.paths.iter().map(|path| format!("{}\n", safe(path.as_str()))).collect())?;
    warn(output, found.more);
    Ok(())
}

pub(super) fn change(output: Output, change: &FileChange) -> io::Result<()> {
    output.show(change, || {
        let from = change.from.as_ref().map(|from| format!("  from {from}")).unwrap_or_default();
        format!("{:<9} {}{}\n", safe(&change.change), safe(change.path.as_str()), safe(&from))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_for_people() {
        let entry = |path: &str, kind: &str, mode: u32, target: Option<&str>| -> FileInfo {
            serde_json::from_value(serde_json::json!({
                "path": path, "kind": kind, "size": 2048, "mode": format!("{mode:04o}"), "target": target,
                "modified": "2026-11-15T12:00:00.000Z",
            }))
            .unwrap()
        };
        let entries = [
            entry("/workspace/deep", "directory", 0o755, None),
            entry("/workspace/deep/run.sh", "file", 0o750, None),
            entry("/workspace/evil\u{1b}[2J", "file", 0o644, None),
            entry("/workspace/link", "link", 0o777, Some("/etc/passwd")),
            entry("/workspace/pipe", "of_the_future", 0o600, None),
        ];
        insta::assert_snapshot!(table(&GuestPath::workspace(), &entries).text(false));
    }
}
