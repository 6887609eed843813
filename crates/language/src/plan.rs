//! From a language, its toolchain and a job to commands.

use std::collections::BTreeMap;

use crate::data;
use crate::detect::Toolchain;
use crate::error::PlanError;
use crate::language::{CompileLimits, Language, SourcesFrom, extension, support_text};
use crate::layout::{BUILD, SUPPORT, WARM, WORKSPACE};
use crate::template::{Part, Template, Token};

/// What somebody wants run.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The main file, relative to the workspace.
    pub main: &'a str,
    /// The main file's text, of which Java reads its entry point.
    pub code: &'a str,
    /// All of the user's files, relative to the workspace. The main file may be among them.
    pub files: &'a [String],
    pub args: &'a [String],
    /// The memory limit of the run.
    pub memory_mib: u64,
}

/// One command. `env` comes on top of what every sandbox sets (`HOME`, `PATH`, `LANG`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub cwd: &'static str,
    /// Files to lay out before the command starts.
    pub files: Vec<SupportFile>,
}

/// A file of ours that a command reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupportFile {
    pub path: String,
    pub text: &'static str,
}

/// A command with limits of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompilePlan {
    pub plan: Plan,
    pub limits: CompileLimits,
    /// Whether what lies in [`WARM`] afterwards makes the next compile quicker.
    pub warm: bool,
}

impl Language {
    /// How to compile the job, where the language needs it. Whatever the command exits with other than zero is a
    /// compile error and its output is the reason.
    pub fn compile_plan(
        &self,
        toolchain: &Toolchain,
        job: &Job<'_>,
    ) -> Result<Option<CompilePlan>, PlanError> {
        let Some(compile) = &self.compile else { return Ok(None) };
        let context = self.context(toolchain, job)?;
        let when = compile.when.iter().find(|when| job.files.contains(&when.file));
        let argv = context.expand(when.map_or(&compile.argv, |when| &when.argv))?;
        let mut env = context.environment(&compile.env)?;
        if let Some(when) = when {
            env.extend(context.environment(&when.env)?);
        }
        let plan = Plan { argv, env, cwd: WORKSPACE, files: support_files(&compile.support) };
        Ok(Some(CompilePlan { plan, limits: compile.limits, warm: compile.warm }))
    }

    /// How to run the job, once compiled where it needs to be.
    pub fn run_plan(&self, toolchain: &Toolchain, job: &Job<'_>) -> Result<Plan, PlanError> {
        if !job.args.is_empty() && !self.takes_arguments() {
            return Err(PlanError::NoArguments(self.title.clone()));
        }
        let context = self.context(toolchain, job)?;
        let (argv, env) = (context.expand(&self.run.argv)?, context.environment(&self.run.env)?);
        Ok(Plan { argv, env, cwd: WORKSPACE, files: Vec::new() })
    }

    /// How to start the program that keeps variables alive between pieces of code, where the language has one.
    pub fn kernel_plan(&self, toolchain: &Toolchain) -> Result<Option<Plan>, PlanError> {
        let Some(kernel) = &self.kernel else { return Ok(None) };
        let Some((_, text)) = data::KERNELS.iter().find(|(name, _)| *name == kernel.file) else {
            return Ok(None);
        };
        let context = Context::new(self, toolchain, None);
        let path = format!("{SUPPORT}/{}", kernel.file);
        let mut argv = context.expand(&kernel.argv)?;
        argv.push(path.clone());
        argv.extend(context.expand(&kernel.args)?);
        let env = context.environment(&self.run.env)?;
        Ok(Some(Plan { argv, env, cwd: WORKSPACE, files: vec![SupportFile { path, text }] }))
    }

    fn context<'a>(&'a self, toolchain: &'a Toolchain, job: &'a Job<'a>) -> Result<Context<'a>, PlanError> {
        for file in job.files.iter().map(String::as_str).chain([job.main]) {
            let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
            if !file.split('/').all(plain) {
                return Err(PlanError::FileName(file.to_owned()));
            }
        }
        if self.is_compiled() && !self.owns_file(job.main) {
            return Err(PlanError::Extension {
                language: self.title.clone(),
                file: job.main.to_owned(),
                extensions: self.source.extensions.clone(),
            });
        }
        Ok(Context::new(self, toolchain, Some(job)))
    }
}

fn support_files(names: &[String]) -> Vec<SupportFile> {
    let file =
        |name: &String| Some(SupportFile { path: format!("{SUPPORT}/{name}"), text: support_text(name)? });
    names.iter().filter_map(file).collect()
}

