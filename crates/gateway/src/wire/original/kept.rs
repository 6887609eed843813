//! Snapshots and usage in the words of the first Sandstorm.

use std::collections::BTreeMap;

use sandstorm_control::server::{CostReport, LedgerSum, SnapshotView};
use sandstorm_types::{SandboxId, SnapshotId, Timestamp, Usd};
use serde::Serialize;
use utoipa::ToSchema;

/// A saved sandbox, as the first Sandstorm's SDK reads it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OriginalSnapshot {
    #[schema(value_type = String, pattern = "^snap_[a-z2-7]{26}$")]
    id: SnapshotId,
    #[schema(value_type = String, pattern = "^sbx_[a-z2-7]{26}$")]
    sandbox_id: SandboxId,
    provider: String,
    #[schema(value_type = String, format = DateTime)]
    timestamp: Timestamp,
    /// Always null: no hash of all files is kept. Each piece of a snapshot has its own.
    filesystem_hash: Option<String>,
    /// Bytes; 0 where its keeper does not tell.
    size: u64,
    metadata: BTreeMap<&'static str, String>,
}

impl From<SnapshotView> for OriginalSnapshot {
    fn from(view: SnapshotView) -> Self {
        Self {
            id: view.id,
            sandbox_id: view.sandbox,
            provider: view.provider,
            timestamp: view.created_at,
            filesystem_hash: None,
            size: view.size.map_or(0, |size| size.as_u64()),
            metadata: view.name.map(|name| ("name", name)).into_iter().collect(),
        }
    }
}

/// A sandbox that was made from a snapshot.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = OriginalRestored)]
pub(crate) struct RestoredBody {
    #[schema(value_type = String, pattern = "^sbx_[a-z2-7]{26}$")]
    pub(crate) sandbox_id: SandboxId,
}

/// What a tenant spent, as the first Sandstorm's SDK reads it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OriginalUsage {
    total_runs: u64,
    /// USD, of everything: also sandboxes and snapshots.
    total_cost: f64,
    /// Milliseconds, of runs; 0 without any.
    avg_latency: f64,
    provider_breakdown: BTreeMap<String, ProviderUsage>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProviderUsage {
    runs: u64,
    cost: f64,
    avg_latency: f64,
}

/// Sums of one provider, or of all.
#[derive(Debug, Default)]
struct Sums {
    runs: u64,
    run_ms: u64,
    cost: Usd,
}

impl Sums {
    fn add(&mut self, kind: &str, sum: &LedgerSum) {
        self.cost += sum.cost();
        if kind == "run" {
            self.runs += sum.runs;
            self.run_ms += sum.wall_ms;
        }
    }

    fn mean_ms(&self) -> f64 {
        if self.runs == 0 { 0.0 } else { self.run_ms as f64 / self.runs as f64 }
    }
}

impl OriginalUsage {
    /// From sums by provider and kind.
    pub(crate) fn new(report: &CostReport) -> Self {
        let (mut all, mut each) = (Sums::default(), BTreeMap::<String, Sums>::new());
        for group in &report.groups {
            let [provider, kind] = group.values.as_slice() else { continue };
            all.add(kind, &group.sum);
            each.entry(provider.clone()).or_default().add(kind, &group.sum);
        }
        let shown = |sums: Sums| ProviderUsage {
            runs: sums.runs,
            cost: sums.cost.as_f64(),
            avg_latency: sums.mean_ms(),
        };
        Self {
            total_runs: all.runs,
            total_cost: all.cost.as_f64(),
            avg_latency: all.mean_ms(),
            provider_breakdown: each.into_iter().map(|(name, sums)| (name, shown(sums))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_control::server::CostGroup;

    use super::*;

    #[test]
    fn only_runs_count_for_their_mean_time() {
        let group = |provider: &str, kind: &str, runs, wall_ms, dollars| CostGroup {
            values: vec![provider.to_owned(), kind.to_owned()],
            sum: LedgerSum { runs, wall_ms, charge: Usd::dollars(dollars), ..LedgerSum::default() },
        };
        let report = CostReport {
            from: Timestamp::from_millis(0),
            to: Timestamp::from_millis(1),
            group_by: Vec::new(),
            groups: vec![
                group("a", "run", 2, 100, 1),
                group("a", "sandbox", 0, 1_000_000, 2),
                group("b", "run", 2, 300, 3),
            ],
            total: LedgerSum::default(),
            next_cursor: None,
        };
        let expected = serde_json::json!({
            "totalRuns": 4, "totalCost": 6.0, "avgLatency": 100.0,
            "providerBreakdown": {
                "a": { "runs": 2, "cost": 3.0, "avgLatency": 50.0 },
                "b": { "runs": 2, "cost": 3.0, "avgLatency": 150.0 },
            },
        });
        assert_eq!(serde_json::to_value(OriginalUsage::new(&report)).unwrap(), expected);
    }
}
