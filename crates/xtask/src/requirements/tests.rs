//! Each way in which the map can lie is tried on a map of three ids.

use super::*;

const SMALL: &[Family] =
    &[Family { letter: 'J', last: 2, should: &[2] }, Family { letter: 'C', last: 1, should: &[] }];

const GOOD: &str = r#"
[J-01]
level = "must"
summary = "a wall stands"
tests = ["crates/jail/tests/it/main.rs::wall_stands"]

[J-02]
level = "should"
summary = "a door is shut"
status = "pending"

[C-01]
level = "must"
summary = "versions are locked"
status = "deferred"
reason = "no release is built yet"
"#;

fn run(map: &str, strictness: Strictness) -> Report {
    let tree = Tree::of(&[(MAP, map), ("crates/jail/tests/it/main.rs", "#[test]\nfn wall_stands() {}\n")]);
    let mut report = Report::default();
    check_families(&tree, SMALL, strictness, &mut report);
    report
}

fn lenient(map: &str) -> Vec<String> {
    run(map, Strictness::Lenient).errors
}

/// The only error, without the file's name.
fn only_error(map: &str) -> String {
    let errors = lenient(map);
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors[0].trim_start_matches(MAP).trim_start_matches(": ").to_owned()
}

#[test]
fn a_good_map_passes_and_is_counted() {
    let report = run(GOOD, Strictness::Lenient);
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    assert_eq!(
        report.notes,
        ["requirements: 1 proven; pending: 0 MUST, 1 SHOULD; deferred: 1 MUST, 0 SHOULD"]
    );
}

#[test]
fn strict_refuses_a_must_without_full_proof() {
    let report = run(GOOD, Strictness::Strict);
    assert_eq!(report.errors.len(), 1, "{:?}", report.errors);
    assert!(report.errors[0].contains("C-01 is a MUST without full proof"));

    let pending = GOOD.replace("status = \"deferred\"", "status = \"pending\"");
    assert_eq!(run(&pending, Strictness::Strict).errors.len(), 1);
}

#[test]
fn a_missing_id_is_an_error() {
    assert_eq!(only_error(&GOOD[..GOOD.find("[C-01]").unwrap()]), "C-01 is missing");
}

#[test]
fn a_missing_map_is_an_error() {
    let mut report = Report::default();
    check(&Tree::default(), Strictness::Lenient, &mut report);
    assert_eq!(report.errors, ["tests/requirements.toml is missing"]);
}

#[test]
fn an_unknown_id_is_an_error() {
    let map = format!("{GOOD}\n[J-03]\nlevel = \"must\"\nsummary = \"x\"\nstatus = \"pending\"\n");
    assert_eq!(only_error(&map), "J-03 is no requirement of this repository");
}

#[test]
fn an_unknown_key_is_an_error() {
    assert!(only_error(&GOOD.replace("[J-01]", "[J-01]\ntest = \"x\"")).contains("unknown field `test`"));
}

#[test]
fn a_softer_level_is_an_error() {
    let map = GOOD.replacen("\"must\"", "\"should\"", 1);
    assert_eq!(only_error(&map), "J-01 has another level than the reference gives it");
}

#[test]
fn neither_tests_nor_a_status_is_an_error() {
    let map = GOOD.replace("status = \"pending\"", "tests = []");
    assert_eq!(only_error(&map), "J-02: neither tests nor a status");
}

#[test]
fn a_test_that_does_not_exist_is_an_error_even_when_pending() {
    let map = GOOD.replace(
        "status = \"pending\"",
        "status = \"pending\"\ntests = [\"crates/jail/tests/it/main.rs::door\"]",
    );
    assert_eq!(only_error(&map), "J-02: crates/jail/tests/it/main.rs::door does not exist");
}

#[test]
fn a_deferral_needs_a_reason_that_stands_on_its_own() {
    for reason in ["", "later", "see #12 for the whole of this story"] {
        let map = GOOD.replace("no release is built yet", reason);
        assert_eq!(only_error(&map), "C-01: deferred without a reason that stands on its own", "{reason}");
    }
}

#[test]
fn an_empty_summary_is_an_error() {
    assert_eq!(only_error(&GOOD.replace("a door is shut", " ")), "J-02: no summary");
}

#[test]
fn every_family_has_its_requirements() {
    let ids: Vec<(String, Level)> = FAMILIES.iter().flat_map(Family::ids).collect();
    assert_eq!(ids.len(), 52 + 12 + 5 + 15 + 5 + 17 + 4 + 4 + 6);
    assert_eq!(ids.iter().filter(|(_, level)| *level == Level::Should).count(), 15);
    assert_eq!(ids[0].0, "J-01");
    assert_eq!(ids[88].0, "N-05");
    assert_eq!(ids[109].0, "A-04");
    assert_eq!(ids[113].0, "W-04");
    assert_eq!(ids[119].0, "M-06");
}
