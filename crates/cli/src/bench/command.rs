//! Programs that are started beside the server: what it is compared with.

use std::ffi::OsString;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// A command line with an environment of its own: a caller's variables can make a program many times slower.
#[derive(Debug, Clone)]
pub(super) struct CommandLine(Vec<OsString>);

impl<I: IntoIterator<Item = S>, S: Into<OsString>> From<I> for CommandLine {
    fn from(words: I) -> Self {
        Self(words.into_iter().map(Into::into).collect())
    }
}

impl CommandLine {
    pub(super) fn and<S: Into<OsString>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.0.extend(words.into_iter().map(Into::into));
        self
    }

    #[expect(clippy::disallowed_methods, reason = "a bench starts what it compares with by itself")]
    pub(super) fn command(&self) -> Command {
        let (program, rest) = self.0.split_first().expect("a command line names its program");
        let mut command = Command::new(program);
        command
            .args(rest)
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", "/nonexistent").env("LANG", "C.UTF-8").stdin(Stdio::null());
        command
    }

    /// Runs to the end; what it printed.
    pub(super) fn told(&self) -> anyhow::Result<String> {
        let output = self.command().output().with_context(|| self.failed())?;
        self.printed(&output)
    }

    /// From spawn to exit, of a program that has to print this.
    pub(super) fn timed(&self, expected: &str) -> anyhow::Result<Duration> {
        let mut command = self.command();
        let began = Instant::now();
        let output = command.output();
        let took = began.elapsed();
        let printed = self.printed(&output.with_context(|| self.failed())?)?;
        if printed != expected {
            bail!("{} printed {printed:?}", self.name());
        }
        Ok(took)
    }

    fn printed(&self, output: &Output) -> anyhow::Result<String> {
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            let said: Vec<&str> = words.lines().filter(|line| !line.trim().is_empty()).collect();
            let last = said[said.len().saturating_sub(2)..].join("; ");
            bail!(
                "{} ended with {}: {}",
                self.name(),
                output.status,
                last.chars().take(400).collect::<String>()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    pub(super) fn name(&self) -> String {
        self.0[0].to_string_lossy().into_owned()
    }

    fn failed(&self) -> String {
        format!("{} could not be started", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_program_that_says_the_right_thing_is_timed() {
        let shell = |script: &str| CommandLine::from(["/bin/sh", "-c", script]);
        assert!(shell("echo 1").timed("1\n").unwrap() > Duration::ZERO);
        assert!(shell("echo 2").timed("1\n").unwrap_err().to_string().contains("\"2\\n\""));
        let error = shell("echo oh no >&2; exit 3").timed("1\n").unwrap_err().to_string();
        assert!(error.contains("oh no") && error.contains('3'), "{error}");
        assert!(CommandLine::from(["/nonexistent"]).timed("1\n").is_err());
        assert_eq!(shell("echo $HOME").told().unwrap(), "/nonexistent\n");
    }
}
