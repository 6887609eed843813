//! What things cost.

use std::collections::BTreeMap;

use sandstorm_control::server::{CostGroup, CostReport, LedgerSum};
use sandstorm_types::{Timestamp, Usd};
use serde::{Deserialize, Deserializer, Serialize, de};
use utoipa::ToSchema;

use super::shapes::DollarsText;

/// The most that something may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct MaxCost(Usd);

impl From<MaxCost> for Usd {
    fn from(most: MaxCost) -> Self {
        most.0
    }
}

impl<'de> Deserialize<'de> for MaxCost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Given {
            Number(f64),
            Text(String),
        }
        let wrong = || de::Error::custom("must be an amount of dollars such as \"0.05\", at most 1000000");
        let text = match Given::deserialize(deserializer).map_err(|_| wrong())? {
            Given::Number(number) if (0.0..=1e6).contains(&number) => format!("{number:.12}"),
            Given::Number(_) => return Err(wrong()),
            Given::Text(text) => text,
        };
        let most: Usd = text.parse().map_err(|_| wrong())?;
        let digits = text.split('.').next().map_or(0, str::len);
        if text.starts_with('-') || digits > 7 { Err(wrong()) } else { Ok(Self(most)) }
    }
}

/// What was spent in a time, in groups. An entry counts where it began.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Costs)]
pub(crate) struct CostsBody {
    #[schema(value_type = String, format = DateTime)]
    from: Timestamp,
    /// Not included.
    #[schema(value_type = String, format = DateTime)]
    to: Timestamp,
    group_by: Vec<String>,
    /// Of everything, on whichever page it is.
    total: Amounts,
    items: Vec<CostItem>,
    next_cursor: Option<String>,
}

/// One group.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CostGroup)]
pub(crate) struct CostItem {
    /// By the names in `group_by`; a label or region that is not there is empty.
    group: BTreeMap<String, String>,
    #[serde(flatten)]
    amounts: Amounts,
}

/// Amounts of money are decimal texts, so that nobody rounds them.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CostAmounts)]
pub(crate) struct Amounts {
    runs: u64,
    sandboxes: u64,
    /// Elsewhere, of runs and sandboxes that came about somewhere else or not at all; only those that were begun.
    attempts: u64,
    /// Not over yet, so that only their estimate is known.
    open: u64,
    /// Over, at a provider whose price is not known.
    unpriced: u64,
    /// Over, by figures that were measured from here: the provider did not say what it counted, or not yet.
    estimated: u64,
    wall_ms: u64,
    cpu_ms: u64,
    #[schema(value_type = DollarsText)]
    estimate_usd: Usd,
    /// What providers charge.
    #[schema(value_type = DollarsText)]
    charge_usd: Usd,
    /// How much of that free credits paid.
    #[schema(value_type = DollarsText)]
    credit_usd: Usd,
    /// The operator's share.
    #[schema(value_type = DollarsText)]
    margin_usd: Usd,
    #[schema(value_type = DollarsText)]
    snapshots_usd: Usd,
    /// What is left to pay: charge less credit, with margin and snapshots.
    #[schema(value_type = DollarsText)]
    cost_usd: Usd,
}

/// Names of the columns of [`Amounts`], in their order.
const COLUMNS: [&str; 14] = [
    "runs",
    "sandboxes",
    "attempts",
    "open",
    "unpriced",
    "estimated",
    "wall_ms",
    "cpu_ms",
    "estimate_usd",
    "charge_usd",
    "credit_usd",
    "margin_usd",
    "snapshots_usd",
    "cost_usd",
];

