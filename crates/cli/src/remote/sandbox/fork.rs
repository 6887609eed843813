//! `sandstorm sandbox fork`.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use sandstorm_client::{Client, Fork, NewFork};

use super::super::{Output, ids};
use super::create::{labels, time};
use crate::complaint::safe;

#[derive(Debug, Args)]
pub(crate) struct ForkCommand {
    /// Sandbox: its id, or the beginning of it
    #[arg(value_name = "ID")]
    sandbox: String,
    /// How many to make
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    count: u32,
    /// Label of the new ones instead of the source's, `KEY=VALUE`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// How long the new ones live unless they are extended, such as `10m`
    #[arg(long, value_name = "TIME")]
    lifetime: Option<String>,
    /// Leave out contexts that cannot be carried, instead of refusing
    #[arg(long)]
    allow_partial: bool,
}

pub(super) async fn fork(client: &Client, output: Output, command: ForkCommand) -> anyhow::Result<ExitCode> {
    let new = NewFork {
        count: command.count,
        labels: (!command.label.is_empty()).then(|| labels(&command.label)).transpose()?,
        lifetime: command.lifetime.as_deref().map(|text| time("--lifetime", text)).transpose()?,
        allow_partial: command.allow_partial,
    };
    let id = ids::sandbox(client, &command.sandbox).await?;
    let forks = client.fork_sandbox(id, &new).await?;
    let remarks = remarks(&forks);
    if !output.json && !remarks.is_empty() {
        use std::io::Write as _;
        write!(std::io::stderr(), "{remarks}")?;
    }
    output.show(&serde_json::json!({ "forks": forks }), || made(&forks))?;
    let failed = forks.iter().any(|fork| fork.sandbox.is_none());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The ids, one on a line.
fn made(forks: &[Fork]) -> String {
    let ids = forks.iter().filter_map(|fork| fork.sandbox.as_ref());
    ids.map(|sandbox| format!("{}\n", sandbox.id)).collect()
}

/// What was left behind, once for all forks, and which could not be made.
fn remarks(forks: &[Fork]) -> String {
    let mut text = String::new();
    let mut seen = Vec::new();
    for fork in forks {
        for left in &fork.not_carried {
            if !seen.contains(&left) {
                seen.push(left);
                let _ = writeln!(text, "not carried: {}: {}", safe(&left.what), safe(&left.why));
            }
        }
        if let Some(problem) = &fork.problem {
            let _ = writeln!(text, "one could not be made: {}", safe(&problem.detail));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_go_to_programs_and_remarks_to_people() {
        let forks: Vec<Fork> = serde_json::from_value(serde_json::json!([
            { "sandbox": { "id": "sbx_aaaaaaaaaaaaaaaaaaaaaaaaaa", "state": "ready",
                "created_at": "2026-11-15T12:03:43.123Z" },
              "contexts": [], "not_carried": [{ "what": "watchers 1", "why": "they stay" }] },
            { "sandbox": { "id": "sbx_baaaaaaaaaaaaaaaaaaaaaaaaa", "state": "ready",
                "created_at": "2026-11-15T12:03:43.123Z" },
              "contexts": [], "not_carried": [{ "what": "watchers 1", "why": "they stay" }] },
            { "sandbox": null, "problem": { "code": "quota", "detail": "used up" } },
        ]))
        .unwrap();
        assert_eq!(made(&forks), "sbx_aaaaaaaaaaaaaaaaaaaaaaaaaa\nsbx_baaaaaaaaaaaaaaaaaaaaaaaaa\n");
        assert_eq!(remarks(&forks), "not carried: watchers 1: they stay\none could not be made: used up\n");
    }
}
