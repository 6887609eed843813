//! Running a program of a language tool: in its sandbox, or with packages in one for it alone.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use sandstorm_control::server::{ExecWork, NewExec};
use sandstorm_control::unindented;
use sandstorm_language::{Catalogue, layout};
use sandstorm_provider::{ByteStream, Command, Error, FileOp};
use sandstorm_types::{
    Blob, EnvMap, ExecId, GuestPath, LanguageName, LimitsPatch, RunResult, RunSpec, SandboxId, Status,
};

use super::execs::{Execution, foreground, run_in, usual_command};
use super::options::{Build, How, Plan, cpp};
use crate::answer::Answer;
use crate::call::Call;
use crate::handles;
use crate::refusal::Refusal;
use crate::tools::run_code::{environment, requirement_list};

/// Time that a compiler has, beside that of the program.
const COMPILE: Duration = Duration::from_secs(60);

/// What a call asks for.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) sandbox: SandboxId,
    /// As SandboxRunner names it.
    pub(super) language: String,
    pub(super) code: String,
    pub(super) packages: Vec<String>,
    pub(super) files: BTreeMap<String, String>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) folder: GuestPath,
    pub(super) timeout: Duration,
    pub(super) stdin: String,
}

pub(super) async fn run(
    call: &Call,
    wanted: Wanted,
    mut plan: Plan,
    mut told: Execution,
) -> Result<Answer<Execution>, Refusal> {
    if wanted.code.trim().is_empty() {
        return Err(Refusal::argument("`code` is empty"));
    }
    told.sandbox_id = wanted.sandbox.to_string();
    told.language = wanted.language.clone();
    told.command = usual_command(&plan.language, &wanted.code);
    told.working_dir = wanted.folder.to_string();
    told.environment = wanted.environment.clone();
    // Variables of the caller go before those that stand for an option.
    let mut variables = std::mem::take(&mut plan.env);
    variables.extend(wanted.environment.clone());
    let env = environment(&variables)?;
    let language = handles::language(&plan.language)?;
    if !wanted.packages.is_empty() {
        return with_packages(call, wanted, language, env, plan, told).await;
    }
    if let Err(error) = write_files(call, &wanted).await? {
        return Ok(told.failed(call, wanted.sandbox, error).await);
    }
    let how = match plan.how {
        // The catalogue compiles the one file that it is given.
        How::Usual if !more_sources(&plan.language, &wanted).is_empty() && plan.language == "cpp" => {
            How::Build(cpp("g++", "gnu++20", "O2", Vec::new()))
        }
        how => how,
    };
    match how {
        How::Usual => {
            if wanted.folder != GuestPath::workspace() && !wanted.files.is_empty() {
                plan.notes.push(format!(
                    "the code lies in /workspace and finds its modules there; the files are in {}.",
                    wanted.folder
                ));
            }
            let work = ExecWork::Code { language, code: wanted.code.clone(), args: Vec::new() };
            let new = program(&wanted, work, env)?;
            run_in(call, wanted.sandbox, new, told, &plan.notes).await
        }
        How::Script(command) => script(call, wanted, &plan.language, command, env, plan.notes, told).await,
        How::Build(build) => built(call, wanted, &plan.language, build, env, plan.notes, told).await,
    }
}

/// In a sandbox of its own: the packages of a living one are fixed.
async fn with_packages(
    call: &Call,
    wanted: Wanted,
    language: LanguageName,
    env: EnvMap,
    plan: Plan,
    mut told: Execution,
) -> Result<Answer<Execution>, Refusal> {
    // Whose sandbox it is and whether it lives counts all the same.
    if let Err(error) = call.control().sandbox(&call.caller, wanted.sandbox).await {
        return Ok(told.failed(call, wanted.sandbox, error).await);
    }
    let mut notes = plan.notes;
    notes.push(format!(
        "packages come with a new sandbox, so this ran in one of its own: files of {} were not visible, and what it wrote is gone.",
        wanted.sandbox
    ));
    if plan.how != How::Usual {
        notes.push(
            "options of the compiler or interpreter were ignored: with packages the usual one is taken."
                .to_owned(),
        );
    }
    if wanted.folder != GuestPath::workspace() {
        notes.push("`working_dir` was ignored: with packages it is /workspace.".to_owned());
        told.working_dir = GuestPath::WORKSPACE.to_owned();
    }
    let mut files = BTreeMap::new();
    for (name, text) in wanted.files {
        files.insert(handles::path(&name)?, Blob::from(text.into_bytes()));
    }
    let spec = RunSpec {
        files,
        stdin: Blob::from(wanted.stdin.into_bytes()),
        env,
        requirements: requirement_list(&wanted.packages)?,
        limits: LimitsPatch { wall: Some(wanted.timeout), ..LimitsPatch::default() },
        ..RunSpec::new(language, wanted.code)
    };
    spec.validate().map_err(|error| Refusal::argument(error.to_string()))?;
    match call.wait("running", Box::pin(call.control().run(&call.caller, spec))).await {
        Ok(result) => Ok(told.ended(call, result, None, &notes)),
        Err(error) => Ok(told.failed(call, wanted.sandbox, error).await),
    }
}

