//! Ids as people type them: whole, or as much as tells one from the others.

use std::str::FromStr;

use sandstorm_client::{Client, RunQuery, SandboxQuery, SnapshotQuery, unique};
use sandstorm_types::{ContextId, ExecId, RunId, SandboxId, SnapshotId};

use crate::complaint::misuse;

/// Pages that are searched for an id at most.
const MOST_PAGES: usize = 100;
const PAGE: u32 = 100;

pub(super) async fn sandbox(client: &Client, given: &str) -> anyhow::Result<SandboxId> {
    if let Ok(id) = given.parse() {
        return Ok(id);
    }
    // A malformed one is refused before the server is asked.
    check(given, SandboxId::PREFIX)?;
    let living = sandboxes(client, false).await?;
    let found = match unique(given, SandboxId::PREFIX, living) {
        Err(sandstorm_client::PrefixError::Unknown(_)) => {
            unique(given, SandboxId::PREFIX, sandboxes(client, true).await?)
        }
        found => found,
    };
    found.map_err(|error| misuse(format!("sandbox: {error}")))
}

pub(super) async fn exec(client: &Client, sandbox: SandboxId, given: &str) -> anyhow::Result<ExecId> {
    among(given, ExecId::PREFIX, "exec", async || {
        Ok(client.execs(sandbox, false).await?.into_iter().map(|exec| exec.id).collect())
    })
    .await
}

pub(super) async fn context(client: &Client, sandbox: SandboxId, given: &str) -> anyhow::Result<ContextId> {
    among(given, ContextId::PREFIX, "context", async || {
        Ok(client.contexts(sandbox).await?.into_iter().map(|context| context.id).collect())
    })
    .await
}

pub(super) async fn run(client: &Client, given: &str) -> anyhow::Result<RunId> {
    among(given, RunId::PREFIX, "run", async || {
        let mut query = RunQuery { limit: Some(PAGE), ..RunQuery::default() };
        let mut ids = Vec::new();
        for _ in 0..MOST_PAGES {
            let page = client.runs(&query).await?;
            ids.extend(page.items.into_iter().map(|run| run.id));
            let Some(cursor) = page.next_cursor else { break };
            query.cursor = Some(cursor);
        }
        Ok(ids)
    })
    .await
}

/// A snapshot by its name, its id or the beginning of that. What has the form of an id is no name.
pub(super) async fn snapshot(client: &Client, given: &str) -> anyhow::Result<SnapshotId> {
    if !given.starts_with(SnapshotId::PREFIX) {
        let query =
            SnapshotQuery { name: Some(given.to_owned()), limit: Some(1), ..SnapshotQuery::default() };
        if let Some(named) = client.snapshots(&query).await?.items.first() {
            return Ok(named.id);
        }
    }
    among(given, SnapshotId::PREFIX, "snapshot", async || {
        let all = all_snapshots(client, SnapshotQuery::default()).await?;
        Ok(all.into_iter().map(|snapshot| snapshot.id).collect())
    })
    .await
}

/// Every snapshot that a query finds.
pub(super) async fn all_snapshots(
    client: &Client,
    mut query: SnapshotQuery,
) -> anyhow::Result<Vec<sandstorm_client::Snapshot>> {
    query.limit = Some(PAGE);
    let mut all = Vec::new();
    for _ in 0..MOST_PAGES {
        let page = client.snapshots(&query).await?;
        all.extend(page.items);
        let Some(cursor) = page.next_cursor else { break };
        query.cursor = Some(cursor);
    }
    Ok(all)
}

async fn among<I: FromStr + Copy + std::fmt::Display>(
    given: &str,
    prefix: &'static str,
    what: &str,
    list: impl AsyncFnOnce() -> anyhow::Result<Vec<I>>,
) -> anyhow::Result<I> {
    if let Ok(id) = given.parse() {
        return Ok(id);
    }
    check(given, prefix)?;
    unique(given, prefix, list().await?).map_err(|error| misuse(format!("{what}: {error}")))
}

/// Refuses what cannot be the beginning of an id.
fn check(given: &str, prefix: &'static str) -> anyhow::Result<()> {
    match unique(given, prefix, std::iter::empty::<SandboxId>()) {
        Err(error @ sandstorm_client::PrefixError::Form { .. }) => Err(misuse(error.to_string())),
        _ => Ok(()),
    }
}

/// The ids of all sandboxes, page by page.
async fn sandboxes(client: &Client, include_ended: bool) -> anyhow::Result<Vec<SandboxId>> {
    let query = SandboxQuery { include_ended, ..SandboxQuery::default() };
    Ok(all_sandboxes(client, query).await?.into_iter().map(|sandbox| sandbox.id).collect())
}

/// Every sandbox that a query finds.
pub(super) async fn all_sandboxes(
    client: &Client,
    mut query: SandboxQuery,
) -> anyhow::Result<Vec<sandstorm_client::Sandbox>> {
    query.limit = Some(PAGE);
    let mut all = Vec::new();
    for _ in 0..MOST_PAGES {
        let page = client.sandboxes(&query).await?;
        all.extend(page.items);
        let Some(cursor) = page.next_cursor else { break };
        query.cursor = Some(cursor);
    }
    Ok(all)
}
