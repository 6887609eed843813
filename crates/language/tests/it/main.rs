//! The catalogue against what lies beside it: the fixtures of every language and the set-up script.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use sandstorm_language::{Catalogue, Language};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectations {
    case: Vec<Case>,
}

/// One program of a language and how a run of it ends.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    main: String,
    folder: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    stdin: Option<String>,
    status: String,
    exit_code: i32,
    signal: Option<i32>,
    stdout: Option<String>,
    stderr_contains: Option<String>,
    #[serde(default)]
    creates: Vec<String>,
    wall_seconds: Option<u64>,
    memory_mib: Option<u64>,
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn cases(language: &Language) -> (PathBuf, Vec<Case>) {
    let folder = top().join("fixtures/languages").join(&language.name);
    let text = fs::read_to_string(folder.join("expect.toml")).expect("every language has expectations");
    let expectations: Expectations =
        toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", language.name));
    (folder, expectations.case)
}

#[test]
fn every_language_has_every_case() {
    for language in Catalogue::embedded().iter() {
        let (_, cases) = cases(language);
        let names: BTreeSet<_> = cases.iter().map(|case| case.name.as_str()).collect();
        for name in ["hello", "stdin", "files", "throws", "broken", "spin", "hog", "several"] {
            assert!(names.contains(name), "{}: {name}", language.name);
        }
    }
}

#[test]
fn cases_name_files_that_exist_and_belong_to_the_language() {
    for language in Catalogue::embedded().iter() {
        let (folder, cases) = cases(language);
        for case in cases {
            let place = format!("{}/{}", language.name, case.name);
            let main = folder.join(case.folder.as_deref().unwrap_or("")).join(&case.main);
            let code = fs::read_to_string(&main).unwrap_or_else(|error| panic!("{place}: {error}"));
            assert_eq!(
                Catalogue::embedded().by_file_name(&case.main).unwrap().name,
                language.name,
                "{place}"
            );
            assert!(case.args.is_empty() || language.takes_arguments(), "{place}");
            if language.name == "java" {
                assert_eq!(language.main_file_name(&code), case.main, "{place}");
            }
        }
    }
}

#[test]
fn cases_expect_what_a_run_can_end_with() {
    for language in Catalogue::embedded().iter() {
        for case in cases(language).1 {
            let place = format!("{}/{}", language.name, case.name);
            let fits = match case.status.as_str() {
                "ok" => case.exit_code == 0 && case.stdout.is_some(),
                "error" => case.exit_code == case.signal.map_or(case.exit_code, |signal| 128 + signal),
                "compile_error" => language.is_compiled() && case.exit_code == 1,
                "timeout" => case.exit_code == 124 && case.wall_seconds.is_some(),
                "memory" => case.exit_code == 137 && case.memory_mib.is_some(),
                other => panic!("{place}: status {other}"),
            };
            assert!(fits, "{place}");
            let failed = matches!(case.status.as_str(), "error" | "compile_error");
            assert_eq!(case.stderr_contains.is_some(), failed, "{place}: a failure says why");
            assert_eq!(case.stdin.is_some(), case.name == "stdin", "{place}");
            assert_eq!(!case.creates.is_empty(), case.name == "files", "{place}");
        }
    }
}

#[test]
fn the_set_up_script_installs_what_the_catalogue_asks_for() {
    let script = fs::read_to_string(top().join("scripts/setup.sh")).unwrap();
    let entry = |line: &str| line.trim().trim_matches('"').split('=').next().unwrap_or_default().to_owned();
    let listed: BTreeSet<String> = script.lines().map(entry).collect();
    for language in Catalogue::embedded().iter() {
        for package in &language.install.apt {
            assert!(listed.contains(package), "{package} of {} is not in scripts/setup.sh", language.name);
        }
    }
}
