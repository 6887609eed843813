//! Starting a program: a command as it is, or code that is laid out and compiled first.

use std::sync::Arc;

use bytes::Bytes;
use sandstorm_language::{Catalogue, layout};
use sandstorm_provider::{
    Command, EndCause, Error, Exec, ExecEvent, ExecRequest, ExecSignal, ExecStatus, FileOp, OpContext,
    Portable, PortableProgram, Result, Stdin,
};
use sandstorm_types::{EnvMap, ErrorKind, ExecId, GuestPath, LanguageName, RunSpec, SandboxSpec};
use tokio::sync::oneshot;

use super::Inner;
use super::executions::{Execution, Stage};
use super::failure::invalid;
use super::follower::{Story, failed};
use super::listener::Heard;
use crate::compile::{environment, guest_path};
use crate::prepare::{Prepared, Reach};
use crate::run::SANDBOX_ENDED;

/// What becomes a program.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) request: ExecRequest,
    pub(super) compile: Option<Compile>,
    /// Files of ours to remove after the end.
    pub(super) scrap: Vec<GuestPath>,
}

/// What is to be compiled first.
#[derive(Debug)]
pub(super) struct Compile {
    request: ExecRequest,
    /// The folder that it builds in.
    build: GuestPath,
}

/// The log of an exec's compiler. Known from the exec's own id, so that nothing has to be stored for it.
pub(super) fn compiler_of(exec: ExecId) -> ExecId {
    ExecId::from_bits(exec.bits() ^ 1)
}

impl Job {
    pub(super) fn command(command: Command) -> Result<Self> {
        match &command {
            Command::Program(argv) if argv.is_empty() => return Err(invalid("a command names a program")),
            Command::Program(argv) if argv.iter().any(|part| part.contains('\0')) => {
                return Err(invalid("a command holds no NUL character"));
            }
            Command::Shell(line) if line.contains('\0') => {
                return Err(invalid("a command holds no NUL character"));
            }
            _ => {}
        }
        Ok(Self { request: ExecRequest::new(command), compile: None, scrap: Vec::new() })
    }