/// What tokens stand for.
pub(crate) struct Context<'a> {
    language: &'a Language,
    toolchain: &'a Toolchain,
    job: Option<&'a Job<'a>>,
}

impl<'a> Context<'a> {
    /// Without a job, tokens that speak of one are empty.
    pub(crate) fn new(language: &'a Language, toolchain: &'a Toolchain, job: Option<&'a Job<'a>>) -> Self {
        Self { language, toolchain, job }
    }

    pub(crate) fn expand(&self, templates: &[Template]) -> Result<Vec<String>, PlanError> {
        let mut argv = Vec::with_capacity(templates.len());
        for template in templates {
            match template.0.as_slice() {
                [Part::Token(Token::Args)] => argv.extend(self.job.iter().flat_map(|job| job.args).cloned()),
                [Part::Token(Token::Sources)] => {
                    argv.extend(self.job.iter().flat_map(|job| self.sources(job)))
                }
                _ => argv.push(self.text(template)?),
            }
        }
        Ok(argv)
    }

    fn environment(&self, env: &BTreeMap<String, Template>) -> Result<BTreeMap<String, String>, PlanError> {
        env.iter().map(|(name, template)| Ok((name.clone(), self.text(template)?))).collect()
    }

    fn text(&self, template: &Template) -> Result<String, PlanError> {
        let mut text = String::new();
        for part in &template.0 {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Token(token) => text.push_str(&self.value(token)?),
            }
        }
        Ok(text)
    }

    fn value(&self, token: &Token) -> Result<String, PlanError> {
        let of_job = |value: &dyn Fn(&Job<'_>) -> String| self.job.map(value).unwrap_or_default();
        Ok(match token {
            Token::Main => of_job(&|job| in_workspace(job.main)),
            Token::MainFolder => of_job(&|job| in_workspace(folder(job.main))),
            Token::Output => of_job(&|job| self.output(job)),
            Token::Entry => of_job(&|job| self.entry(job)),
            Token::MemoryLowMib => of_job(&|job| (job.memory_mib - job.memory_mib / 10).to_string()),
            Token::MemoryHighMib => {
                of_job(&|job| job.memory_mib.saturating_add(job.memory_mib / 4).to_string())
            }
            Token::Build => BUILD.to_owned(),
            Token::Support => SUPPORT.to_owned(),
            Token::Warm => WARM.to_owned(),
            Token::Program(name) => self.program(name)?,
            // The template parser lets lists stand alone only, and `expand` has taken those.
            Token::Args | Token::Sources => String::new(),
        })
    }

    fn program(&self, name: &str) -> Result<String, PlanError> {
        let path = self.toolchain.programs.get(name).and_then(|path| path.to_str());
        path.map(str::to_owned).ok_or_else(|| PlanError::Program {
            language: self.language.name.clone(),
            program: name.to_owned(),
        })
    }

    fn output(&self, job: &Job<'_>) -> String {
        let source = &self.language.source;
        match extension(job.main).and_then(|from| Some((from, source.outputs.get(&from.to_lowercase())?))) {
            Some((from, to)) => format!("{BUILD}/{}{to}", &job.main[..job.main.len() - from.len()]),
            None => format!("{BUILD}/{}", job.main),
        }
    }

    fn entry(&self, job: &Job<'_>) -> String {
        let naming = self.language.source.naming.as_ref();
        naming.and_then(|naming| naming.entry(job.code, job.main)).unwrap_or_default()
    }

    /// The main file first, then the others in order of their names: the same files give the same command.
    fn sources(&self, job: &Job<'_>) -> Vec<String> {
        let sources = &self.language.source.sources;
        let wanted = |file: &&String| {
            let near = match sources.from {
                SourcesFrom::Main => false,
                SourcesFrom::Folder => folder(file) == folder(job.main),
                SourcesFrom::Tree => true,
            };
            let skipped = sources.skip.iter().any(|suffix| file.ends_with(suffix.as_str()));
            near && !skipped && file.as_str() != job.main && self.language.owns_file(file)
        };
        let mut others: Vec<String> =
            job.files.iter().filter(wanted).map(|file| in_workspace(file)).collect();
        others.sort();
        others.dedup();
        std::iter::once(in_workspace(job.main)).chain(others).collect()
    }
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn in_workspace(path: &str) -> String {
    if path.is_empty() { WORKSPACE.to_owned() } else { format!("{WORKSPACE}/{path}") }
}

#[cfg(test)]
mod tests;
