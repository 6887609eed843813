//! The reference page of the command line, made from what the command line parses, and the tests that keep the pages
//! under `docs/reference/` true.

use std::fmt::Write;

use clap::{Arg, Command, CommandFactory};

use crate::arguments::Arguments;

/// The text of `docs/reference/cli.md`.
fn page() -> String {
    let mut command = Arguments::command();
    command.build();
    let mut page = include_str!("reference/introduction.txt").to_owned();
    write_flags(
        &mut page,
        "## Flags of every command",
        &mut command.get_arguments().filter(|arg| arg.is_global_set()),
    );
    for one in command.get_subcommands() {
        write_command(&mut page, "sandstorm", one);
    }
    page
}

/// Flags of every command, which are told once.
const ROOT: [&str; 2] = ["config", "state_dir"];

fn write_command(page: &mut String, above: &str, command: &Command) {
    let name = format!("{above} {}", command.get_name());
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    if command.has_subcommands() {
        let shared = |arg: &&Arg| arg.is_global_set() && !ROOT.contains(&arg.get_id().as_str());
        let title = format!("## Flags of every `{name}` command");
        write_flags(page, &title, &mut command.get_arguments().filter(shared));
        // Some do something by themselves as well.
        if !command.is_subcommand_required_set() {
            write_one(page, &name, command);
        }
        command.get_subcommands().for_each(|one| write_command(page, &name, one));
        return;
    }
    write_one(page, &name, command);
}

fn write_one(page: &mut String, name: &str, command: &Command) {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let _ = write!(page, "\n## `{name}`\n\n{about}.\n\n```text\n{usage}\n```\n");
    let own = |arg: &&Arg| !arg.is_global_set() && !matches!(arg.get_id().as_str(), "help" | "version");
    write_flags(page, "", &mut command.get_arguments().filter(own));
    if let Some(more) = command.get_after_help() {
        let _ = write!(page, "\n{more}\n");
    }
}

fn write_flags(page: &mut String, title: &str, flags: &mut dyn Iterator<Item = &Arg>) {
    let mut rows = String::new();
    for flag in flags {
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default().replace('|', "\\|");
        let _ = writeln!(rows, "| {} | {help} |", spelling(flag));
    }
    if rows.is_empty() {
        return;
    }
    if !title.is_empty() {
        let _ = write!(page, "\n{title}\n");
    }
    let _ = write!(page, "\n| argument | meaning |\n|---|---|\n{rows}");
}

/// `-l`, `--language NAME`.
fn spelling(flag: &Arg) -> String {
    let value = flag.get_value_names().unwrap_or_default().join(" ");
    let value = if flag.get_action().takes_values() { value } else { String::new() };
    let Some(long) = flag.get_long() else { return format!("`{value}`") };
    let long = format!("--{long} {value}");
    match flag.get_short() {
        Some(short) => format!("`-{short}`, `{}`", long.trim_end()),
        None => format!("`{}`", long.trim_end()),
    }
}

mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use sandstorm_types::ErrorKind;

    use super::*;

    fn reference() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference")
    }

    #[test]
    fn the_page_is_current() {
        let path = reference().join("cli.md");
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(&path, page()).unwrap();
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == page(),
            "docs/reference/cli.md is out of date; its second line says how to make it"
        );
    }

    #[test]
    fn every_flag_is_explained() {
        assert!(!page().contains("|  |"), "a flag has no help");
        for word in ["--timeout TIME", "`-l`, `--language NAME`", "sandstorm config init", "--matrix"] {
            assert!(page().contains(word), "{word}");
        }
    }

    #[test]
    fn every_error_code_has_its_page() {
        let dir = reference().join("errors");
        let pages: BTreeSet<String> =
            std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        let expected: BTreeSet<String> =
            ErrorKind::ALL.iter().map(|kind| format!("{}.md", kind.code())).collect();
        assert_eq!(pages, expected);
        for kind in ErrorKind::ALL {
            let text = std::fs::read_to_string(dir.join(format!("{}.md", kind.code()))).unwrap();
            for part in [&format!("# `{}`\n", kind.code()), "\n## Usual causes\n", "\n## What to do\n"] {
                assert!(text.contains(part), "{kind}: {part}");
            }
            assert!(page().contains(&format!("(errors/{}.md)", kind.code())), "{kind} is not listed");
        }
    }
}
