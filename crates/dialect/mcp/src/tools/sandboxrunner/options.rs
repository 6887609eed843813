//! `options` of the language tools: which there are, and how a program is run that asks for some.
//!
//! The catalogue compiles and runs each language in one way. Where an option asks for another way that the sandbox can go, the
//! commands are made here; every other option is named in the answer, so that nobody believes it had an effect.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::split::words;
use crate::refusal::Refusal;

/// One option of a language.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    name: &'static str,
    kind: Kind,
    about: &'static str,
    /// Why it changes nothing, where it does not, and the value that asks for what is done anyway.
    ignored: Option<(&'static str, &'static str)>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Text,
    Flag,
    List,
}

const fn honoured(name: &'static str, kind: Kind, about: &'static str) -> Choice {
    Choice { name, kind, about, ignored: None }
}

const fn ignored(name: &'static str, kind: Kind, usual: &'static str, why: &'static str) -> Choice {
    Choice { name, kind, about: why, ignored: Some((why, usual)) }
}

use Kind::{Flag, List, Text};

pub(super) const PYTHON: &[Choice] = &[
    ignored("use_venv", Text, "false", "there is no virtual environment: packages are mounted for the call"),
    honoured("python_cmd", Text, "The interpreter, python3 unless given."),
];
pub(super) const JAVASCRIPT: &[Choice] = &[
    ignored("node_version", Text, "", "the Node.js of this host runs it"),
    honoured("use_typescript", Flag, "Takes the code as TypeScript."),
];
pub(super) const TYPESCRIPT: &[Choice] = &[
    ignored("target", Text, "ES2022", "it is compiled for ES2022"),
    ignored("tsconfig", Text, "", "the settings of the compiler are fixed"),
];
pub(super) const GO: &[Choice] = &[
    ignored("go_version", Text, "", "the Go of this host builds it"),
    honoured("build_flags", Text, "Flags of go build, as GOFLAGS takes them: `-tags=a -race=false`."),
    ignored("module_name", Text, "main", "the code is built as it is, without a module around it"),
];
pub(super) const RUST: &[Choice] = &[
    honoured("edition", Text, "The edition, 2021 unless given."),
    honoured("release", Flag, "Whether it is optimised; it is unless this is false."),
    ignored(
        "features",
        List,
        "",
        "there is no crate to have features: write those of packages into `packages`",
    ),
];
pub(super) const JAVA: &[Choice] = &[
    ignored("java_version", Text, "", "the Java of this host runs it"),
    ignored("main_class", Text, "Main", "the class with `main` is found in the code"),
    ignored("classpath", Text, "", "classes come from the working folder and from `packages`"),
    ignored(
        "build_tool",
        Text,
        "",
        "javac compiles it, and packages are fetched without a build of your own",
    ),
];
pub(super) const CPP: &[Choice] = &[
    honoured("std", Text, "The standard, such as c++17; gnu++20 unless given."),
    honoured("compiler", Text, "g++ or clang++."),
    honoured("optimization", Text, "O0 to O3; O2 unless given."),
    honoured("extra_flags", Text, "Further flags of the compiler, split by blanks and quotes."),
];
pub(super) const CSHARP: &[Choice] = &[
    ignored("framework", Text, "", "Mono compiles and runs it"),
    ignored("nullable", Text, "", "Mono's compiler decides about nullable types"),
    ignored("implicit_usings", Text, "false", "nothing is imported unless the code says so"),
];
pub(super) const SHELL: &[Choice] = &[
    honoured("shell", Text, "bash, sh, zsh or fish; bash unless given."),
    honoured("set_flags", Text, "Flags that the shell starts with, such as `-euo pipefail`."),
];

/// How a program is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum How {
    /// As the catalogue says.
    Usual,
    /// By this command, with the file of the code behind it.
    Script(Vec<String>),
    Build(Build),
}

/// A compiler's command: `before`, the program's name, the sources, `after`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Build {
    before: Vec<String>,
    after: Vec<String>,
}

impl Build {
    pub(super) fn command(&self, sources: &[String], program: &str) -> Vec<String> {
        let output = ["-o".to_owned(), program.to_owned()];
        self.before.iter().chain(&output).chain(sources).chain(&self.after).cloned().collect()
    }
}

/// What came of the options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) language: String,
    pub(super) how: How,
    /// Variables that stand for an option.
    pub(super) env: BTreeMap<String, String>,
    pub(super) notes: Vec<String>,
}

