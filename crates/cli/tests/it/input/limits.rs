//! Values that are no limits, in every flag that takes one.

use crate::support::{Who, run, stderr, stdout};

use super::assert_misuse;

/// The flags, and a value of each that is fine.
const FLAGS: [(&str, &str); 9] = [
    ("--timeout", "10"),
    ("--cpu-time", "10"),
    ("--cpus", "1"),
    ("--memory", "128M"),
    ("--pids", "10"),
    ("--open-files", "100"),
    ("--disk", "10M"),
    ("--inodes", "1000"),
    ("--output", "1000"),
];

#[test]
fn absurd_values_are_refused_with_what_is_allowed() {
    for (flag, _) in FLAGS {
        let values = [
            "-1",
            "0",
            "1e308",
            "9223372036854775808",
            "18446744073709551616",
            "NaN",
            "inf",
            "null",
            "0.0001",
            "",
        ];
        for value in values.into_iter().chain(["ten", "0x10", "10 apples", "-0", "１０"]) {
            let output = run(Who::Root, &["run", "-l", "bash", "-c", "echo ran", flag, value]);
            assert_misuse(&output, &format!("{flag} {value}: "));
            assert!(stderr(&output).contains("allowed is "), "{flag} {value}: {}", stderr(&output));
        }
    }
}

#[test]
fn sensible_values_are_taken() {
    let all: Vec<&str> = FLAGS.iter().flat_map(|(flag, value)| [*flag, *value]).collect();
    let output = run(Who::Root, &[&["run", "-l", "bash", "-c", "echo ran"], all.as_slice()].concat());
    assert_eq!((stdout(&output).as_str(), output.status.code()), ("ran\n", Some(0)), "{}", stderr(&output));
}

/// What cannot be put into one start is refused at once, not lost on the way.
#[test]
fn arguments_that_are_too_long_together_are_refused() {
    let long = "x".repeat(100_000);
    let mut args = vec!["run", "--timeout", "5s", "-l", "bash", "-c", "true", "--"];
    args.extend([long.as_str(); 7]);
    let output = run(Who::Root, &args);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("too long together"), "{}", stderr(&output));
}
