//! Sums over the ledger, by whatever they are wanted by.

use std::fmt::{self, Write};
use std::str::FromStr;

use sandstorm_types::{TenantId, Timestamp, Usd};
use thiserror::Error;

use crate::database::{Row, sql};
use crate::{Result, Store};

/// What sums are made by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupBy {
    Tenant,
    Key,
    Provider,
    Region,
    /// What it was spent on: `run`, `sandbox`, `attempt` or `snapshot`.
    Kind,
    Day,
    Hour,
    /// The value of the label of this name.
    Label(String),
}

/// Why it is nothing to sum up by.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("must be `tenant`, `key`, `provider`, `region`, `kind`, `day`, `hour` or `label:` and a name")]
pub struct NoGroup;

impl GroupBy {
    /// A value as people write it: days and hours are stored as numbers since 1970.
    pub fn shown(&self, value: &str) -> String {
        let moment = |millis: i64, length: usize| {
            let number = value.parse::<i64>().ok()?;
            let text = Timestamp::from_millis(number.checked_mul(millis)?).to_string();
            text.get(..length).map(str::to_owned)
        };
        let shown = match self {
            Self::Day => moment(86_400_000, 10),
            Self::Hour => moment(3_600_000, 16).map(|hour| hour + "Z"),
            _ => None,
        };
        shown.unwrap_or_else(|| value.to_owned())
    }
}

impl fmt::Display for GroupBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tenant => "tenant",
            Self::Key => "key",
            Self::Provider => "provider",
            Self::Region => "region",
            Self::Kind => "kind",
            Self::Day => "day",
            Self::Hour => "hour",
            Self::Label(name) => return write!(f, "label:{name}"),
        })
    }
}

impl FromStr for GroupBy {
    type Err = NoGroup;

    fn from_str(text: &str) -> std::result::Result<Self, NoGroup> {
        let all = [Self::Tenant, Self::Key, Self::Provider, Self::Region, Self::Kind, Self::Day, Self::Hour];
        if let Some(name) = text.strip_prefix("label:") {
            let in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
            let is_good = (1..=63).contains(&name.len()) && name.bytes().all(in_name);
            return if is_good { Ok(Self::Label(name.to_owned())) } else { Err(NoGroup) };
        }
        all.into_iter().find(|by| by.to_string() == text).ok_or(NoGroup)
    }
}

/// Which entries, in which groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerQuery {
    /// `None`: of all tenants.
    pub tenant: Option<TenantId>,
    /// What began from here to before `to`.
    pub from: Timestamp,
    pub to: Timestamp,
    pub group_by: Vec<GroupBy>,
    /// Only groups that come after this one, by the values that [`LedgerSum::place`] has.
    pub after: Option<Vec<String>>,
    pub limit: u32,
}

impl LedgerQuery {
    /// All in one sum.
    pub fn of(tenant: Option<TenantId>, from: Timestamp, to: Timestamp) -> Self {
        Self { tenant, from, to, group_by: Vec::new(), after: None, limit: 1 }
    }
}

/// What the entries of a group come to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LedgerSum {
    /// The group as it is stored: days and hours are numbers since 1970.
    pub place: Vec<String>,
    pub runs: u64,
    pub sandboxes: u64,
    pub attempts: u64,
    /// Without a bill yet.
    pub open: u64,
    /// Over, without a price.
    pub unpriced: u64,
    /// Over, by figures that were measured from outside: its provider did not say what it counted, or not yet.
    pub estimated: u64,
    pub wall_ms: u64,
    pub cpu_ms: u64,
    pub estimate: Usd,
    pub charge: Usd,
    pub credit: Usd,
    pub margin: Usd,
    pub snapshots: Usd,
}

/// Columns of money, and the two that their sum is read from: whole microdollars and what is left, so that neither can be too
/// large for a column.
const MONEY: [(&str, &str, &str); 5] = [
    ("estimate", "estimate_micros", "estimate_rest"),
    ("charge", "charge_micros", "charge_rest"),
    ("credit", "credit_micros", "credit_rest"),
    ("margin", "margin_micros", "margin_rest"),
    ("snapshots", "snapshots_micros", "snapshots_rest"),
];
/// The names of the columns that a group is read from.
const PLACES: [&str; 8] = ["g0", "g1", "g2", "g3", "g4", "g5", "g6", "g7"];

impl LedgerSum {
    /// What is left to pay.
    pub fn cost(&self) -> Usd {
        self.charge - self.credit + self.margin + self.snapshots
    }

    fn read(row: &Row, groups: usize) -> Result<Self> {
        let mut money = [Usd::ZERO; MONEY.len()];
        for (amount, (_, micros, rest)) in money.iter_mut().zip(MONEY) {
            *amount = read_sum(row, micros, rest)?;
        }
        let [estimate, charge, credit, margin, snapshots] = money;
        let place = PLACES.iter().take(groups).map(|name| row.get(name)).collect::<Result<_>>()?;
        Ok(Self {
            place,
            runs: row.get("runs")?,
            sandboxes: row.get("sandboxes")?,
            attempts: row.get("attempts")?,
            open: row.get("open_entries")?,
            unpriced: row.get("unpriced")?,
            estimated: row.get("estimated")?,
            wall_ms: row.get("wall_ms")?,
            cpu_ms: row.get("cpu_ms")?,
            estimate,
            charge,
            credit,
            margin,
            snapshots,
        })
    }
}

