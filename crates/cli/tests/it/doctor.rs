//! `sandstorm doctor` says what is true, as every kind of user, and notices what is broken.

use std::process::Command;

use serde_json::Value;

use crate::support::{Place, Who, binary, result, run, sandstorm, skip, stderr, stdout};

fn checks(output: &std::process::Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stderr(output)))
}

fn outcome<'a>(report: &'a Value, group: &str, name: &str) -> &'a Value {
    let all = report["checks"].as_array().unwrap();
    all.iter()
        .find(|c| c["group"] == group && c["name"] == name)
        .unwrap_or_else(|| panic!("{group}/{name}: {report:#}"))
}

#[test]
fn the_report_agrees_with_the_walls_of_a_run() {
    for who in Who::all() {
        let output = run(who, &["doctor", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{who:?}: {}", stderr(&output));
        let report = checks(&output);
        assert_eq!(report["works"], true);
        let verdict = report["verdict"].as_str().unwrap();
        assert!(verdict.starts_with("sandboxes can start here, with"), "{who:?}: {verdict}");
        assert_eq!(verdict.contains("without"), who != Who::Root, "{who:?}: {verdict}");
        for check in report["checks"].as_array().unwrap() {
            assert!(["ok", "missing", "broken"].contains(&check["outcome"].as_str().unwrap()), "{check}");
            assert!(!check["meaning"].as_str().unwrap().is_empty(), "{check}");
            assert_eq!(
                check["outcome"] == "ok",
                check["fix"].is_null(),
                "{who:?}: a fix for what needs one: {check}"
            );
        }
        let walls = &result(who, &["-l", "bash", "-c", "true"])["walls"];
        let is = |good: bool| if good { "ok" } else { "missing" };
        assert_eq!(
            outcome(&report, "users", "ids of sandboxes")["outcome"],
            is(walls["uid_wall"] == true),
            "{who:?}"
        );
        assert_eq!(outcome(&report, "kernel", "seccomp")["outcome"], "ok");
        assert_eq!(outcome(&report, "kernel", "pid namespace")["outcome"], is(walls["pidns"] == true));
        let limited = walls["limits"]["missing"].as_array().unwrap().is_empty();
        assert_eq!(outcome(&report, "control groups", "controllers")["outcome"], is(limited), "{who:?}");
        assert_eq!(outcome(&report, "engines", "jail")["outcome"], "ok");
        assert_eq!(outcome(&report, "languages", "bash")["outcome"], "ok");
    }
}

#[test]
fn strict_runs_are_foretold() {
    for who in Who::all() {
        let report = checks(&run(who, &["doctor", "--json"]));
        let foretold = outcome(&report, "engines", "jail --strict")["outcome"] == "ok";
        let ran = run(who, &["run", "--strict", "-l", "bash", "-c", "true"]);
        assert_eq!(ran.status.code(), Some(if foretold { 0 } else { 125 }), "{who:?}: {}", stderr(&ran));
    }
}

#[test]
fn every_case_of_the_matrix_holds_or_is_refused_with_the_reason() {
    for who in Who::all() {
        let place = Place::new();
        let output = sandstorm(who)
            .env("TMPDIR", place.path())
            .args(["doctor", "--matrix", "--json"])
            .output()
            .unwrap();
        let matrix: Value = serde_json::from_slice(&output.stdout).unwrap();
        let engine = &matrix["engines"][0];
        assert_eq!(engine["name"], "jail");
        let cases = engine["cases"].as_array().unwrap();
        assert!(cases.len() >= 20, "only {} cases", cases.len());
        for case in cases {
            let mut keys: Vec<_> = case.as_object().unwrap().keys().map(String::as_str).collect();
            keys.sort_unstable();
            assert_eq!(keys, ["name", "outcome", "reason", "suite"]);
            assert!(["walls", "limits", "escape"].contains(&case["suite"].as_str().unwrap()), "{case}");
            let passed = case["outcome"] == "pass";
            assert!(passed || case["outcome"] == "refused", "{who:?}: {case}");
            assert_eq!(passed, case["reason"] == "", "{who:?}: {case}");
            // Root has everything here, so nothing may be excused.
            assert!(passed || who != Who::Root, "{case}");
        }
        assert_eq!(output.status.code(), Some(0), "{who:?}");
        assert!(std::fs::read_dir(place.path()).unwrap().next().is_none(), "{who:?}: a canary is left");
    }
}

#[test]
fn a_machine_without_user_namespaces_is_diagnosed() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can take user namespaces away");
    }
    let script = r#"echo 0 > /proc/sys/user/max_user_namespaces; exec "$S" doctor "$@""#;
    let doctor = |flags: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "sh", "-euc", script, "sh"]).args(flags);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("S", binary()).output().unwrap()
    };
    let output = doctor(&["--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let report = checks(&output);
    assert_eq!(report["works"], false);
    let switch = outcome(&report, "kernel", "user.max_user_namespaces");
    assert_eq!(switch["outcome"], "broken");
    assert_eq!(switch["fix"], "sysctl -w user.max_user_namespaces=15000");
    assert_eq!(outcome(&report, "engines", "jail")["outcome"], "broken");
    // Ids of the configured range do not exist in that namespace either.
    assert_eq!(outcome(&report, "users", "ids of sandboxes")["outcome"], "broken");
    // Nobody has tried what no sandbox was there for.
    assert_eq!(outcome(&report, "kernel", "pid namespace")["outcome"], "untried");
    let text = doctor(&[]);
    let first = stdout(&text).lines().next().unwrap_or_default().to_owned();
    assert!(
        first.starts_with("no sandbox can start here: ")
            && first.contains("sysctl -w user.max_user_namespaces=15000"),
        "{first}"
    );
    assert_eq!(report["verdict"], first);
    assert!(
        stdout(&text).ends_with("sandboxes do not work here: repair what is broken above\n"),
        "{}",
        stdout(&text)
    );
}

#[test]
fn a_launcher_that_cannot_be_started_is_diagnosed() {
    if !Who::all().contains(&Who::Single) {
        return;
    }
    // The shell takes the user's last process away from the doctor that it becomes.
    let script = r#"ulimit -u 0; exec "$S" doctor "$@""#;
    let doctor = |flags: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "bash", "-euc", script, "bash"]);
        command.args(flags).env_clear().env("PATH", "/usr/bin:/bin").env("S", binary()).output().unwrap()
    };
    let output = doctor(&["--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let report = checks(&output);
    assert_eq!(report["works"], false);
    let verdict = report["verdict"].as_str().unwrap();
    assert!(
        verdict.starts_with("no sandbox can start here: ") && verdict.contains("fork the launcher"),
        "{verdict}"
    );
    assert_eq!(outcome(&report, "engines", "jail")["outcome"], "broken");
    assert_eq!(outcome(&report, "kernel", "pid namespace")["outcome"], "untried");
    let text = doctor(&[]);
    assert_eq!(stdout(&text).lines().next(), Some(verdict), "{}", stderr(&text));
    let matrix = doctor(&["--matrix"]);
    assert_eq!(matrix.status.code(), Some(125));
    assert!(stderr(&matrix).starts_with("error: no sandbox can start here: "), "{}", stderr(&matrix));
}

#[test]
fn a_state_directory_that_cannot_be_used_is_told() {
    let output = run(Who::Root, &["--state-dir", "/proc/nothing", "doctor", "--json"]);
    let report = checks(&output);
    assert_eq!(outcome(&report, "state", "state directory")["outcome"], "missing", "{report:#}");
    assert_eq!(output.status.code(), Some(0), "sandboxes work without one");
}
