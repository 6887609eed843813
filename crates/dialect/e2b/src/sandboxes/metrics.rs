//! What sandboxes use.

use axum::extract::State;
use axum::{Extension, Json};
use http::Uri;
use sandstorm_control::server::{Caller, Sample, SandboxView, Scope};
use sandstorm_types::Timestamp;
use serde_json::{Map, Value, json};

use super::Meant;
use crate::query::Query;
use crate::refusal::Refusal;
use crate::state::Dialect;

/// Most sandboxes of one request.
const MOST: usize = 100;

pub(crate) async fn of_one(meant: Meant, uri: Uri) -> Result<Json<Vec<Value>>, Refusal> {
    let query = Query::of(&uri);
    let moment = |seconds: i64| Timestamp::from_millis(seconds.saturating_mul(1000));
    let (from, to) = (query.number("start")?.map(moment), query.number("end")?.map(moment));
    if let (Some(from), Some(to)) = (from, to)
        && to < from
    {
        return Err(Refusal::invalid("end is before start"));
    }
    let view = meant.living().await?;
    let samples = meant.dialect.control.metrics(&meant.caller, view.id, from, to).await?;
    Ok(Json(metrics(&view, &samples)))
}

/// The latest reading of each.
pub(crate) async fn of_many(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Json<Value>, Refusal> {
    caller.require(Scope::Sandbox)?;
    let query = Query::of(&uri);
    let ids: Vec<&str> =
        query.get("sandbox_ids").unwrap_or_default().split(',').filter(|id| !id.is_empty()).collect();
    if ids.len() > MOST {
        return Err(Refusal::invalid("too many sandboxes, maximum is 100"));
    }
    let mut found = Map::new();
    for id in ids {
        let Ok(view) = dialect.living(&caller, id).await else { continue };
        let samples = dialect.control.metrics(&caller, view.id, None, None).await?;
        if let Some(last) = metrics(&view, &samples).pop() {
            found.insert(id.to_owned(), last);
        }
    }
    Ok(Json(json!({"sandboxes": found})))
}

pub(crate) fn metrics(view: &SandboxView, samples: &[Sample]) -> Vec<Value> {
    let limits = &view.spec.limits;
    let before = std::iter::once(None).chain(samples.iter().map(Some));
    let each = samples.iter().zip(before);
    each.map(|(sample, before)| {
        json!({
            "timestamp": sample.at,
            "timestampUnix": sample.at.millis().div_euclid(1000),
            "cpuCount": limits.cpus.milli().div_ceil(1000),
            "cpuUsedPct": busy(before, sample, view.created_at),
            "memUsed": sample.memory_bytes,
            "memTotal": limits.memory.as_u64(),
            "memCache": 0,
            "diskUsed": sample.disk_bytes,
            "diskTotal": limits.disk.as_u64(),
        })
    })
    .collect()
}

/// Hundredths of one processor that were used since the reading before.
fn busy(before: Option<&Sample>, now: &Sample, born: Timestamp) -> f64 {
    let (since, used) = before.map_or((born, 0), |sample| (sample.at, sample.cpu_ms));
    let span = now.at.since(since).as_secs_f64() * 1000.0;
    let used = now.cpu_ms.saturating_sub(used) as f64;
    if span > 0.0 { (used / span * 10_000.0).round() / 100.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_is_counted_from_reading_to_reading() {
        let sample = |at, cpu_ms| Sample {
            at: Timestamp::from_millis(at),
            cpu_ms,
            memory_bytes: 0,
            peak_memory_bytes: 0,
            processes: 0,
            disk_bytes: 0,
            inodes: 0,
        };
        let (first, second) = (sample(1000, 500), sample(2000, 750));
        assert_eq!(busy(None, &first, Timestamp::from_millis(0)), 50.0);
        assert_eq!(busy(Some(&first), &second, Timestamp::from_millis(0)), 25.0);
        assert_eq!(busy(Some(&second), &second, Timestamp::from_millis(0)), 0.0);
    }
}
