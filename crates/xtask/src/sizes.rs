//! Long files, listed so that somebody looks for the second idea in them.

use crate::report::Report;
use crate::tree::Tree;

const LONG: usize = 800;
const WRITTEN_BY_HAND: &[&str] = &["rs", "py", "js", "ts", "go", "sh"];

pub(crate) fn check(tree: &Tree, report: &mut Report) {
    for extension in WRITTEN_BY_HAND {
        for (path, text) in tree.with_extension(extension) {
            let lines = text.lines().count();
            if lines > LONG {
                report.warning(format!("{path}: {lines} lines"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_past_the_mark_are_listed() {
        let (long, short) = ("x\n".repeat(LONG + 1), "x\n".repeat(LONG));
        let tree = Tree::of(&[("a.rs", &long), ("b.rs", &short), ("c.lock", &long)]);
        let mut report = Report::default();
        check(&tree, &mut report);
        assert_eq!(report.warnings, ["a.rs: 801 lines"]);
        assert!(report.errors.is_empty());
    }
}
