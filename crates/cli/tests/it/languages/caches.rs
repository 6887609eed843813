//! What compilers made is kept, by everything that it depends on and nothing else.

use std::path::Path;

use serde_json::Value;

use crate::support::{self, Place, Who};

fn run(state: &Path, file: &Path, more: &[&str]) -> Value {
    let mut args = vec!["--state-dir", state.to_str().unwrap(), file.to_str().unwrap()];
    args.extend(more);
    let (result, _) = support::ending(Who::Root, &args);
    result
}

fn kept(state: &Path) -> usize {
    std::fs::read_dir(state.join("cache/compile")).map_or(0, |entries| entries.count())
}

fn compile_ms(result: &Value) -> f64 {
    result["metrics"]["compile_ms"].as_f64().unwrap_or_else(|| panic!("no compile: {result:#}"))
}

/// Whether a run spares most of what the first one had to compile. A machine may be busy for one of them: of a few, the
/// quickest counts.
#[track_caller]
fn is_far_quicker_than(first: &Value, mut again: impl FnMut() -> Value) {
    let most = compile_ms(first) / 3.0;
    let mut times: Vec<f64> = Vec::new();
    while times.last().is_none_or(|time| *time >= most) {
        assert!(times.len() < 10, "{} and {times:?}", compile_ms(first));
        times.push(compile_ms(&again()));
    }
}

#[test]
fn a_program_is_compiled_once_and_again_when_it_changes() {
    let place = Place::new();
    let state = place.path().join("state");
    let program = |word: &str| {
        format!("#include <stdio.h>\n#include \"own.h\"\nint main() {{ puts(OWN \"{word}\"); }}\n")
    };
    let file = place.write("main.c", program("one"));
    let header = place.write("own.h", "#define OWN \"a \"\n");
    let with = ["--file", header.to_str().unwrap()];

    let first = run(&state, &file, &with);
    assert_eq!(first["stdout"], "a one\n", "{first:#}");
    assert_eq!(kept(&state), 1);
    let again = run(&state, &file, &with);
    assert_eq!(again["stdout"], "a one\n");
    assert_eq!(kept(&state), 1, "the second run compiled again");
    is_far_quicker_than(&first, || run(&state, &file, &with));

    place.write("main.c", program("two"));
    assert_eq!(run(&state, &file, &with)["stdout"], "a two\n");
    assert_eq!(kept(&state), 2);
    place.write("own.h", "#define OWN \"b \"\n");
    assert_eq!(run(&state, &file, &with)["stdout"], "b two\n", "a changed header was not seen");
    assert_eq!(kept(&state), 3);
}

#[test]
fn what_does_not_compile_is_not_kept() {
    let place = Place::new();
    let state = place.path().join("state");
    let file = place.write("main.c", "int main( { }\n");
    assert_eq!(run(&state, &file, &[])["status"], "compile_error");
    assert_eq!(kept(&state), 0);
}

#[test]
fn a_state_directory_that_cannot_be_written_is_only_slower() {
    let place = Place::new();
    let file = place.write("main.c", "#include <stdio.h>\nint main() { puts(\"ran\"); }\n");
    let blocked = place.write("not-a-folder", "");
    let result = run(&blocked.join("state"), &file, &[]);
    assert_eq!(result["stdout"], "ran\n", "{result:#}");
}

/// The standard packages that one Go program needs are built once, not for each program.
#[test]
fn a_second_go_program_finds_its_packages_built() {
    if !super::is_available("go") {
        return support::skip("go is not installed");
    }
    let place = Place::new();
    let state = place.path().join("state");
    let program =
        |word: &str| format!("package main\n\nimport \"fmt\"\n\nfunc main() {{ fmt.Println(\"{word}\") }}\n");
    let [one, two] = ["one", "two"].map(|word| place.write(&format!("{word}.go"), program(word)));
    // Two at once: the one that comes second waits for what the first builds.
    let (first, meanwhile) = std::thread::scope(|scope| {
        let meanwhile = scope.spawn(|| run(&state, &two, &[]));
        (run(&state, &one, &[]), meanwhile.join().unwrap())
    });
    assert_eq!((&first["stdout"], &meanwhile["stdout"]), (&"one\n".into(), &"two\n".into()), "{first:#}");
    let mut words = (0..).map(|number| format!("later{number}"));
    is_far_quicker_than(&first, || {
        let word = words.next().unwrap();
        let later = run(&state, &place.write(&format!("{word}.go"), program(&word)), &[]);
        assert_eq!(later["stdout"], format!("{word}\n"), "{later:#}");
        later
    });
}
