//! The report as people read it.

use std::io::{self, Write};

use super::check::{Check, Outcome};
use crate::complaint::safe;

/// One block for each group, names aligned, the fix below what needs one.
pub(crate) fn write(out: &mut impl Write, checks: &[Check], colours: bool) -> io::Result<()> {
    let width = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
    let mut group = "";
    for check in checks {
        if check.group != group {
            let gap = if group.is_empty() { "" } else { "\n" };
            writeln!(out, "{gap}{}", paint(check.group, "1", colours))?;
            group = check.group;
        }
        let mark = paint(&format!("{:<7}", check.outcome.word()), colour(check.outcome), colours);
        writeln!(out, "  {mark}  {:<width$}  {}", safe(&check.name), safe(&check.meaning))?;
        if let Some(fix) = &check.fix {
            writeln!(out, "  {:<7}  {:<width$}  {} {}", "", "", paint("fix:", "36", colours), safe(fix))?;
        }
    }
    Ok(())
}

pub(crate) fn paint(text: &str, code: &str, colours: bool) -> String {
    if colours { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}

fn colour(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Ok => "32",
        Outcome::Missing => "33",
        Outcome::Broken => "1;31",
        Outcome::Untried => "2",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(colours: bool) -> String {
        let checks = [
            Check::ok("kernel", "a", "fine"),
            Check::missing("kernel", "longer", "not there", "get it"),
            Check::broken("engines", "jail", "evil\u{1b}[2J", None),
        ];
        let mut out = Vec::new();
        write(&mut out, &checks, colours).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_are_aligned_and_groups_apart() {
        let expected = "kernel\n  ok       a       fine\n  missing  longer  not there\n                   fix: get it\n\nengines\n  \
                        broken   jail    evil\u{fffd}[2J\n";
        assert_eq!(text(false), expected);
    }

    #[test]
    fn colours_are_the_only_escapes() {
        assert!(text(true).contains("\u{1b}[32mok     \u{1b}[0m"));
        assert!(!text(true).contains("\u{1b}[2J"));
    }
}
