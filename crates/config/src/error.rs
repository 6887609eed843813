//! What can be wrong with a configuration, with the place, the key and what was expected.

use std::fmt;
use std::path::PathBuf;

use crate::origin::Origin;

/// A configuration that cannot be used. `Display` takes several lines: each problem starts with its place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The named or found file cannot be read.
    #[error("cannot read the configuration {path}\n  {source}", path = path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the configuration {path} is larger than 1 MiB", path = .0.display())]
    TooLarge(PathBuf),
    #[error("the configuration {path} is not UTF-8 text", path = .0.display())]
    NotText(PathBuf),
    /// A file found by lookup that somebody else may write.
    #[error(
        "the configuration {path} is not used: {why}\n  \
         change its owner or mode, or name it with --config if you trust it",
        path = path.display()
    )]
    Untrusted { path: PathBuf, why: String },
    /// Neither XDG_STATE_HOME nor HOME says where state belongs.
    #[error(
        "no state directory: HOME is not set\n  set SANDSTORM_STATE_DIR, or `state_dir` in the configuration"
    )]
    NoStateDir,
    /// Every problem found, in the order of the file.
    #[error("{}", Problems(.0))]
    Invalid(Vec<Problem>),
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// File with line and column, variable or flag.
    pub origin: Origin,
    /// The key's path, such as `limits.memory`; empty for a file that is not YAML.
    pub key: String,
    pub kind: ProblemKind,
    /// What would have been right.
    pub expected: Option<String>,
    /// The nearest name or value that exists.
    pub nearest: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProblemKind {
    Syntax(String),
    UnknownKey,
    DuplicateKey { first_line: u32 },
    WrongType { found: &'static str },
    BadValue(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        write!(f, "{}: ", self.origin)?;
        match &self.kind {
            ProblemKind::Syntax(message) => write!(f, "not valid YAML: {message}")?,
            ProblemKind::UnknownKey => write!(f, "unknown key `{key}`")?,
            ProblemKind::DuplicateKey { first_line } => {
                write!(f, "duplicate key `{key}`, first set on line {first_line}")?;
            }
            ProblemKind::WrongType { found } => write!(f, "wrong type for `{key}`: found {found}")?,
            ProblemKind::BadValue(message) => write!(f, "bad value for `{key}`: {message}")?,
        }
        if let Some(expected) = &self.expected {
            write!(f, "\n  expected {expected}")?;
        }
        if let Some(nearest) = &self.nearest {
            write!(f, "\n  did you mean `{nearest}`?")?;
        }
        Ok(())
    }
}

struct Problems<'a>(&'a [Problem]);

impl fmt::Display for Problems<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

/// Something that deserves a line on standard error, but stops nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A `SANDSTORM_…` variable that nothing reads.
    UnknownVariable { name: String, nearest: Option<&'static str> },
    /// An older name that is known, but changes nothing in this version.
    WithoutEffect { name: &'static str, why: &'static str },
    /// An older name that is set beside the newer one, which wins.
    Shadowed { name: &'static str, by: &'static str },
    /// A file named on purpose that somebody else may write.
    Untrusted { path: PathBuf, why: String },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::UnknownVariable { name, nearest } => {
                write!(f, "unknown environment variable {name}")?;
                nearest.map_or(Ok(()), |nearest| write!(f, "; did you mean {nearest}?"))
            }
            Warning::WithoutEffect { name, why } => write!(f, "{name} has no effect: {why}"),
            Warning::Shadowed { name, by } => write!(f, "{name} is ignored, because {by} is set"),
            Warning::Untrusted { path, why } => write!(f, "the configuration {} {why}", path.display()),
        }
    }
}

/// The candidate that `name` is most likely a slip of, if one is near enough to be worth saying.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let normal = name.to_lowercase().replace('-', "_");
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&normal, &candidate.to_lowercase()), candidate))
        .filter(|(score, _)| *score >= 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
