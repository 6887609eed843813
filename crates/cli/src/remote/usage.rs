//! `sandstorm usage`: what was used on a server, and what it cost.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use sandstorm_client::{Client, UsageQuery};
use serde_json::Value;

use super::table::Table;
use super::{Connection, Output};
use crate::complaint::paints;

#[derive(Debug, Args)]
pub(crate) struct UsageCommand {
    #[command(flatten)]
    pub(super) connection: Connection,
    #[command(flatten)]
    pub(super) wanted: Wanted,
}

#[derive(Debug, Args)]
pub(super) struct Wanted {
    /// What began from here: a day or a time; the first of the month unless given
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// To before here; now unless given
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// What to sum up by: tenant, key, provider, region, day, hour, label:NAME; may be repeated
    #[arg(short, long = "by", value_name = "WHAT", default_value = "provider", value_delimiter = ',')]
    by: Vec<String>,
    /// Print comma-separated values
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Most groups to show
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: u32,
}

/// Groups on a page at most.
const PAGE: u32 = 1000;

pub(super) async fn serve(client: Client, output: Output, wanted: Wanted) -> anyhow::Result<ExitCode> {
    let Wanted { from, to, by, csv, limit } = wanted;
    let mut query =
        UsageQuery { from, to, group_by: by.clone(), limit: Some(limit.clamp(1, PAGE)), cursor: None };
    if csv {
        let table = client.usage_table(&query).await?;
        std::io::stdout().lock().write_all(table.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut usage = client.usage_by(&query).await?;
    let mut items = taken(&mut usage);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    while let Some(cursor) = usage["costs"]["next_cursor"].as_str().filter(|_| items.len() < limit) {
        query.cursor = Some(cursor.to_owned());
        let mut next = client.usage_by(&query).await?;
        items.extend(taken(&mut next));
        usage = next;
    }
    items.truncate(limit);
    usage["costs"]["items"] = Value::Array(items);
    output.show(&usage, || text(&usage, &by))?;
    Ok(ExitCode::SUCCESS)
}

fn taken(usage: &mut Value) -> Vec<Value> {
    usage["costs"]["items"].as_array_mut().map(std::mem::take).unwrap_or_default()
}

/// A table for people, with the sum below.
fn text(usage: &Value, by: &[String]) -> String {
    let costs = &usage["costs"];
    let mut table = Table::new(&["GROUP", "RUNS", "SANDBOXES", "TIME", "CPU", "ESTIMATE", "COST"]);
    for item in costs["items"].as_array().into_iter().flatten() {
        let group = by.iter().map(|name| match item["group"][name].as_str() {
            None | Some("") => "-",
            Some(value) => value,
        });
        row(&mut table, group.collect::<Vec<_>>().join(" "), item);
    }
    row(&mut table, "TOTAL".to_owned(), &costs["total"]);
    let mut text = table.text(paints(&std::io::stdout()));
    let unpriced = costs["total"]["unpriced"].as_u64().unwrap_or(0);
    if unpriced > 0 {
        text.push_str(&format!("{unpriced} of these ran where no price is known.\n"));
    }
    let estimated = costs["total"]["estimated"].as_u64().unwrap_or(0);
    if estimated > 0 {
        text.push_str(&format!("{estimated} of these are by our own measure, not by their provider's.\n"));
    }
    text
}

fn row(table: &mut Table, group: String, amounts: &Value) {
    let count = |name: &str| amounts[name].as_u64().unwrap_or(0);
    let seconds = |name: &str| format!("{:.1}s", count(name) as f64 / 1000.0);
    let dollars = |name: &str| format!("${}", amounts[name].as_str().unwrap_or("0"));
    table.row([
        group.into(),
        count("runs").to_string().into(),
        count("sandboxes").to_string().into(),
        seconds("wall_ms").into(),
        seconds("cpu_ms").into(),
        dollars("estimate_usd").into(),
        dollars("cost_usd").into(),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_for_people() {
        let amounts = |cost: &str| {
            serde_json::json!({"runs": 3, "sandboxes": 1, "wall_ms": 61_500, "cpu_ms": 40, "estimate_usd": "0.02",
                "cost_usd": cost, "unpriced": 1})
        };
        let mut item = amounts("0.0105");
        item["group"] = serde_json::json!({"provider": "local", "label:team": ""});
        let usage = serde_json::json!({"costs": {"items": [item], "total": amounts("0.0105")}});
        let expected = "GROUP    RUNS  SANDBOXES  TIME   CPU   ESTIMATE  COST\n\
                        local -  3     1          61.5s  0.0s  $0.02     $0.0105\n\
                        TOTAL    3     1          61.5s  0.0s  $0.02     $0.0105\n\
                        1 of these ran where no price is known.\n";
        assert_eq!(text(&usage, &["provider".to_owned(), "label:team".to_owned()]), expected);
    }
}
