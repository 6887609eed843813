//! The ledger of whoever routes against those of the servers that did the work.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandstorm_catalog::{Catalog, ProviderEntry};
use sandstorm_control::server::{Caller, Control, CostQuery, Costs, GroupBy, LedgerSum, Settings};
use sandstorm_types::Usd;
use serde_json::Value;

use crate::world::World;

/// How long a server that is well again may keep something that it was asked to end while it was not.
const PATIENCE: Duration = Duration::from_secs(240);

/// What is asked for a processor and a gibibyte, with fractions that no rounding hides.
const PRICE: &str = r#"{"model": "owned", "vcpu_hour": 3.7, "gib_hour": 0.31}"#;

fn catalog() -> Catalog {
    let json = format!(
        r#"{{"memory": {{"like": "local", "price": {PRICE}}}, "far": {{"like": "sandstorm", "price": {PRICE}}}}}"#
    );
    Catalog::embedded().with(&serde_json::from_str(&json).unwrap()).unwrap()
}

/// A server that asks this price.
pub(crate) fn priced(settings: Settings) -> Settings {
    Settings { costs: Costs { catalog: Arc::new(catalog()), ..Costs::default() }, ..settings }
}

/// The same price as whoever routes has it.
pub(crate) fn entry() -> Arc<ProviderEntry> {
    Arc::new(catalog().get("far").unwrap().clone())
}

/// What the router has spent, by provider.
pub(crate) async fn spent(control: &Control, caller: &Caller) -> BTreeMap<String, LedgerSum> {
    let query = CostQuery { group_by: vec![GroupBy::Provider], ..CostQuery::default() };
    let report = control.costs(caller, query).await.unwrap();
    assert_eq!(report.next_cursor, None);
    report.groups.into_iter().map(|group| (group.values[0].clone(), group.sum)).collect()
}

/// Waits until every provider has said what it counted.
pub(crate) async fn settled(control: &Control, caller: &Caller) -> BTreeMap<String, LedgerSum> {
    let began = Instant::now();
    loop {
        let spent = spent(control, caller).await;
        if spent.values().all(|sum| sum.open == 0 && sum.estimated == 0) {
            return spent;
        }
        assert!(began.elapsed() < PATIENCE, "never settled: {spent:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What a server says that it did and what that costs: sandboxes, milliseconds, those of processors, and money.
async fn said(server: &World) -> (u64, u64, u64, Usd) {
    let usage = server.client().usage().await.unwrap();
    let total: &Value = &usage["costs"]["total"];
    let count = |name: &str| total[name].as_u64().unwrap();
    assert_eq!((count("open"), count("unpriced"), count("estimated")), (0, 0, 0), "{total}");
    let charge = total["charge_usd"].as_str().unwrap().parse().unwrap();
    (count("sandboxes"), count("wall_ms"), count("cpu_ms"), charge)
}

/// The router's ledger is what the servers say, to the millisecond and the picodollar.
pub(crate) async fn agrees(
    spent: &BTreeMap<String, LedgerSum>,
    servers: impl Iterator<Item = (&str, &World)>,
) {
    let mut known = 0;
    for (name, server) in servers {
        let ours = spent.get(name).cloned().unwrap_or_default();
        let ours = (ours.runs + ours.sandboxes + ours.attempts, ours.wall_ms, ours.cpu_ms, ours.charge);
        assert_eq!(ours, said(server).await, "{name}");
        known += usize::from(spent.contains_key(name));
    }
    assert_eq!(known, spent.len(), "nothing was spent anywhere else: {spent:?}");
}
