//! What can go wrong between a request and a plan.

use thiserror::Error;

/// No language goes by this name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown language {name:?}{}", .nearest.as_ref().map(|n| format!("; did you mean {n:?}?")).unwrap_or_default())]
pub struct UnknownLanguage {
    pub name: String,
    /// The name of a language that is close to what was asked for.
    pub nearest: Option<String>,
}

/// A job that a language cannot do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    #[error("file name {0:?} must be a relative path below the workspace")]
    FileName(String),
    #[error("{0} programs take no arguments")]
    NoArguments(String),
    #[error("file {file:?} is no {language} source: its name should end in one of {extensions:?}")]
    Extension { language: String, file: String, extensions: Vec<String> },
    #[error("the toolchain of {language} has no program {program:?}")]
    Program { language: String, program: String },
}

/// A data file that contradicts itself.
#[derive(Debug, Error)]
pub(crate) enum DataError {
    #[error("data file {file} cannot be read")]
    Syntax { file: String, source: Box<toml::de::Error> },
    #[error("data file {file}: {what}")]
    Content { file: String, what: String },
}
