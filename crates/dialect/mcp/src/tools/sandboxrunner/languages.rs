//! `run_python` to `run_shell`, and `run_generic`: one tool for each line of a table.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::execs::Execution;
use super::options::{self, Choice};
use super::program::{self, Wanted};
use super::{SET, guess, timeout};
use crate::answer::Answer;
use crate::call::Call;
use crate::handles;
use crate::refusal::Refusal;
use crate::tools::{Entry, Hints, Tool};

/// A tool of one language.
#[derive(Debug)]
struct Line {
    tool: &'static str,
    title: &'static str,
    description: &'static str,
    /// What it is called in arguments and answers; a name or alias of the catalogue.
    language: &'static str,
    /// Seconds that it may take where nobody says.
    seconds: f64,
    options: &'static [Choice],
}

const GENERIC: usize = 9;

const TABLE: [Line; 10] = [
    Line {
        tool: "run_python",
        title: "Run Python",
        description: "Runs a Python program in a sandbox and answers with its exit code and output. Packages are had with pip.",
        language: "python",
        seconds: 60.0,
        options: options::PYTHON,
    },
    Line {
        tool: "run_javascript",
        title: "Run JavaScript",
        description: "Runs a JavaScript program with Node.js in a sandbox and answers with its exit code and output. Packages are had with npm.",
        language: "javascript",
        seconds: 30.0,
        options: options::JAVASCRIPT,
    },
    Line {
        tool: "run_typescript",
        title: "Run TypeScript",
        description: "Compiles and runs a TypeScript program in a sandbox and answers with its exit code and output. Packages are had with npm.",
        language: "typescript",
        seconds: 45.0,
        options: options::TYPESCRIPT,
    },
    Line {
        tool: "run_go",
        title: "Run Go",
        description: "Compiles and runs a Go program in a sandbox and answers with its exit code and output. Packages are Go modules.",
        language: "go",
        seconds: 30.0,
        options: options::GO,
    },
    Line {
        tool: "run_rust",
        title: "Run Rust",
        description: "Compiles and runs a Rust program in a sandbox and answers with its exit code and output. Packages are crates, such as \
            `serde = \"1.0\"`.",
        language: "rust",
        seconds: 120.0,
        options: options::RUST,
    },
    Line {
        tool: "run_java",
        title: "Run Java",
        description: "Compiles and runs a Java program in a sandbox and answers with its exit code and output. Packages are Maven coordinates.",
        language: "java",
        seconds: 60.0,
        options: options::JAVA,
    },
    Line {
        tool: "run_cpp",
        title: "Run C++",
        description: "Compiles and runs a C++ program in a sandbox and answers with its exit code and output. Sources among `files` are \
            compiled with it.",
        language: "cpp",
        seconds: 45.0,
        options: options::CPP,
    },
    Line {
        tool: "run_csharp",
        title: "Run C#",
        description: "Compiles and runs a C# program in a sandbox and answers with its exit code and output.",
        language: "csharp",
        seconds: 45.0,
        options: options::CSHARP,
    },
    Line {
        tool: "run_shell",
        title: "Run a shell script",
        description: "Runs a shell script in a sandbox, by bash unless `options` name another shell, and answers with its exit code and output.",
        language: "shell",
        seconds: 30.0,
        options: options::SHELL,
    },
    Line {
        tool: "run_generic",
        title: "Run any language",
        description: "Runs a program in a sandbox in the language that is named, or else guessed from the code, and answers with its exit code \
            and output.",
        language: "",
        seconds: 30.0,
        options: &[],
    },
];