    /// Lays code out so that it can be run beside whatever else lies and runs in the sandbox: under a name of its own
    /// in the workspace, whose modules it finds, and with a build folder of its own.
    pub(super) fn code(
        inner: &Inner,
        sandbox: &SandboxSpec,
        exec: ExecId,
        language: LanguageName,
        code: String,
        args: Vec<String>,
        elsewhere: bool,
    ) -> Result<Self> {
        let found = Catalogue::embedded().get(language.as_str()).map_err(|e| invalid(e.to_string()))?;
        let code = found.unindented(&code).into_owned();
        let tag = exec.bare()[..10].to_owned();
        let usual = found.main_file_name(&code);
        // Where the code says what its file must be called, a folder keeps it apart.
        let extension = usual.rsplit_once('.').map_or("", |(_, extension)| extension);
        let (main, scrap) = match found.code_names_its_file(&code) {
            false => (format!("exec_{tag}.{extension}"), format!("exec_{tag}.{extension}")),
            true => (format!("exec_{tag}/{usual}"), format!("exec_{tag}")),
        };
        let mut spec = RunSpec::new(language, code);
        spec.args = args;
        spec.validate().map_err(|e| invalid(e.to_string()))?;
        // The caller's arguments stay as they are, whatever is changed about the plan's own.
        let place = |number: usize| format!("argument {number} of {exec}");
        let places = (0..spec.args.len()).map(place).collect();
        let args = std::mem::replace(&mut spec.args, places);
        spec.requirements = sandbox.requirements.get(&spec.language).cloned().unwrap_or_default();
        let reach = if elsewhere { Reach::Anywhere } else { Reach::Here };
        let prepared = Prepared::new(&spec, Some(&main), &sandbox.limits, &inner.runner.toolchains, reach)?;
        let build = format!("{}-{tag}", layout::BUILD);
        let own = |text: &String| text.replace(layout::BUILD, &build);
        let part = |text: &String| match spec.args.iter().position(|place| place == text) {
            Some(number) => args[number].clone(),
            None => own(text),
        };
        let argv = |argv: &[String]| argv.iter().map(part).collect::<Vec<_>>();
        let env = |env: &std::collections::BTreeMap<String, String>| {
            environment(&env.iter().map(|(name, value)| (name.clone(), own(value))).collect())
        };
        let mut request = ExecRequest::program(argv(&prepared.run.argv));
        request.env = env(&prepared.run.env)?;
        if elsewhere {
            // Whoever takes it as code lays it out and tidies up; of the others nobody compiles.
            let program = match &prepared.compile {
                Some(_) => None,
                None => {
                    let plan = prepared.bare_run_plan(&spec, &main)?;
                    let (argv, env) = (argv(&plan.argv), env(&plan.env)?);
                    Some(PortableProgram { argv, env, files: prepared.user_files() })
                }
            };
            let scrap = match &program {
                Some(_) => vec![GuestPath::workspace().join(&scrap).map_err(|e| invalid(e.to_string()))?],
                None => Vec::new(),
            };
            let RunSpec { language, code, .. } = spec;
            let (env, files) = (EnvMap::new(), Vec::new());
            request.portable = Some(Box::new(Portable { language, code, args, env, files, program }));
            return Ok(Self { request, compile: None, scrap });
        }
        let mut scrap = vec![GuestPath::workspace().join(&scrap).map_err(|e| invalid(e.to_string()))?];
        let compile = match &prepared.compile {
            None => {
                request.files = prepared.user_files();
                None
            }
            Some(plan) => {
                let mut compile = ExecRequest::program(argv(&plan.plan.argv));
                compile.id = compiler_of(exec);
                compile.env = env(&plan.plan.env)?;
                compile.files = prepared.user_files();
                for support in &plan.plan.files {
                    let text = Bytes::from_static(support.text.as_bytes());
                    compile.files.push((guest_path(&support.path)?, text));
                }
                compile.timeout = Some(plan.limits.wall());
                let build = guest_path(&build)?;
                scrap.push(build.clone());
                Some(Compile { request: compile, build })
            }
        };
        Ok(Self { request, compile, scrap })
    }

    pub(super) fn set_stdin(&mut self, stdin: Option<Bytes>, stream: bool) -> Result<()> {
        self.request.stdin = match (stdin, stream) {
            (Some(_), true) => return Err(invalid("input is either given or streamed, not both")),
            (Some(bytes), false) => Stdin::Given(bytes),
            (None, true) => Stdin::Stream,
            (None, false) => Stdin::Empty,
        };
        Ok(())
    }

    /// Lays the caller's variables over the plan's.
    pub(super) fn add_env(&mut self, env: &EnvMap) -> Result<()> {
        let too_large = |e: sandstorm_types::EnvError| invalid("the environment is too large").with_source(e);
        self.request.env.extend(env).map_err(too_large)?;
        if let Some(portable) = &mut self.request.portable {
            portable.env.extend(env).map_err(too_large)?;
            if let Some(program) = &mut portable.program {
                program.env.extend(env).map_err(too_large)?;
            }
        }
        if let Some(compile) = &mut self.compile {
            compile.request.env.extend(env).map_err(too_large)?;
        }
        Ok(())
    }
}

/// What a compiler came to.
enum Compiled {
    Yes,
    Refused,
}