impl From<LedgerSum> for Amounts {
    fn from(sum: LedgerSum) -> Self {
        Self {
            cost_usd: sum.cost(),
            runs: sum.runs,
            sandboxes: sum.sandboxes,
            attempts: sum.attempts,
            open: sum.open,
            unpriced: sum.unpriced,
            estimated: sum.estimated,
            wall_ms: sum.wall_ms,
            cpu_ms: sum.cpu_ms,
            estimate_usd: sum.estimate,
            charge_usd: sum.charge,
            credit_usd: sum.credit,
            margin_usd: sum.margin,
            snapshots_usd: sum.snapshots,
        }
    }
}

impl Amounts {
    fn cells(&self) -> [String; COLUMNS.len()] {
        let counts = [
            self.runs,
            self.sandboxes,
            self.attempts,
            self.open,
            self.unpriced,
            self.estimated,
            self.wall_ms,
            self.cpu_ms,
        ];
        let amounts = [
            self.estimate_usd,
            self.charge_usd,
            self.credit_usd,
            self.margin_usd,
            self.snapshots_usd,
            self.cost_usd,
        ];
        let mut cells = counts.iter().map(u64::to_string).chain(amounts.iter().map(Usd::to_string));
        std::array::from_fn(|_| cells.next().unwrap_or_default())
    }
}

impl From<CostReport> for CostsBody {
    fn from(report: CostReport) -> Self {
        let group_by: Vec<String> = report.group_by.iter().map(ToString::to_string).collect();
        let item = |CostGroup { values, sum }: CostGroup| CostItem {
            group: group_by.iter().cloned().zip(values).collect(),
            amounts: sum.into(),
        };
        Self {
            from: report.from,
            to: report.to,
            items: report.groups.into_iter().map(item).collect(),
            total: report.total.into(),
            next_cursor: report.next_cursor,
            group_by,
        }
    }
}

impl CostsBody {
    pub(crate) fn next_cursor(&self) -> Option<&str> {
        self.next_cursor.as_deref()
    }

    /// A table with a line of names, for spreadsheets.
    pub(crate) fn csv(&self) -> String {
        let names = self.group_by.iter().map(String::as_str).chain(COLUMNS);
        let mut text = line(names);
        for item in &self.items {
            let group = self.group_by.iter().map(|name| item.group.get(name).map_or("", String::as_str));
            let cells = item.amounts.cells();
            text.push_str(&line(group.chain(cells.iter().map(String::as_str))));
        }
        text
    }
}

fn line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let cells: Vec<String> = cells.map(cell).collect();
    cells.join(",") + "\r\n"
}

/// One cell. Programs for spreadsheets take a cell that begins like this for a formula, and labels are anybody's to choose.
fn cell(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula() {
        for (text, shown) in [
            ("=1+1", "'=1+1"),
            ("+x", "'+x"),
            ("-x", "'-x"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "'\t=1"),
            ("a=b", "a=b"),
            ("=cmd|' /C calc'!A0,\"x\"", "\"'=cmd|' /C calc'!A0,\"\"x\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("", ""),
        ] {
            assert_eq!(cell(text), shown);
        }
    }

    #[test]
    fn columns_and_fields_are_the_same() {
        let amounts = Amounts::from(LedgerSum { runs: 1, charge: Usd::dollars(2), ..LedgerSum::default() });
        let fields = serde_json::to_value(&amounts).unwrap();
        let fields = fields.as_object().unwrap();
        assert_eq!(fields.len(), COLUMNS.len());
        for (name, cell) in COLUMNS.iter().zip(amounts.cells()) {
            assert_eq!(fields[*name].to_string().trim_matches('"'), cell, "{name}");
        }
    }

    #[test]
    fn dollars_are_numbers_or_texts() {
        let read = |json: &str| serde_json::from_str::<MaxCost>(json).map(Usd::from);
        assert_eq!(read("\"0.05\"").unwrap(), read("0.05").unwrap());
        assert_eq!(read("1e-30").unwrap(), Usd::ZERO);
        for bad in
            ["-1", "\"-0\"", "\"x\"", "1000001", "\"12345678\"", "\"1e3\"", "true", "\"0.0000000000001\""]
        {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