/// The tool of one line of the table.
#[derive(Debug)]
struct LanguageTool<const N: usize>;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The sandbox.
    sandbox_id: String,
    /// The program, whole.
    code: String,
    /// Its language; guessed unless given. Only run_generic has this.
    #[serde(default)]
    language: String,
    /// Packages that it needs. With them it runs in a sandbox of its own, which does not see the files of this one.
    #[serde(default)]
    packages: Vec<String>,
    /// Files to write first: names, relative to `working_dir`, and texts.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// Options of the language.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    options: BTreeMap<String, Value>,
    /// Variables of its environment.
    #[serde(default)]
    environment: BTreeMap<String, String>,
    /// Folder that it starts in; /workspace unless given.
    #[serde(default)]
    working_dir: String,
    /// Seconds by the clock after which it is stopped.
    #[serde(default)]
    #[schemars(with = "f64")]
    timeout: Option<f64>,
    /// Standard input.
    #[serde(default)]
    stdin: String,
}

impl<const N: usize> Tool for LanguageTool<N> {
    const NAME: &'static str = TABLE[N].tool;
    const TITLE: &'static str = TABLE[N].title;
    const DESCRIPTION: &'static str = TABLE[N].description;
    const HINTS: Hints = Hints::RUNS;
    type Input = Input;
    type Output = Execution;

    async fn call(call: Call, input: Input) -> Result<Answer<Execution>, Refusal> {
        let mut told = Execution::default();
        let language = match (N, input.language.trim()) {
            (GENERIC, named) => {
                let detected =
                    if named.is_empty() { own_name(guess::language(&input.code)) } else { own_name(named) };
                told.detected_language = detected.clone();
                told.was_auto_detected = Some(named.is_empty());
                detected
            }
            (_, "") => TABLE[N].language.to_owned(),
            _ => {
                return Err(Refusal::argument(format!("{} has no `language`; run_generic does", Self::NAME)));
            }
        };
        let line = TABLE.iter().find(|line| line.language == language).unwrap_or(&TABLE[GENERIC]);
        let plan = options::plan(&language, line.options, &input.options)?;
        let wanted = Wanted {
            sandbox: handles::sandbox(&input.sandbox_id)?,
            language,
            code: input.code,
            packages: input.packages,
            files: input.files,
            environment: input.environment,
            folder: handles::folder(&input.working_dir)?,
            timeout: timeout(input.timeout.unwrap_or(line.seconds))?,
            stdin: input.stdin,
        };
        program::run(&call, wanted, plan, told).await
    }
}

/// SandboxRunner says shell where the catalogue says bash.
fn own_name(language: &str) -> String {
    match language.to_lowercase().as_str() {
        "bash" | "sh" => "shell".to_owned(),
        other => other.to_owned(),
    }
}

pub(super) fn entries() -> Vec<Entry> {
    vec![
        entry::<0>(),
        entry::<1>(),
        entry::<2>(),
        entry::<3>(),
        entry::<4>(),
        entry::<5>(),
        entry::<6>(),
        entry::<7>(),
        entry::<8>(),
        entry::<GENERIC>(),
    ]
}

/// Every language has its own options and its own time, and only `run_generic` asks for the language.
fn entry<const N: usize>() -> Entry {
    let mut entry = Entry::of::<LanguageTool<N>>(SET);
    let schema = Arc::make_mut(&mut entry.described.input_schema);
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        let seconds = TABLE[N].seconds;
        let mut limit = json!({ "type": "number", "minimum": 1, "maximum": super::LONGEST });
        let said = match N {
            GENERIC => {
                "Seconds by the clock after which it is stopped; what the language's own tool has unless given."
            }
            _ => "Seconds by the clock after which it is stopped.",
        };
        limit["description"] = said.into();
        if N == GENERIC {
            let names: Vec<&str> = TABLE[..GENERIC].iter().map(|line| line.language).collect();
            let about = "Its language; guessed unless given.";
            properties.insert(
                "language".to_owned(),
                json!({ "type": "string", "enum": names, "description": about }),
            );
        } else {
            limit["default"] = seconds.into();
            properties.remove("language");
            properties.insert("options".to_owned(), options::schema(TABLE[N].options));
        }
        properties.insert("timeout".to_owned(), limit);
    }
    entry
}
