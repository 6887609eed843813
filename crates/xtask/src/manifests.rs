//! What every crate's manifest says: what the crate is for, and that the
//! workspace's lints hold in it.

use toml::{Table, Value};

use crate::report::Report;
use crate::tree::Tree;

/// Cargo cannot inherit a lint table and change one line of it, so the one crate
/// that may hold unsafe code has a table of its own.
const UNSAFE_HOME: &str = "crates/sys/Cargo.toml";

pub(crate) fn check(tree: &Tree, report: &mut Report) {
    for (path, text) in tree.with_extension("toml") {
        if !path.starts_with("crates/") || !path.ends_with("/Cargo.toml") {
            continue;
        }
        // A manifest that does not parse is reported by the check of the arrows.
        let Ok(manifest) = text.parse::<Table>() else { continue };
        let described = manifest.get("package").and_then(|package| package.get("description"));
        if described.and_then(Value::as_str).is_none_or(|text| text.trim().is_empty()) {
            report.error(format!("{path}: no description"));
        }
        let lints = manifest.get("lints");
        if path == UNSAFE_HOME {
            let explained = lints.and_then(|lints| lints.get("clippy")?.get("undocumented_unsafe_blocks"));
            if explained.and_then(Value::as_str) != Some("deny") {
                report.error(format!("{path}: unsafe blocks without a SAFETY comment are not denied"));
            }
        } else if lints.and_then(|lints| lints.get("workspace")?.as_bool()) != Some(true) {
            report.error(format!("{path}: the lints of the workspace are not switched on"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors_in(path: &str, text: &str) -> usize {
        let mut report = Report::default();
        check(&Tree::of(&[(path, text)]), &mut report);
        report.errors.len()
    }

    fn errors(text: &str) -> usize {
        errors_in("crates/jail/Cargo.toml", text)
    }

    #[test]
    fn the_home_of_unsafe_code_must_deny_unexplained_blocks() {
        let table = |level| {
            format!(
                "[package]\ndescription = \"x\"\n[lints.clippy]\nundocumented_unsafe_blocks = \"{level}\"\n"
            )
        };
        assert_eq!(errors_in(UNSAFE_HOME, &table("deny")), 0);
        assert_eq!(errors_in(UNSAFE_HOME, &table("warn")), 1);
        assert_eq!(errors_in(UNSAFE_HOME, "[package]\ndescription = \"x\"\n"), 1);
    }

    #[test]
    fn a_complete_manifest_passes() {
        assert_eq!(errors("[package]\ndescription = \"a jail\"\n[lints]\nworkspace = true\n"), 0);
    }

    #[test]
    fn a_missing_or_empty_description_is_an_error() {
        assert_eq!(errors("[package]\n[lints]\nworkspace = true\n"), 1);
        assert_eq!(errors("[package]\ndescription = \" \"\n[lints]\nworkspace = true\n"), 1);
    }

    #[test]
    fn lints_of_its_own_are_an_error() {
        assert_eq!(errors("[package]\ndescription = \"a jail\"\n"), 1);
        assert_eq!(errors("[package]\ndescription = \"a jail\"\n[lints.rust]\nunsafe_code = \"allow\"\n"), 1);
    }
}
