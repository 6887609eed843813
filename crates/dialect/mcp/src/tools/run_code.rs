//! `run_code`: the one tool that every assistant looks for.

use std::collections::BTreeMap;

use bytes::Bytes;
use sandstorm_control::server::{ExecWork, NewContext, NewExec, NewSandbox};
use sandstorm_language::{Catalogue, Language};
use sandstorm_provider::ByteStream;
use sandstorm_types::{
    Blob, ContextId, EnvMap, GuestPath, LanguageName, LimitsPatch, OnEnd, Requirement, RunSpec, SandboxId,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Hints, Tool};
use crate::answer::{Answer, Ran, ran};
use crate::call::{Call, seconds};
use crate::handles;
use crate::home::Used;
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct RunCode;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// The program, whole.
    code: String,
    /// Its language, such as python, javascript, typescript, bash, go, rust, java, c, cpp, ruby or php.
    #[serde(default = "python")]
    language: String,
    /// A sandbox to run it in, from an earlier answer. Files there stay.
    #[serde(default)]
    sandbox_id: String,
    /// A living interpreter in that sandbox, from an earlier answer. Variables there stay.
    #[serde(default)]
    context_id: String,
    /// Whether variables and files are kept for later calls: `yes`, `no` (a fresh sandbox that is gone afterwards), or
    /// `auto`, which keeps them where a handle is given or this client has a sandbox of its own.
    #[serde(default)]
    keep: Keep,
    /// Packages that it needs, such as `numpy` or `pandas==2.2.3`. Only where a new sandbox is made.
    #[serde(default)]
    packages: Vec<String>,
    /// Files to write first: path, relative to the working folder /workspace, and text.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// Standard input; not for code in a context.
    #[serde(default)]
    stdin: String,
    /// Arguments of the program; not for code in a context.
    #[serde(default)]
    args: Vec<String>,
    /// Variables of its environment; not for code in a context.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Seconds by the clock after which it is stopped.
    #[serde(default = "half_a_minute")]
    timeout_s: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Keep {
    #[default]
    Auto,
    Yes,
    No,
}

fn python() -> String {
    "python".to_owned()
}

pub(super) fn half_a_minute() -> f64 {
    30.0
}

impl Tool for RunCode {
    const NAME: &'static str = "run_code";
    const TITLE: &'static str = "Run code";
    const DESCRIPTION: &'static str = "Runs code in a safe sandbox and answers with what it printed, the value of its last expression \
        and pictures that it drew (matplotlib figures come as images). Python and JavaScript keep their variables between calls \
        where state is kept: the answer names the sandbox_id and context_id that do. There is no network unless the sandbox was \
        made with one. A program that fails is an answer with its exit code, stderr and traceback.";
    const HINTS: Hints = Hints::RUNS;
    type Input = Input;
    type Output = Ran;

    async fn call(call: Call, input: Input) -> Result<Answer<Ran>, Refusal> {
        let language = handles::language(&input.language)?;
        let place = place(&call, &input, &language).await?;
        let result = match place {
            Some(used) => {
                let new = in_sandbox(&call, &input, language, used).await?;
                let exec = Box::pin(call.control().exec_to_end(&call.caller, used.sandbox, new));
                call.wait("running", exec).await?
            }
            None => {
                let spec = one_shot(input, language)?;
                call.wait("running", Box::pin(call.control().run(&call.caller, spec))).await?
            }
        };
        Ok(ran(result, place, call.shared.settings.shown))
    }
}

/// Where it runs: `None` in a sandbox for it alone.
async fn place(call: &Call, input: &Input, language: &LanguageName) -> Result<Option<Used>, Refusal> {
    let lives = keeps_variables(language);
    if !input.sandbox_id.is_empty() {
        let sandbox = handles::sandbox(&input.sandbox_id)?;
        if !input.packages.is_empty() {
            return Err(Refusal::argument("packages come with a new sandbox").with_next(
                "Make one with sandbox_create and its packages, or leave sandbox_id out and set keep to no.",
            ));
        }
        let context = match input.context_id.as_str() {
            "" if input.keep == Keep::No || !lives => None,
            "" => Some(context_of(call, sandbox, language).await?),
            given => Some(handles::context(given)?),
        };
        return Ok(Some(Used { sandbox, context, anew: false }));
    }
    if !input.context_id.is_empty() {
        return Err(Refusal::argument("a context_id needs the sandbox_id that came with it"));
    }
    match (input.keep, &call.home) {
        (Keep::No, _) | (Keep::Auto, None) => Ok(None),
        (_, Some(home)) => {
            let wanted = NewSandbox { requirements: requirements(input, language)?, ..NewSandbox::default() };
            let opening = Box::pin(home.open(&call.caller, wanted, lives.then_some(language)));
            Ok(Some(call.wait("preparing", opening).await?))
        }
        (Keep::Yes, None) => {
            let new = NewSandbox {
                requirements: requirements(input, language)?,
                on_end: Some(OnEnd::Delete),
                contexts: lives,
                ..NewSandbox::default()
            };
            let view =
                call.wait("preparing", Box::pin(call.control().create_sandbox(&call.caller, new))).await?;
            let context = match lives {
                true => Some(context_of(call, view.id, language).await?),
                false => None,
            };
            Ok(Some(Used { sandbox: view.id, context, anew: false }))
        }
    }
}

