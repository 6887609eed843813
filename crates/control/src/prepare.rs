//! Before any sandbox exists: which language, which toolchain, which commands.

use std::borrow::Cow;

use bytes::Bytes;
use sandstorm_language::{Catalogue, CompilePlan, Fit, Job, Language, Plan, PlanError, Recipe, Toolchain};
use sandstorm_provider::{Error, HostMount, Portable, PortableProgram, Result};
use sandstorm_types::{Blob, ErrorKind, GuestPath, Limits, RunSpec};

use crate::reserve::Reserve;
use crate::toolchains::Toolchains;

/// A run whose every decision is made.
#[derive(Debug)]
pub struct Prepared {
    pub language: &'static Language,
    pub toolchain: Toolchain,
    pub limits: Limits,
    /// The user's files with the main one, as paths in the sandbox.
    pub files: Vec<(GuestPath, Bytes)>,
    pub compile: Option<CompilePlan>,
    pub run: Plan,
    /// How what the program requires is installed, if it requires anything.
    pub recipe: Option<&'static Recipe>,
    /// Layers that compile and run see.
    pub(crate) layers: Vec<HostMount>,
    /// What it was promised on this machine. `None`: nobody counts.
    pub(crate) reserve: Option<Reserve>,
    /// Why it can only run elsewhere: its language is not installed here. Its commands have bare names then.
    pub(crate) not_here: Option<String>,
}

/// Where a program may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// On this machine, so that its language has to be here.
    Here,
    /// Here or elsewhere: a language that is missing here may be there.
    Anywhere,
}

impl Prepared {
    /// Decides everything, or says what is wrong with the request or missing on this machine.
    pub(crate) fn new(
        spec: &RunSpec,
        main: Option<&str>,
        defaults: &Limits,
        toolchains: &Toolchains,
        reach: Reach,
    ) -> Result<Self> {
        let invalid = |message: String| Error::new(ErrorKind::InvalidRequest, message);
        spec.validate().map_err(|e| invalid(e.to_string()))?;
        let language =
            Catalogue::embedded().get(spec.language.as_str()).map_err(|e| invalid(e.to_string()))?;
        let limits = spec.limits.apply(defaults).map_err(|errors| {
            invalid(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        })?;
        if spec.code.contains('\0') {
            return Err(invalid("the code holds a NUL character; is it a program's text?".to_owned()));
        }
        let (toolchain, not_here) = match toolchains.of(language) {
            Ok(toolchain) => (toolchain, None),
            Err(missing) if reach == Reach::Anywhere => {
                (language.bare_toolchain(), Some(missing.message().to_owned()))
            }
            Err(missing) => return Err(missing),
        };
        let code = language.unindented(&spec.code);
        let main = main.map_or_else(|| language.main_file_name(&code), str::to_owned);
        let mut names: Vec<String> = Vec::new();
        let workspace = GuestPath::workspace();
        for path in spec.files.keys() {
            names.extend(path.relative_to(&workspace).map(str::to_owned));
        }
        let memory_mib = limits.memory.as_u64() >> 20;
        let job = Job { main: &main, code: &code, files: &names, args: &spec.args, memory_mib };
        let plan_error = |e: PlanError| invalid(e.to_string());
        let mut compile = language.compile_plan(&toolchain, &job).map_err(plan_error)?;
        let mut run = language.run_plan(&toolchain, &job).map_err(plan_error)?;
        let recipe = recipe(language, spec)?;
        if let Some(recipe) = recipe {
            let fit = Fit { language, toolchain: &toolchain, job: &job };
            if let Some(compile) = &mut compile {
                recipe.fit_compile(&fit, &mut compile.plan).map_err(plan_error)?;
            }
            recipe.fit_run(&fit, &mut run).map_err(plan_error)?;
        }
        let main_path = workspace.join(&main).map_err(|e| invalid(e.to_string()))?;
        if spec.files.contains_key(&main_path) {
            return Err(invalid(format!("the file {main_path} is given twice: as code and as a file")));
        }
        let content =
            |(path, blob): (&GuestPath, &Blob)| (path.clone(), Bytes::copy_from_slice(blob.as_bytes()));
        let mut files: Vec<(GuestPath, Bytes)> = spec.files.iter().map(content).collect();
        files.push((main_path, Bytes::copy_from_slice(code.as_bytes())));
        Ok(Self {
            language,
            toolchain,
            limits,
            files,
            compile,
            run,
            recipe,
            layers: Vec::new(),
            reserve: None,
            not_here,
        })
    }

    /// The user's files, to be laid out where a program of theirs starts.
    pub(crate) fn user_files(&self) -> Vec<(GuestPath, Bytes)> {
        self.files.clone()
    }

    /// What the toolchain needs beside the host's own trees, and the layers.
    pub(crate) fn mounts(&self) -> Vec<HostMount> {
        let same = |path: &std::path::PathBuf| HostMount { source: path.clone(), target: path.clone() };
        self.toolchain.mounts.iter().map(same).chain(self.layers.iter().cloned()).collect()
    }
}

impl Prepared {
    /// The run without a path of this machine in it.
    pub(crate) fn portable(&self, spec: &RunSpec) -> Result<Portable> {
        let (main, files) =
            self.files.split_last().ok_or_else(|| Error::new(ErrorKind::Internal, "a run has no code"))?;
        let workspace = GuestPath::workspace();
        let name = main.0.relative_to(&workspace).unwrap_or(main.0.as_str());
        let program = match self.compile {
            Some(_) => None,
            None => {
                let plan = self.bare_run_plan(spec, name)?;
                let mut env = crate::compile::environment(&plan.env)?;
                env.extend(&spec.env).map_err(|e| {
                    Error::new(ErrorKind::InvalidRequest, "the environment is too large").with_source(e)
                })?;
                Some(PortableProgram { argv: plan.argv, env, files: self.user_files() })
            }
        };
        Ok(Portable {
            language: spec.language.clone(),
            code: self.language.unindented(&spec.code).into_owned(),
            args: spec.args.clone(),
            env: spec.env.clone(),
            files: files.to_vec(),
            program,
        })
    }

