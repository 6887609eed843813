//! Code in a session: written to a file that stays, then run in a process of its own, or in the interpreter that a
//! persistent session keeps.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::Extension;
use axum::extract::State;
use bytes::Bytes;
use sandstorm_control::server::{Caller, SandboxView};
use sandstorm_control::unindented;
use sandstorm_provider::{ByteStream, FileOp, Result};
use sandstorm_types::{ContextId, GuestPath};
use serde::Serialize;

use crate::answer::Answer;
use crate::paths::{file_place, shown};
use crate::program::{
    Executed, bounded, cell_of, discard, exec_of, finished, random_word, report, report_place,
};
use crate::refusal::Refusal;
use crate::request::{BodyFields, Target};
use crate::router::Dialect;
use crate::routes::files::leave_logs;

const SAVE: &str = include_str!("../programs/save.py");
const SCRIPT: &str = include_str!("../programs/script.py");

/// What to run.
#[derive(Debug)]
struct Work {
    code: String,
    args: Vec<String>,
    kind: ScriptKind,
    /// Variables whose values are asked for.
    outputs: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ScriptKind {
    #[default]
    Python,
    Shell,
}

impl ScriptKind {
    fn extension(self) -> &'static str {
        match self {
            Self::Python => ".py",
            Self::Shell => ".sh",
        }
    }
}

pub(crate) async fn execute_code(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    target: Target,
    BodyFields(mut body, _room): BodyFields,
) -> Result<Answer<Executed>, Refusal> {
    let (code, filename, args) = (body.text("code"), body.optional_text("filename"), body.texts("args"));
    let kind = match body.optional_text("script_type").as_deref() {
        None | Some("python") => ScriptKind::Python,
        Some("shell") => ScriptKind::Shell,
        Some(_) => body.refuse("script_type", "Input should be 'python' or 'shell'", "enum"),
    };
    let code = match kind {
        ScriptKind::Python => unindented("python", &code).into_owned(),
        ScriptKind::Shell => code,
    };
    let work = Work { code, args, kind, outputs: body.texts("output_params") };
    body.done()?;
    let path = file_place(&script_name(filename, kind)?)?;

    let view = dialect.sessions.open(&caller, &target.session).await?;
    let place = Place { dialect: &dialect, caller: &caller, view: &view };
    place.lay_out(&path, &work).await?;
    let interpreter = match kind {
        ScriptKind::Python => dialect.sessions.interpreter(&caller, &view).await?,
        ScriptKind::Shell => None,
    };
    let done = match interpreter {
        Some(context) => place.run_cell(context, &path, &work).await?,
        None => place.run_program(&path, &work).await?,
    };
    leave_logs(&dialect, &caller, view.id, &done).await;
    Ok(Answer(done))
}

/// The name of the file: with its extension, and one that no other request uses when none was given.
fn script_name(given: Option<String>, kind: ScriptKind) -> Result<String> {
    let extension = kind.extension();
    Ok(match given.filter(|name| !name.is_empty()) {
        Some(name) if name.ends_with(extension) => name,
        Some(name) => name + extension,
        None => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            format!("script_{now}_{}{extension}", random_word()?)
        }
    })
}

/// Texts and lists of texts are written alike in JSON and in Python.
fn literal(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("texts are JSON")
}

/// A session in which code is run for somebody.
struct Place<'a> {
    dialect: &'a Dialect,
    caller: &'a Caller,
    view: &'a SandboxView,
}

impl Place<'_> {
    async fn lay_out(&self, path: &GuestPath, work: &Work) -> Result<()> {
        let control = &self.dialect.sessions.control;
        let code = ByteStream::from(Bytes::copy_from_slice(work.code.as_bytes()));
        control.write_file(self.caller, self.view.id, path, code).await?;
        if work.kind == ScriptKind::Shell {
            let executable = FileOp::SetMode { path: path.clone(), mode: 0o755 };
            control.files(self.caller, self.view.id, executable).await?;
        }
        Ok(())
    }

    /// A process of its own.
    async fn run_program(&self, path: &GuestPath, work: &Work) -> Result<Executed> {
        let settings = &self.dialect.sessions.settings;
        let script = shown(path).to_owned();
        let asked = work.kind == ScriptKind::Python && !work.outputs.is_empty();
        let place = if asked { Some(report_place()?) } else { None };
        let mut argv = match (work.kind, &place) {
            (ScriptKind::Python, None) => vec![settings.python.clone(), script],
            (ScriptKind::Python, Some(place)) => {
                let program = format!("{SAVE}\n\n{SCRIPT}");
                let names = literal(&work.outputs);
                vec![settings.python.clone(), "-c".to_owned(), program, place.to_string(), names, script]
            }
            // A script that names its interpreter is started by the kernel, from its whole path.
            (ScriptKind::Shell, _) if work.code.starts_with("#!") => vec![path.to_string()],
            (ScriptKind::Shell, _) => vec![settings.shell.clone(), script],
        };
        argv.extend(work.args.iter().cloned());
        let exec = exec_of(bounded(settings, argv), settings.timeout, None);
        let result = finished(&self.dialect.sessions.control, self.caller, self.view.id, exec).await?;
        self.told(Executed::from(&result), place).await
    }

    /// A cell of the session's interpreter, which keeps its variables.
    async fn run_cell(&self, context: ContextId, path: &GuestPath, work: &Work) -> Result<Executed> {
        let timeout = self.dialect.sessions.settings.timeout;
        let run = async |code: String| {
            let cell = cell_of(context, code, timeout);
            finished(&self.dialect.sessions.control, self.caller, self.view.id, cell).await
        };
        let mut argv = vec![shown(path).to_owned()];
        argv.extend(work.args.iter().cloned());
        run(format!("setattr(__import__('sys'), 'argv', {})", literal(&argv))).await?;
        let done = Executed::from(&run(work.code.clone()).await?);
        if work.outputs.is_empty() {
            return Ok(done);
        }
        let place = report_place()?;
        let saving = format!(
            "exec({}, {{'found': globals(), 'names': {}, 'place': {}}})",
            literal(&format!("{SAVE}\n\nsave(found, names, place)\n")),
            literal(&work.outputs),
            literal(&place.to_string()),
        );
        run(saving).await?;
        self.told(done, Some(place)).await
    }

    /// With the values that were saved; none of them when the program ended before it could save.
    async fn told(&self, mut done: Executed, place: Option<GuestPath>) -> Result<Executed> {
        if let Some(place) = place {
            let control = &self.dialect.sessions.control;
            let saved = report(control, self.caller, self.view.id, &place).await?;
            done.output_variables = Some(saved.unwrap_or_default());
            discard(control, self.caller, self.view.id, &place).await;
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_get_their_extension() {
        let name = |given: Option<&str>, kind| script_name(given.map(str::to_owned), kind).unwrap();
        assert_eq!(name(Some("a"), ScriptKind::Python), "a.py");
        assert_eq!(name(Some("d/a.py"), ScriptKind::Python), "d/a.py");
        assert_eq!(name(Some("a.py"), ScriptKind::Shell), "a.py.sh");
        let (one, other) = (name(None, ScriptKind::Shell), name(Some(""), ScriptKind::Shell));
        assert!(one.starts_with("script_") && one.ends_with(".sh") && one != other);
    }
}
