//! `path::name` of a test, and whether it stands for a test that runs.

use crate::source::{code_only, words};
use crate::tree::Tree;

/// Why `reference` proves nothing; `None` when it names a test that runs.
pub(crate) fn problem(tree: &Tree, reference: &str) -> Option<String> {
    let Some((path, rest)) = reference.split_once("::") else {
        return Some(format!("{reference} is not path::name"));
    };
    // Modules between file and function are for the reader.
    let name = rest.rsplit("::").next().unwrap_or(rest);
    if name.is_empty() {
        return Some(format!("{reference} is not path::name"));
    }
    let Some(text) = tree.text(path) else {
        return Some(format!("{path} does not exist"));
    };
    if path.ends_with(".rs") {
        return rust_problem(&code_only(text), name).map(|why| format!("{reference} {why}"));
    }
    let named = words(text, name).next().is_some();
    (!named).then(|| format!("{reference}: the file does not contain that name"))
}

fn rust_problem(code: &str, name: &str) -> Option<&'static str> {
    let functions = words(code, name).filter_map(|at| code[..at].trim_end().strip_suffix("fn"));
    // Some tests are listed: where the usual harness is not used, or where each runs on both databases.
    if listed_as_case(code, name) && words(code, name).any(|at| code[..at].trim_end().ends_with("fn")) {
        return None;
    }
    // One file may hold the same name in two modules: one that runs is enough.
    let mut worst = "does not exist";
    for before in functions {
        let attributes = attributes(before);
        if !attributes.contains("#[test]")
            && !attributes.contains("::test]")
            && !attributes.contains("::test(")
        {
            worst = "is a function but no test";
        } else if attributes.contains("#[ignore") {
            worst = "is ignored";
        } else {
            return None;
        }
    }
    Some(worst)
}

fn listed_as_case(code: &str, name: &str) -> bool {
    [("cases![", ']'), ("&[Case] = &[", ']'), ("on_both!(", ')')].into_iter().any(|(start, end)| {
        let list = code.split_once(start).and_then(|(_, rest)| rest.split_once(end));
        list.is_some_and(|(list, _)| words(list, name).next().is_some())
    })
}

/// What stands between the end of the previous item and the `fn`, without
/// spaces. Strings are blank already, so no brace in there is one of a string.
fn attributes(before: &str) -> String {
    let start = before.rfind(['{', '}']).map_or(0, |at| at + 1);
    before[start..].split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
//! fn only_in_a_comment
fn helper() {}
#[test]
fn plain() {}
/// Says why.
#[tokio::test(flavor = \"multi_thread\")]
async fn runs_async() { let s = \"}\"; }
#[test]
#[ignore = \"long\"]
fn slept() {}
mod one {
    #[test]
    #[ignore]
    fn twice() {}
}
mod two {
    #[test]
    fn twice() {}
}
";

    fn found(reference: &str) -> Option<String> {
        problem(&Tree::of(&[("t.rs", FILE), ("t.py", "def test_interrupt(self):\n")]), reference)
    }

    #[test]
    fn tests_that_run_are_accepted() {
        for reference in
            ["t.rs::plain", "t.rs::module::plain", "t.rs::runs_async", "t.rs::twice", "t.py::test_interrupt"]
        {
            assert_eq!(found(reference), None);
        }
    }

    #[test]
    fn a_listed_case_is_accepted_and_an_unlisted_one_is_not() {
        let file = "const CASES: &[Case] = cases![\n    runs,\n    gone,\n];\nasync fn runs() {}\nasync fn helps() {}\n";
        let found = |name: &str| problem(&Tree::of(&[("c.rs", file)]), &format!("c.rs::{name}"));
        assert_eq!(found("runs"), None);
        assert!(found("helps").is_some() && found("gone").is_some() && found("run").is_some());
        let file = "on_both!(\n    runs,\n    gone\n);\nasync fn runs(case: Case) {}\nasync fn helps(case: Case) {}\n";
        let found = |name: &str| problem(&Tree::of(&[("c.rs", file)]), &format!("c.rs::{name}"));
        assert_eq!(found("runs"), None);
        assert!(found("helps").is_some() && found("gone").is_some());
    }

    #[test]
    fn an_absent_test_is_refused() {
        assert_eq!(found("t.rs::plai"), Some("t.rs::plai does not exist".into()));
        assert_eq!(found("t.rs::only_in_a_comment"), Some("t.rs::only_in_a_comment does not exist".into()));
        assert_eq!(found("u.rs::plain"), Some("u.rs does not exist".into()));
        assert!(found("t.py::test_inter").is_some());
    }

    #[test]
    fn a_function_that_is_no_test_is_refused() {
        assert_eq!(found("t.rs::helper"), Some("t.rs::helper is a function but no test".into()));
    }

    #[test]
    fn an_ignored_test_is_refused() {
        assert_eq!(found("t.rs::slept"), Some("t.rs::slept is ignored".into()));
    }

    #[test]
    fn a_reference_needs_path_and_name() {
        assert!(found("t.rs").is_some());
        assert!(found("t.rs::").is_some());
    }
}