/// The way to run a language with these options.
pub(super) fn plan(
    language: &str,
    known: &[Choice],
    options: &BTreeMap<String, Value>,
) -> Result<Plan, Refusal> {
    let mut plan =
        Plan { language: language.to_owned(), how: How::Usual, env: BTreeMap::new(), notes: Vec::new() };
    let mut given: BTreeMap<&str, String> = BTreeMap::new();
    for (name, value) in options {
        let value = text(name, value)?;
        match known.iter().find(|choice| choice.name == name) {
            None => plan.notes.push(format!("there is no option `{name}` here; it was ignored.")),
            Some(Choice { ignored: Some((_, usual)), .. })
                if value.is_empty() || value.eq_ignore_ascii_case(usual) => {}
            Some(Choice { ignored: Some((why, _)), .. }) => {
                plan.notes.push(format!("option `{name}` was ignored: {why}."));
            }
            Some(choice) if !value.is_empty() => drop(given.insert(choice.name, value)),
            Some(_) => {}
        }
    }
    if given.is_empty() {
        return Ok(plan);
    }
    let get = |name: &str| given.get(name).map(String::as_str);
    match language {
        "python" => match get("python_cmd") {
            None | Some("python3" | "python") => {}
            Some(command) => plan.how = How::Script(split("python_cmd", command)?),
        },
        "javascript" if get("use_typescript") == Some("true") => plan.language = "typescript".to_owned(),
        "go" => {
            let flags = get("build_flags").unwrap_or_default();
            plan.env.insert("GOFLAGS".to_owned(), format!("-trimpath {flags}"));
        }
        "rust" => plan.how = rust(get("edition").unwrap_or("2021"), get("release") != Some("false"))?,
        "cpp" => {
            let compiler = one_of("compiler", get("compiler").unwrap_or("g++"), &["g++", "clang++"])?;
            let level = get("optimization").unwrap_or("O2").trim_start_matches('-');
            let level = one_of("optimization", level, &["O0", "O1", "O2", "O3"])?;
            let flags = split("extra_flags", get("extra_flags").unwrap_or_default())?;
            plan.how = How::Build(cpp(compiler, get("std").unwrap_or("gnu++20"), level, flags));
        }
        "shell" => {
            let shell = one_of("shell", get("shell").unwrap_or("bash"), &["bash", "sh", "zsh", "fish"])?;
            let mut flags = split("set_flags", get("set_flags").unwrap_or_default())?;
            if let Some(first) = flags.first_mut().filter(|flag| !flag.starts_with(['-', '+'])) {
                first.insert(0, '-');
            }
            if shell != "bash" || !flags.is_empty() {
                plan.how = How::Script(std::iter::once(shell.to_owned()).chain(flags).collect());
            }
        }
        _ => {}
    }
    Ok(plan)
}

/// What the catalogue does, with a choice of the rest. Libraries among the flags have to follow the sources.
pub(super) fn cpp(compiler: &str, std: &str, level: &str, flags: Vec<String>) -> Build {
    let before =
        [compiler, &format!("-std={std}"), &format!("-{level}"), "-Wall", "-I", ".", "-I", "/workspace"];
    let mut after = flags;
    after.push("-pthread".to_owned());
    Build { before: before.into_iter().map(str::to_owned).collect(), after }
}

fn rust(edition: &str, release: bool) -> Result<How, Refusal> {
    let edition = one_of("edition", edition, &["2015", "2018", "2021", "2024"])?;
    if edition == "2021" && release {
        return Ok(How::Usual);
    }
    let level = if release { "opt-level=2" } else { "opt-level=0" };
    let before = ["rustc", "--edition", edition, "--crate-name", "main", "-C", level, "-C", "debuginfo=0"];
    Ok(How::Build(Build { before: before.into_iter().map(str::to_owned).collect(), after: Vec::new() }))
}

fn one_of<'a>(name: &str, value: &'a str, known: &[&str]) -> Result<&'a str, Refusal> {
    match known.contains(&value) {
        true => Ok(value),
        false => Err(Refusal::argument(format!(
            "option `{name}` has to be one of {}, not {value:?}",
            known.join(", ")
        ))),
    }
}

fn split(name: &str, value: &str) -> Result<Vec<String>, Refusal> {
    words(value).map_err(|why| Refusal::argument(format!("option `{name}`: {why}")))
}

/// A value as text: SandboxRunner's users write `true` and `"true"`.
fn text(name: &str, value: &Value) -> Result<String, Refusal> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.trim().to_owned()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Array(items) => {
            let items: Result<Vec<String>, Refusal> = items.iter().map(|item| text(name, item)).collect();
            Ok(items?.join(" "))
        }
        Value::Object(_) => Err(Refusal::argument(format!("option `{name}` has to be text"))),
    }
}

