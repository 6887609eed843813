//! `sandstorm config`.

use serde_json::Value;

use crate::support::{Place, Who, run, sandstorm, stderr, stdout};

#[test]
fn a_file_is_written_once_and_is_right() {
    let place = Place::new();
    let file = place.path().join("new/sandstorm.yaml");
    let path = file.to_str().unwrap();
    let first = run(Who::Root, &["config", "init", path]);
    assert_eq!(stdout(&first), format!("wrote {path}\n"), "{}", stderr(&first));
    let again = run(Who::Root, &["config", "init", path]);
    assert_eq!(again.status.code(), Some(2));
    assert!(stderr(&again).contains("is there already; --force replaces it"), "{}", stderr(&again));
    std::fs::write(&file, "limits: {}\n").unwrap();
    assert_eq!(run(Who::Root, &["config", "init", path, "--force"]).status.code(), Some(0));
    let check = run(Who::Root, &["--config", path, "config", "check"]);
    assert_eq!(stdout(&check), format!("{path} is fine\n"), "{}", stderr(&check));
}

#[test]
fn a_wrong_file_is_told_with_its_place() {
    let place = Place::new();
    for (text, says) in [
        ("limits:\n  memory: lots\n", ":2:11: bad value for `limits.memory`"),
        ("log:\n  level: loud\n", ":2:10: bad value for `log.level`"),
        ("limits: [\n", ":1:9: not valid YAML"),
        ("nonsense: 1\n", ":1:1: unknown key `nonsense`"),
        (
            "languages:\n  pyton:\n    enabled: false\n",
            "`languages.pyton`: unknown language \"pyton\"; did you mean \"python\"?",
        ),
        ("languages:\n  py:\n    enabled: false\n", "`languages.py` must be called `python`"),
    ] {
        let file = place.write("sandstorm.yaml", text);
        let output = run(Who::Root, &["config", "check", "--config", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(stderr(&output).contains(says), "{says}: {}", stderr(&output));
    }
}

#[test]
fn settings_are_shown_with_where_they_come_from() {
    let place = Place::new();
    let file = place.write("sandstorm.yaml", "limits:\n  memory: 64M\n");
    let mut command = sandstorm(Who::Root);
    command.env("SANDSTORM_LIMITS_CPUS", "2").env_remove("SANDSTORM_LIMITS_WALL");
    command.arg("--config").arg(&file);
    let output = command.args(["config", "show", "--json"]).output().unwrap();
    let settings: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |key: &str| {
        settings.as_array().unwrap().iter().find(|s| s["key"] == key).unwrap_or_else(|| panic!("{key}"))
    };
    assert!(of("limits.memory").to_string().contains("sandstorm.yaml:2:"), "{settings:#}");
    assert!(of("limits.cpus").to_string().contains("env SANDSTORM_LIMITS_CPUS"), "{settings:#}");
    assert!(of("limits.wall").to_string().contains("default"), "{settings:#}");
    let table = stdout(&run(Who::Root, &["config", "show"]));
    assert!(table.lines().any(|line| line.contains("limits.memory") && line.contains("512MiB")), "{table}");
}

#[test]
fn limits_of_the_configuration_hold_and_flags_win() {
    let place = Place::new();
    let file = place.write("sandstorm.yaml", "limits:\n  wall: 300ms\n");
    let path = file.to_str().unwrap();
    let mut short = sandstorm(Who::Root);
    short.env_remove("SANDSTORM_LIMITS_WALL");
    let short = short.args(["--config", path, "run", "-l", "bash", "-c", "sleep 60"]).output().unwrap();
    assert_eq!(short.status.code(), Some(124), "{}", stderr(&short));
    assert_eq!(stderr(&short), "sandstorm: ended after its time limit of 300ms; raise it with --timeout\n");
    let long = run(
        Who::Root,
        &["--config", path, "run", "--timeout", "2m", "-l", "bash", "-c", "sleep 0.5; echo done"],
    );
    assert_eq!(stdout(&long), "done\n", "{}", stderr(&long));
}

#[test]
fn the_configured_interpreter_is_the_one_that_runs() {
    let place = Place::new();
    let program = |path: &str| {
        let file = place.write("sandstorm.yaml", format!("languages:\n  python:\n    program: {path}\n"));
        run(Who::Root, &["--config", file.to_str().unwrap(), "run", "-l", "python", "-c", "print(1)"])
    };
    // It is given the file of the program, whatever it is.
    assert_eq!(stdout(&program("/usr/bin/basename")), "main.py\n");
    let missing = program("/usr/bin/python-of-the-future");
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("/usr/bin/python-of-the-future not found"), "{}", stderr(&missing));
}