/// Languages whose variables live on from call to call. Others run as a program each time, which says how it ended: a model
/// reads the exit code of a command.
const KEPT: [&str; 2] = ["python", "javascript"];

/// Whether calls of a language share an interpreter.
pub(super) fn shares_interpreters(language: &Language) -> bool {
    KEPT.contains(&language.name.as_str()) && language.has_contexts()
}

/// The same by its name. One that does not exist is complained of where it is used.
fn keeps_variables(language: &LanguageName) -> bool {
    Catalogue::embedded().get(language.as_str()).is_ok_and(shares_interpreters)
}

/// The first living interpreter of a language in a sandbox, or a new one.
async fn context_of(call: &Call, sandbox: SandboxId, language: &LanguageName) -> Result<ContextId, Refusal> {
    let name =
        Catalogue::embedded().get(language.as_str()).map_or(language.as_str(), |found| found.name.as_str());
    let contexts = call.control().contexts(&call.caller, sandbox).await?;
    let mut living: Vec<_> = contexts
        .into_iter()
        .filter(|context| context.state != "lost" && context.language.as_str() == name)
        .collect();
    living.sort_by_key(|context| (context.created_at, context.id.to_string()));
    if let Some(first) = living.first() {
        return Ok(first.id);
    }
    let language = name.parse().map_err(|_| Refusal::argument("a language without a name"))?;
    let new = NewContext { language, cwd: None, env: EnvMap::default() };
    Ok(call.control().create_context(&call.caller, sandbox, new).await?.id)
}

async fn in_sandbox(
    call: &Call,
    input: &Input,
    language: LanguageName,
    used: Used,
) -> Result<NewExec, Refusal> {
    for (path, text) in &input.files {
        let body = ByteStream::from(Bytes::copy_from_slice(text.as_bytes()));
        call.control().write_file(&call.caller, used.sandbox, &handles::path(path)?, body).await?;
    }
    let work = match used.context {
        Some(context) => {
            if !(input.stdin.is_empty() && input.args.is_empty() && input.env.is_empty()) {
                return Err(Refusal::argument(
                    "code in a living interpreter has no stdin, args or env of its own",
                )
                .with_next("Leave them out, or set keep to no."));
            }
            ExecWork::Cell { context, code: input.code.clone() }
        }
        None => ExecWork::Code { language, code: input.code.clone(), args: input.args.clone() },
    };
    Ok(NewExec {
        env: environment(&input.env)?,
        stdin: (!input.stdin.is_empty()).then(|| Bytes::copy_from_slice(input.stdin.as_bytes())),
        timeout: Some(seconds("timeout_s", input.timeout_s)?),
        ..NewExec::of(work)
    })
}

fn one_shot(input: Input, language: LanguageName) -> Result<RunSpec, Refusal> {
    let requirements = requirement_list(&input.packages)?;
    let mut files = BTreeMap::new();
    for (path, text) in input.files {
        let path: GuestPath = handles::path(&path)?;
        files.insert(path, Blob::from(text.into_bytes()));
    }
    let spec = RunSpec {
        files,
        stdin: Blob::from(input.stdin.into_bytes()),
        args: input.args,
        env: environment(&input.env)?,
        requirements,
        limits: LimitsPatch { wall: Some(seconds("timeout_s", input.timeout_s)?), ..LimitsPatch::default() },
        ..RunSpec::new(language, input.code)
    };
    spec.validate().map_err(|error| Refusal::argument(error.to_string()))?;
    Ok(spec)
}

pub(super) fn environment(variables: &BTreeMap<String, String>) -> Result<EnvMap, Refusal> {
    let mut env = EnvMap::new();
    for (name, value) in variables {
        let name = name.parse().map_err(|error| Refusal::argument(format!("variable {name:?}: {error}")))?;
        env.insert(name, value.clone()).map_err(|error| Refusal::argument(error.to_string()))?;
    }
    Ok(env)
}

fn requirements(
    input: &Input,
    language: &LanguageName,
) -> Result<BTreeMap<LanguageName, Vec<Requirement>>, Refusal> {
    let list = requirement_list(&input.packages)?;
    Ok(if list.is_empty() { BTreeMap::new() } else { BTreeMap::from([(language.clone(), list)]) })
}

pub(super) fn requirement_list(packages: &[String]) -> Result<Vec<Requirement>, Refusal> {
    let read =
        |name: &String| name.parse().map_err(|error| Refusal::argument(format!("package {name:?}: {error}")));
    packages.iter().map(read).collect()
}
