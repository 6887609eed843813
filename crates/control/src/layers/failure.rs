//! What a script's complaints mean to whoever asked for the packages.

use sandstorm_language::Recipe;
use sandstorm_provider::{EndCause, Error};
use sandstorm_types::{ErrorKind, LimitName};

use crate::execute::Executed;

/// Lines of a package manager's output that are shown.
const SHOWN_LINES: usize = 20;
const SHOWN_BYTES: usize = 4000;

/// The error of a script that did not succeed. What package managers print may quote an address with its credentials,
/// so `secrets` are taken out.
pub(crate) fn of(recipe: &Recipe, step: &str, executed: &Executed, secrets: &[String]) -> Error {
    let said = without(secrets, said(executed));
    let name = &recipe.name;
    match executed.end.cause {
        EndCause::Caller => return Error::new(ErrorKind::Cancelled, "the caller gave up"),
        EndCause::Limit(LimitName::Wall) => {
            return Error::new(ErrorKind::Timeout, format!("{name} took too long to {step} packages"));
        }
        EndCause::Limit(limit) => {
            let message = format!("{name} needs more than its {limit} limit to {step} packages");
            return Error::new(ErrorKind::InvalidRequest, message);
        }
        EndCause::Program | EndCause::Sandbox | EndCause::Compiler => {}
    }
    if recipe.failures.unreachable.iter().any(|text| said.contains(text.as_str())) {
        let message = format!("the package index of {name} cannot be reached\n{said}");
        return Error::new(ErrorKind::Provider, message);
    }
    Error::new(ErrorKind::InvalidRequest, format!("{name} could not {step} the packages\n{said}"))
}

fn without(secrets: &[String], text: String) -> String {
    secrets.iter().filter(|secret| !secret.is_empty()).fold(text, |text, secret| text.replace(secret, "…"))
}

/// The end of what was printed.
fn said(executed: &Executed) -> String {
    let mut all = String::from_utf8_lossy(&executed.stdout).into_owned();
    all.push_str(&String::from_utf8_lossy(&executed.stderr));
    let lines: Vec<&str> = all.lines().filter(|line| !line.trim().is_empty()).collect();
    let mut text = lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n");
    let mut from = text.len().saturating_sub(SHOWN_BYTES);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text.split_off(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_repeated() {
        let secrets = ["me:p@ss".to_owned(), "me:p%40ss".to_owned(), String::new()];
        let said = "cannot open https://me:p%40ss@a.example/ as me:p@ss".to_owned();
        assert_eq!(without(&secrets, said), "cannot open https://…@a.example/ as …");
    }
}