    /// How it is started with the toolchain's programs by their bare names, to be found wherever they are.
    pub(crate) fn bare_run_plan(&self, spec: &RunSpec, main: &str) -> Result<Plan> {
        let bare = |path: &std::path::PathBuf| path.file_name().map_or_else(|| path.clone(), Into::into);
        let programs = self.toolchain.programs.iter().map(|(name, path)| (name.clone(), bare(path)));
        let toolchain = Toolchain { programs: programs.collect(), mounts: Vec::new(), version: None };
        let workspace = GuestPath::workspace();
        let inside = |path: &GuestPath| path.relative_to(&workspace).map(str::to_owned);
        let names: Vec<String> = spec.files.keys().filter_map(inside).collect();
        let memory_mib = self.limits.memory.as_u64() >> 20;
        let job = Job { main, code: &spec.code, files: &names, args: &spec.args, memory_mib };
        let plan = self.language.run_plan(&toolchain, &job);
        plan.map_err(|e| Error::new(ErrorKind::InvalidRequest, e.to_string()))
    }
}

/// A piece of code as it is run: without the indentation that all of its lines share, where its language would refuse that.
pub fn unindented<'a>(language: &str, code: &'a str) -> Cow<'a, str> {
    match Catalogue::embedded().get(language) {
        Ok(language) => language.unindented(code),
        Err(_) => Cow::Borrowed(code),
    }
}

/// How a run's requirements are installed.
fn recipe(language: &Language, spec: &RunSpec) -> Result<Option<&'static Recipe>> {
    if spec.requirements.is_empty() {
        return Ok(None);
    }
    match language.packages {
        Some(manager) => Ok(Some(Recipe::of(manager))),
        None => {
            let message = format!("{} has no package manager that packages could come from", language.title);
            Err(Error::new(ErrorKind::InvalidRequest, message))
        }
    }
}