impl Inner {
    /// Compiles where that is needed, starts the program, hands its events to `own` and follows it to its end. Gives
    /// `started` an answer once the program runs.
    pub(super) async fn carry_out(
        self: Arc<Self>,
        execution: Arc<Execution>,
        job: Job,
        cx: OpContext,
        own: oneshot::Sender<Heard>,
        started: oneshot::Sender<Result<()>>,
    ) {
        let Job { request, compile, scrap } = job;
        let mut story = Story::default();
        if let Some(compile) = compile {
            let began = std::time::Instant::now();
            let compiled = self.compile(&execution, &cx, compile).await;
            story.compile_ms = Some(began.elapsed().as_secs_f64() * 1000.0);
            match compiled {
                Ok(Compiled::Yes) => {}
                Ok(Compiled::Refused) => {
                    story.complaints = true;
                    let log = compiler_of(execution.id());
                    execution.stage.send_replace(Stage::Log { log, complaints: true });
                    let _ = started.send(Ok(()));
                    drop(own);
                    self.follow(&execution, log, story).await;
                    return self.sweep_up(&execution, scrap).await;
                }
                Err(error) => {
                    let ended = match error.kind() {
                        ErrorKind::Cancelled => self.killed(&execution),
                        _ => self.lost(&execution, &error),
                    };
                    self.record(&execution, ended, None).await;
                    let _ = started.send(Err(error));
                    return self.sweep_up(&execution, scrap).await;
                }
            }
        }
        // A start that nobody waits for any more is given up.
        let starting = cx.clone().with_cancellation(execution.cancel.clone());
        let begun = self.provider.exec(&starting, &execution.row.sandbox, request).await;
        match begun {
            Ok(Exec { events, input, .. }) => {
                execution.set_input(input);
                // Whoever it is for may be gone: then a foreground program ends with what is dropped here.
                drop(own.send(events));
                execution.stage.send_replace(Stage::Log { log: execution.id(), complaints: false });
                let _ = started.send(Ok(()));
                self.follow(&execution, execution.id(), story).await;
            }
            Err(error) => {
                let ended = match error.kind() {
                    ErrorKind::Cancelled => {
                        // It may have begun all the same.
                        let last = OpContext::new(cx.tenant());
                        let _ = self.provider.signal(&last, &execution.id(), ExecSignal::Kill).await;
                        self.killed(&execution)
                    }
                    _ => self.lost(&execution, &error),
                };
                self.record(&execution, ended, None).await;
                let _ = started.send(Err(failed(&execution).unwrap_or(error)));
            }
        }
        self.sweep_up(&execution, scrap).await;
    }

    /// Runs the compiler to its end. Cancelled when nobody waits for the program any more.
    async fn compile(&self, execution: &Execution, cx: &OpContext, compile: Compile) -> Result<Compiled> {
        let Compile { request, build } = compile;
        use futures_util::StreamExt;
        let sandbox = &execution.row.sandbox;
        let compiler = request.id;
        let work = async {
            self.provider.files(cx, sandbox, FileOp::MakeDir { path: build }).await?;
            let mut exec = self.provider.exec(cx, sandbox, request).await?;
            loop {
                match exec.events.next().await {
                    Some(Ok(ExecEvent::Exited(end))) => {
                        let fine = end.cause == EndCause::Program && end.status == ExecStatus::Code(0);
                        return match end.cause {
                            EndCause::Sandbox => Err(Error::new(ErrorKind::Provider, SANDBOX_ENDED)),
                            _ if fine => Ok(Compiled::Yes),
                            _ => Ok(Compiled::Refused),
                        };
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error),
                    None => return Err(Error::new(ErrorKind::Provider, "the compiler's end was not told")),
                }
            }
        };
        tokio::select! {
            done = work => done,
            () = execution.cancel.cancelled() => {
                let last = OpContext::new(cx.tenant());
                let _ = self.provider.signal(&last, &compiler, ExecSignal::Kill).await;
                Err(Error::new(ErrorKind::Cancelled, "the caller gave up"))
            }
        }
    }

    pub(super) fn killed(&self, execution: &Execution) -> super::ended::Ended {
        let walls = execution.living.row().walls.clone().and_then(|walls| serde_json::from_value(walls).ok());
        let row = execution.living.row();
        super::ended::Ended::killed(execution.id(), self.holder(&row), walls.unwrap_or_default())
    }

    /// Removes what was laid out. A sandbox that is gone or paused keeps it, which harms nobody.
    async fn sweep_up(&self, execution: &Execution, scrap: Vec<GuestPath>) {
        for path in scrap {
            let cx = OpContext::new(execution.row.tenant).with_timeout(std::time::Duration::from_secs(5));
            let op = FileOp::Remove { path, recursive: true };
            let _ = self.provider.files(&cx, &execution.row.sandbox, op).await;
        }
    }
}