/// A sum that was made in two parts.
pub(super) fn read_sum(row: &Row, micros: &'static str, rest: &'static str) -> Result<Usd> {
    let micros = row.optional::<i64>(micros)?.unwrap_or(0);
    let rest = row.optional::<i64>(rest)?.unwrap_or(0);
    Ok(Usd::micros(micros) + Usd::picos(rest.into()))
}

/// The two parts of a sum.
pub(super) fn sum_of(amount: &str, micros: &str, rest: &str) -> String {
    format!(
        "CAST(SUM(({amount}) / 1000000) AS BIGINT) AS {micros}, CAST(SUM(({amount}) % 1000000) AS BIGINT) AS {rest}"
    )
}

impl Store {
    /// The most things that sums can be made by at once.
    pub const MOST_GROUPS: usize = PLACES.len();

    /// One sum for each group that has entries, in the order of the groups. Things beyond [`Store::MOST_GROUPS`] are left out.
    pub async fn ledger_sums(&self, query: &LedgerQuery) -> Result<Vec<LedgerSum>> {
        let mut columns = Vec::new();
        let (mut joins, mut labels) = (String::new(), Vec::new());
        // From the first place that is free behind those that are always bound.
        let mut place = 4;
        for (index, by) in query.group_by.iter().take(PLACES.len()).enumerate() {
            columns.push(match by {
                GroupBy::Tenant => "e.tenant".to_owned(),
                GroupBy::Key => "e.key".to_owned(),
                GroupBy::Provider => "e.provider".to_owned(),
                GroupBy::Region => "COALESCE(e.region, '')".to_owned(),
                GroupBy::Kind => "e.kind".to_owned(),
                GroupBy::Day => "CAST(e.began_at / 86400000 AS TEXT)".to_owned(),
                GroupBy::Hour => "CAST(e.began_at / 3600000 AS TEXT)".to_owned(),
                GroupBy::Label(name) => {
                    let _ = write!(
                        joins,
                        " LEFT JOIN ledger_labels l{index} ON l{index}.tenant = e.tenant AND l{index}.object = e.object
                          AND l{index}.name = ${place}"
                    );
                    place += 1;
                    labels.push(name.as_str());
                    format!("COALESCE(l{index}.value, '')")
                }
            });
        }
        let mut conditions = "e.began_at >= $1 AND e.began_at < $2".to_owned();
        let after = query.after.as_ref().filter(|after| after.len() == columns.len() && !after.is_empty());
        if let Some(after) = after {
            let places: Vec<_> = (place..).take(after.len()).map(|place| format!("${place}")).collect();
            place += after.len();
            let _ = write!(conditions, " AND ({}) > ({})", columns.join(", "), places.join(", "));
        }
        if query.tenant.is_some() {
            let _ = write!(conditions, " AND e.tenant = ${place}");
        }
        let mut statement =
            sql(text(&columns, &joins, &conditions)).bind(query.from).bind(query.to).bind(query.limit);
        for label in labels {
            statement = statement.bind(label);
        }
        for value in after.into_iter().flatten() {
            statement = statement.bind(&**value);
        }
        if let Some(tenant) = query.tenant {
            statement = statement.bind(tenant);
        }
        let rows = self.settled().await?.rows(statement).await?;
        rows.iter().map(|row| LedgerSum::read(row, columns.len())).collect()
    }
}

fn text(columns: &[String], joins: &str, conditions: &str) -> String {
    let mut wanted: Vec<String> =
        columns.iter().zip(PLACES).map(|(column, name)| format!("{column} AS {name}")).collect();
    let count = |condition: &str, name: &str| {
        format!("CAST(SUM(CASE WHEN {condition} THEN 1 ELSE 0 END) AS BIGINT) AS {name}")
    };
    wanted.push(count("e.kind = 'run'", "runs"));
    wanted.push(count("e.kind = 'sandbox'", "sandboxes"));
    wanted.push(count("e.kind = 'attempt'", "attempts"));
    wanted.push(count("e.ended_at IS NULL", "open_entries"));
    wanted.push(count("e.ended_at IS NOT NULL AND e.priced = 0", "unpriced"));
    wanted.push(count("e.ended_at IS NOT NULL AND e.metered = 0", "estimated"));
    wanted.extend(["wall_ms", "cpu_ms"].map(|name| format!("CAST(SUM(e.{name}) AS BIGINT) AS {name}")));
    wanted.extend(MONEY.map(|(column, micros, rest)| sum_of(&format!("e.{column}"), micros, rest)));
    let wanted = wanted.join(", ");
    let (grouped, ordered) = match columns {
        [] => (String::new(), String::new()),
        _ => (format!("GROUP BY {}", columns.join(", ")), format!("ORDER BY {}", columns.join(", "))),
    };
    format!(
        "SELECT {wanted} FROM ledger e{joins} WHERE {conditions} {grouped} HAVING COUNT(*) > 0 {ordered} LIMIT $3"
    )
}