/// How `options` are described to clients.
pub(super) fn schema(known: &[Choice]) -> Value {
    let mut properties = Map::new();
    for choice in known {
        let about = match choice.ignored {
            Some((why, _)) => format!("Accepted, and without effect: {why}."),
            None => choice.about.to_owned(),
        };
        let schema = match choice.kind {
            Text => json!({ "type": "string", "description": about }),
            Flag => json!({ "type": "boolean", "description": about }),
            List => json!({ "type": "array", "items": { "type": "string" }, "description": about }),
        };
        properties.insert(choice.name.to_owned(), schema);
    }
    json!({ "type": "object", "description": "Options of the language.", "properties": properties, "additionalProperties": false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(language: &str, known: &[Choice], options: Value) -> Plan {
        plan(language, known, &serde_json::from_value(options).unwrap()).unwrap()
    }

    #[test]
    fn what_asks_for_the_usual_changes_nothing() {
        for (language, known, options) in [
            ("python", PYTHON, json!({ "use_venv": "false", "python_cmd": "python3" })),
            ("typescript", TYPESCRIPT, json!({ "target": "es2022", "tsconfig": "" })),
            ("go", GO, json!({ "module_name": "main" })),
            ("rust", RUST, json!({ "edition": "2021", "release": true, "features": [] })),
            ("java", JAVA, json!({ "main_class": "Main" })),
            ("shell", SHELL, json!({ "shell": "bash", "set_flags": "" })),
            ("cpp", CPP, json!({})),
        ] {
            let plan = planned(language, known, options);
            assert!(
                plan.how == How::Usual && plan.notes.is_empty() && plan.env.is_empty(),
                "{language}: {plan:?}"
            );
        }
    }

    #[test]
    fn nothing_is_ignored_in_silence() {
        let tables = [PYTHON, JAVASCRIPT, TYPESCRIPT, GO, RUST, JAVA, CPP, CSHARP, SHELL];
        for choice in tables.concat().iter().filter(|choice| choice.ignored.is_some()) {
            let plan = planned("any", &[*choice], json!({ choice.name: "something else" }));
            assert!(plan.notes.len() == 1 && plan.notes[0].contains(choice.name), "{plan:?}");
        }
        let plan = planned("python", PYTHON, json!({ "pyhton_cmd": "x" }));
        assert!(plan.notes[0].contains("pyhton_cmd"), "{plan:?}");
    }

    #[test]
    fn compilers_get_what_was_asked_for() {
        let options = json!({ "std": "c++17", "compiler": "clang++", "optimization": "O0", "extra_flags": "-DX='a b' -lm" });
        let How::Build(build) = planned("cpp", CPP, options).how else { panic!("it is built here") };
        let command = build.command(&["a.cpp".to_owned()], "/tmp/x").join(" ");
        assert_eq!(
            command,
            "clang++ -std=c++17 -O0 -Wall -I . -I /workspace -o /tmp/x a.cpp -DX=a b -lm -pthread"
        );
        let How::Build(build) = planned("rust", RUST, json!({ "release": "false" })).how else {
            panic!("it is built here")
        };
        assert!(build.command(&[], "x").contains(&"opt-level=0".to_owned()));
        assert_eq!(
            planned("go", GO, json!({ "build_flags": "-tags=x" })).env["GOFLAGS"],
            "-trimpath -tags=x"
        );
        assert_eq!(
            planned("javascript", JAVASCRIPT, json!({ "use_typescript": true })).language,
            "typescript"
        );
    }

    #[test]
    fn shells_get_their_flags() {
        let script = |options| match planned("shell", SHELL, options).how {
            How::Script(argv) => argv.join(" "),
            other => panic!("{other:?}"),
        };
        assert_eq!(script(json!({ "set_flags": "euo pipefail" })), "bash -euo pipefail");
        assert_eq!(script(json!({ "shell": "sh", "set_flags": "-e" })), "sh -e");
        assert!(plan("shell", SHELL, &BTreeMap::from([("shell".to_owned(), json!("tcsh"))])).is_err());
        assert!(plan("cpp", CPP, &BTreeMap::from([("compiler".to_owned(), json!("rm"))])).is_err());
        assert!(plan("rust", RUST, &BTreeMap::from([("edition".to_owned(), json!({}))])).is_err());
    }
}
