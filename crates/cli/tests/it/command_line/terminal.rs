//! Colours and progress: on a terminal, and only there.

use std::process::{Command, Stdio};

use crate::support::{Place, Who, binary, run, sandstorm, stderr, stdout};

/// What a terminal receives, both streams together. `script` makes the terminal.
fn on_terminal(line: &str, no_color: bool) -> String {
    let state = Place::new();
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", line, "/dev/null"]).stdin(Stdio::null());
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/nonexistent")
        .env("TERM", "xterm-256color");
    command.env("S", binary()).env("SANDSTORM_STATE_DIR", state.path());
    if no_color {
        command.env("NO_COLOR", "1");
    }
    stdout(&command.output().unwrap())
}

#[test]
fn a_pipe_gets_no_escapes() {
    let place = Place::new();
    let wrong = place.write("wrong.c", "int main(void) { return oops; }");
    for args in [
        &["doctor"][..],
        &["languages"],
        &["run", wrong.to_str().unwrap()],
        &["run", "-l", "klingon", "-c", "x"],
        &["run", "-l", "bash", "-c", "sleep 60", "--timeout", "100ms"],
        &["run", "--help"],
        &["frobnicate"],
    ] {
        let output = run(Who::Root, args);
        assert!(!stdout(&output).contains('\u{1b}'), "{args:?}: {}", stdout(&output));
        assert!(!stderr(&output).contains('\u{1b}'), "{args:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains('\r'), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn a_terminal_gets_colours_unless_they_are_unwanted() {
    for (line, painted) in [
        ("$S run -l klingon -c x", "\u{1b}[1;31merror:\u{1b}[0m unknown language"),
        ("$S run -l bash -c 'sleep 60' --timeout 100ms", "\u{1b}[1;33msandstorm:\u{1b}[0m ended after"),
        ("$S doctor", "\u{1b}[32mok     \u{1b}[0m"),
    ] {
        assert!(on_terminal(line, false).contains(painted), "{line}: {}", on_terminal(line, false));
        assert!(!on_terminal(line, true).contains("\u{1b}["), "{line}: {}", on_terminal(line, true));
    }
}

#[test]
fn progress_is_shown_while_compiling_and_wiped_away() {
    let place = Place::new();
    // A comment of its own keeps this program out of the cache.
    let code = format!(
        "// {}\n#include <iostream>\nint main() {{ std::cout << \"compiled\\n\"; }}\n",
        place.path().display()
    );
    let file = place.write("slow.cpp", code);
    let seen = on_terminal(&format!("$S run {}", file.display()), false);
    let (progress, rest) = seen.split_once("compiled").unwrap_or_else(|| panic!("{seen:?}"));
    assert!(progress.contains("compiling C++") || progress.contains("compiling cpp"), "{seen:?}");
    // The last thing before the program's own output is an empty line to write it on.
    let line = progress.rsplit(['\r', '\n']).next().unwrap();
    assert!(line.replace("\u{1b}[2K", "").is_empty(), "{seen:?}");
    assert!(!rest.contains("compiling"), "{seen:?}");
}

#[test]
fn the_programs_own_escapes_are_its_own_business() {
    let output = sandstorm(Who::Root)
        .env("NO_COLOR", "1")
        .args(["run", "-l", "bash", "-c", r"printf '\e[31mred'"])
        .output()
        .unwrap();
    assert_eq!(stdout(&output), "\u{1b}[31mred");
}
