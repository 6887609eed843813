//! Links between Markdown files of the repository lead somewhere.

use crate::report::Report;
use crate::tree::Tree;

pub(crate) fn check(tree: &Tree, report: &mut Report) {
    for (path, text) in tree.with_extension("md") {
        let mut fence: Option<&str> = None;
        for (index, line) in text.lines().enumerate() {
            let start = line.trim_start();
            match fence {
                Some(mark) => {
                    if start.starts_with(mark) {
                        fence = None;
                    }
                    continue;
                }
                None => {
                    fence = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
                    if fence.is_some() {
                        continue;
                    }
                }
            }
            for target in targets(&without_code(line)) {
                if !resolves(tree, path, &target) {
                    report.error(format!("{path}:{}: link to {target} leads nowhere", index + 1));
                }
            }
        }
    }
}

/// The line without `inline code`.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// Targets of `[text](target "title")` and of `[name]: target`.
fn targets(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let definition = line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    if let Some((_, target)) = definition {
        found.extend(first_word(target));
    }
    for (at, mark) in line.match_indices("](") {
        let rest = &line[at + mark.len()..];
        let inside = rest.split_once(')').map_or(rest, |(inside, _)| inside);
        found.extend(first_word(inside));
    }
    found
}

fn first_word(text: &str) -> Option<String> {
    let word = text.split_whitespace().next()?;
    Some(word.trim_matches(['<', '>']).to_owned())
}

fn resolves(tree: &Tree, from: &str, target: &str) -> bool {
    let outside = target.contains("://") || target.starts_with("mailto:") || target.starts_with('#');
    if outside {
        return true;
    }
    let file = target.split('#').next().unwrap_or(target);
    normalise(from, file).is_some_and(|path| tree.holds(&path))
}

/// Path from the root of the repository; `None` when the link leaves it.
fn normalise(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    if target.starts_with('/') {
        parts.clear();
    }
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> Vec<String> {
        let tree = Tree::of(&[
            ("docs/guides/first.md", text),
            ("docs/reference/errors.md", ""),
            ("docs/picture.svg", ""),
            ("README.md", ""),
        ]);
        let mut report = Report::default();
        check(&tree, &mut report);
        report.errors
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let text = "[a](../reference/errors.md#kinds) ![p](../picture.svg \"t\") [b](../../README.md) [c](..)\n\
                    [d](#here) [e](https://example.com/x) [f](<../picture.svg>)\n[g]: ../reference/errors.md\n";
        assert!(errors(text).is_empty(), "{:?}", errors(text));
    }

    #[test]
    fn a_link_to_an_absent_file_is_an_error() {
        assert_eq!(
            errors("ok\n[a](../reference/error.md)"),
            ["docs/guides/first.md:2: link to ../reference/error.md leads nowhere"]
        );
        assert_eq!(errors("[a](second.md) and [b](third.md)").len(), 2);
        assert_eq!(errors("[a]: second.md").len(), 1);
    }

    #[test]
    fn a_link_that_leaves_the_repository_is_an_error() {
        assert_eq!(errors("[a](../../../README.md)").len(), 1);
    }

    #[test]
    fn code_is_not_a_link() {
        assert!(errors("`[a](b.md)`\n```text\n[a](b.md)\n```\n~~~\n[a](b.md)\n~~~\n").is_empty());
        assert_eq!(errors("```text\n```\n[a](b.md)").len(), 1);
    }
}
