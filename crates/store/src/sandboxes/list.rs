//! Lists of a tenant's sandboxes, page by page.

use sandstorm_types::{Labels, SandboxId, TenantId, Timestamp};

use super::SandboxRow;
use crate::database::{Statement, sql};
use crate::{Result, Store};

#[derive(Debug, Clone, PartialEq, Default)]
pub struct SandboxFilter {
    /// Names of states as `State` prints them; empty is all.
    pub states: Vec<String>,
    /// All of them must be there.
    pub labels: Labels,
    pub include_ended: bool,
    /// Only what comes after this one in the list.
    pub before: Option<(Timestamp, SandboxId)>,
    pub limit: u32,
}

impl Store {
    /// Newest first.
    pub async fn list_sandboxes(&self, tenant: TenantId, filter: &SandboxFilter) -> Result<Vec<SandboxRow>> {
        self.database().rows(query(tenant, filter)).await?.iter().map(SandboxRow::read).collect()
    }
}

fn query(tenant: TenantId, filter: &SandboxFilter) -> Statement {
    let mut text = "SELECT * FROM sandboxes WHERE tenant = $1".to_owned();
    let mut placeholder = 1;
    let mut next = || {
        placeholder += 1;
        format!("${placeholder}")
    };
    if !filter.include_ended {
        text += " AND ended_at IS NULL";
    }
    if !filter.states.is_empty() {
        let places: Vec<String> = filter.states.iter().map(|_| next()).collect();
        text += &format!(" AND state IN ({})", places.join(", "));
    }
    for _ in filter.labels.iter() {
        text += &format!(
            " AND id IN (SELECT sandbox FROM sandbox_labels WHERE sandbox_labels.tenant = $1
                AND name = {} AND value = {})",
            next(),
            next()
        );
    }
    if filter.before.is_some() {
        text += &format!(" AND (created_at, id) < ({}, {})", next(), next());
    }
    text += &format!(" ORDER BY created_at DESC, id DESC LIMIT {}", next());

    let mut query = sql(text).bind(tenant);
    for state in &filter.states {
        query = query.bind(&**state);
    }
    for (name, value) in filter.labels.iter() {
        query = query.bind(name).bind(value);
    }
    if let Some((at, id)) = filter.before {
        query = query.bind(at).bind(id);
    }
    query.bind(filter.limit)
}
