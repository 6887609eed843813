//! Every language of the catalogue, from source to result: the programs of `fixtures/languages` and what their
//! `expect.toml` says of them.

mod caches;

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::support::{self, Place, Who};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    case: Vec<Case>,
}

/// One program and how its run ends.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    main: String,
    folder: Option<String>,
    stdin: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    wall_seconds: Option<u64>,
    memory_mib: Option<u64>,
    status: String,
    /// What `sandstorm run` exits with.
    exit_code: i32,
    signal: Option<i64>,
    stdout: Option<String>,
    stderr_contains: Option<String>,
    #[serde(default)]
    creates: Vec<String>,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/languages").canonicalize().unwrap()
}

fn cases(language: &str) -> Vec<Case> {
    let text = std::fs::read_to_string(fixtures().join(language).join("expect.toml")).unwrap();
    toml::from_str::<Expected>(&text).unwrap().case
}

/// What this machine says about its languages.
fn listed() -> Vec<Value> {
    let output = support::run(Who::Root, &["languages", "--json"]);
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    list["languages"].as_array().unwrap().clone()
}

fn is_available(language: &str) -> bool {
    use std::sync::OnceLock;
    static LISTED: OnceLock<Vec<Value>> = OnceLock::new();
    let entry = LISTED.get_or_init(listed).iter().find(|entry| entry["name"] == language);
    entry.unwrap_or_else(|| panic!("{language} is not in the list"))["available"] == true
}

impl Case {
    fn check(&self, who: Who, language: &str) {
        let place = Place::new();
        let out = place.path().join("out");
        let folder = fixtures().join(language).join(self.folder.as_deref().unwrap_or(""));
        // A checkout may lie where other users cannot look.
        let main = place.write(&format!("in/{}", self.main), std::fs::read(folder.join(&self.main)).unwrap());
        let mut args = vec![main.display().to_string()];
        if self.folder.is_some() {
            for file in files_below(&folder).into_iter().filter(|file| *file != self.main) {
                let copy = place.write(&format!("in/{file}"), std::fs::read(folder.join(&file)).unwrap());
                args.extend(["--file".to_owned(), format!("{}:{file}", copy.display())]);
            }
        }
        args.extend(["--timeout".to_owned(), format!("{}s", self.wall_seconds.unwrap_or(300))]);
        if let Some(mib) = self.memory_mib {
            args.extend(["--memory".to_owned(), format!("{mib}M")]);
        }
        if let Some(stdin) = &self.stdin {
            let file = place.write("in/.stdin", stdin);
            args.extend(["--stdin-file".to_owned(), file.display().to_string()]);
        }
        if !self.creates.is_empty() {
            args.extend(["--out".to_owned(), out.display().to_string()]);
        }
        if !self.args.is_empty() {
            args.push("--".to_owned());
            args.extend(self.args.clone());
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let (result, code) = support::ending(who, &args);
        let told = format!("{language} {} as {who:?}: {result:#}", self.name);
        assert_eq!((result["status"].as_str(), code), (Some(self.status.as_str()), self.exit_code), "{told}");
        if self.signal.is_some() {
            assert_eq!(result["signal"].as_i64(), self.signal, "{told}");
        }
        if let Some(stdout) = &self.stdout {
            assert_eq!(result["stdout"].as_str(), Some(stdout.as_str()), "{told}");
        }
        if let Some(part) = &self.stderr_contains {
            assert!(result["stderr"].as_str().unwrap().contains(part), "{told}");
        }
        for file in &self.creates {
            assert!(out.join(file).is_file(), "{file} did not come back: {told}");
        }
    }
}

fn files_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(next) = left.pop() {
        for entry in std::fs::read_dir(next).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                left.push(path);
            } else {
                found.push(path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

fn check(language: &str) {
    if !is_available(language) {
        return support::skip(&format!("{language} is not installed"));
    }
    for case in cases(language) {
        case.check(Who::Root, language);
    }
    if Who::all().contains(&Who::Ranged) {
        for case in cases(language).iter().filter(|case| ["hello", "stdin"].contains(&case.name.as_str())) {
            case.check(Who::Ranged, language);
        }
    }
}

/// One test for each language, so that they run side by side and fail by name.
macro_rules! languages {
    ($($name:ident),* $(,)?) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];
        $(#[test] fn $name() { check(stringify!($name)); })*
    };
}

languages!(
    bash, c, cpp, csharp, go, java, javascript, lua, perl, php, python, r, ruby, rust, sql, typescript,
);

#[test]
fn every_language_of_the_catalogue_is_tested() {
    let mut listed: Vec<String> =
        listed().iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect();
    listed.sort();
    assert_eq!(listed, TESTED);
    let mut folders: Vec<String> = std::fs::read_dir(fixtures())
        .unwrap()
        .flatten()
        .map(|e| e.file_name().into_string().unwrap())
        .collect();
    folders.sort();
    assert_eq!(folders, TESTED);
    for language in TESTED {
        let names: Vec<String> = cases(language).into_iter().map(|case| case.name).collect();
        for wanted in ["hello", "stdin", "files", "throws", "broken", "spin", "hog", "several"] {
            assert!(names.iter().any(|name| name == wanted), "{language} has no program {wanted}");
        }
    }
}

#[test]
fn the_list_has_the_shape_that_others_rely_on() {
    for entry in listed() {
        let fields = entry.as_object().unwrap();
        let mut names: Vec<&str> = fields.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["available", "install", "name", "version"], "{entry}");
        assert!(entry["install"].as_str().unwrap().contains("apt-get install"), "{entry}");
        if entry["available"] == true {
            let version = entry["version"].as_str().unwrap_or_else(|| panic!("no version: {entry}"));
            assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{entry}");
        } else {
            assert!(entry["version"].is_null(), "{entry}");
        }
    }
}

#[test]
fn an_unknown_language_gets_the_nearest_one_suggested() {
    for (typed, meant) in [("pyton", "python"), ("javascrip", "javascript"), ("rubby", "ruby")] {
        let output = support::run(Who::Root, &["run", "-l", typed, "-c", "x"]);
        assert_eq!(output.status.code(), Some(2));
        let told = support::stderr(&output);
        assert!(told.contains(typed) && told.contains(meant), "{told}");
    }
    let output = support::run(Who::Root, &["run", "-l", "klingon", "-c", "x"]);
    assert_eq!(output.status.code(), Some(2));
}