/// Writes the files of a call; the inner failure is the sandbox's.
async fn write_files(call: &Call, wanted: &Wanted) -> Result<Result<(), Error>, Refusal> {
    let mut placed = Vec::new();
    for (name, text) in &wanted.files {
        placed.push((place(&wanted.folder, name)?, text));
    }
    for (path, text) in placed {
        if let Err(error) = write(call, wanted.sandbox, &path, text).await {
            return Ok(Err(error));
        }
    }
    Ok(Ok(()))
}

async fn write(call: &Call, sandbox: SandboxId, path: &GuestPath, text: &str) -> Result<(), Error> {
    let body = ByteStream::from(Bytes::copy_from_slice(text.as_bytes()));
    call.control().write_file(&call.caller, sandbox, path, body).await.map(drop)
}

fn place(folder: &GuestPath, name: &str) -> Result<GuestPath, Refusal> {
    match name.starts_with('/') {
        true => handles::path(name),
        false => folder.join(name).map_err(|error| Refusal::argument(format!("`files` {name:?}: {error}"))),
    }
}

/// Other files of the language that came with the call.
fn more_sources(language: &str, wanted: &Wanted) -> Vec<String> {
    let Ok(found) = Catalogue::embedded().get(language) else { return Vec::new() };
    wanted.files.keys().filter(|name| found.owns_file(name)).cloned().collect()
}

fn program(wanted: &Wanted, work: ExecWork, env: EnvMap) -> Result<NewExec, Refusal> {
    let stdin = (!wanted.stdin.is_empty()).then(|| Bytes::copy_from_slice(wanted.stdin.as_bytes()));
    Ok(NewExec { stdin, ..foreground(work, env, wanted.folder.as_str(), wanted.timeout)? })
}

/// The file of the code, under a name that nothing else has.
fn main_file(wanted: &Wanted, language: &str) -> Result<GuestPath, Refusal> {
    let usual = Catalogue::embedded().get(language).map(|found| found.main_file_name("")).unwrap_or_default();
    let extension = usual.rsplit_once('.').map_or("txt", |(_, extension)| extension);
    place(&wanted.folder, &format!("exec_{}.{extension}", &ExecId::random().bare()[..10]))
}

/// By an interpreter that was named. A call that is given up leaves the file of its code behind.
async fn script(
    call: &Call,
    wanted: Wanted,
    language: &str,
    mut command: Vec<String>,
    env: EnvMap,
    notes: Vec<String>,
    mut told: Execution,
) -> Result<Answer<Execution>, Refusal> {
    let main = main_file(&wanted, language)?;
    let code = unindented(language, &wanted.code);
    if let Err(error) = write(call, wanted.sandbox, &main, &code).await {
        return Ok(told.failed(call, wanted.sandbox, error).await);
    }
    command.push(main.to_string());
    told.command = command.join(" ");
    let new = program(&wanted, ExecWork::Command(Command::Program(command)), env)?;
    let answer = run_in(call, wanted.sandbox, new, told, &notes).await;
    sweep(call, wanted.sandbox, [main]).await;
    answer
}

/// By a compiler's command that was asked for, then the program that it made. A call that is given up leaves both behind.
async fn built(
    call: &Call,
    wanted: Wanted,
    language: &str,
    build: Build,
    env: EnvMap,
    notes: Vec<String>,
    mut told: Execution,
) -> Result<Answer<Execution>, Refusal> {
    let main = main_file(&wanted, language)?;
    if let Err(error) = write(call, wanted.sandbox, &main, &wanted.code).await {
        return Ok(told.failed(call, wanted.sandbox, error).await);
    }
    let made = handles::path(&format!("{}-{}", layout::BUILD, &ExecId::random().bare()[..10]))?;
    let mut sources = vec![main.to_string()];
    if language == "cpp" {
        for name in more_sources(language, &wanted) {
            sources.push(place(&wanted.folder, &name)?.to_string());
        }
    }
    let command = build.command(&sources, made.as_str());
    told.command = format!("{} && {made}", command.join(" "));
    let compile = ExecWork::Command(Command::Program(command));
    let compile = foreground(compile, env.clone(), wanted.folder.as_str(), COMPILE)?;
    let answer = match call
        .wait("compiling", Box::pin(call.control().exec_to_end(&call.caller, wanted.sandbox, compile)))
        .await
    {
        Ok(compiled) if compiled.success => {
            let new = program(&wanted, ExecWork::Command(Command::Program(vec![made.to_string()])), env)?;
            run_in(call, wanted.sandbox, new, told, &notes).await
        }
        Ok(compiled) => Ok(told.ended(call, refused(compiled), Some(wanted.sandbox), &notes)),
        Err(error) => Ok(told.failed(call, wanted.sandbox, error).await),
    };
    sweep(call, wanted.sandbox, [main, made]).await;
    answer
}

/// What a compiler says no to is told as such.
fn refused(mut compiled: RunResult) -> RunResult {
    if compiled.status == Status::Error {
        compiled.status = Status::CompileError;
    }
    compiled
}

/// Takes away what was laid out. What stays in a sandbox that ended meanwhile harms nobody.
async fn sweep<const N: usize>(call: &Call, sandbox: SandboxId, paths: [GuestPath; N]) {
    for path in paths {
        let _ = call.control().files(&call.caller, sandbox, FileOp::Remove { path, recursive: false }).await;
    }
}
