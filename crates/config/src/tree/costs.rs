//! What things cost, and what may be spent.

use sandstorm_types::{Labels, TenantId, Usd};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::form;

/// What things cost on this machine, and what the operator adds to what others charge. Amounts are US dollars.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Costs {
    /// What an hour of one processor of this machine costs.
    #[schemars(with = "form::Dollars")]
    pub vcpu_hour: Usd,
    /// What an hour of a gibibyte of its memory costs.
    #[schemars(with = "form::Dollars")]
    pub gib_hour: Usd,
    /// Whether the free credits of hosted providers, as the catalogue tells of them, are there: they pay before money does.
    pub credits: bool,
    /// What is added to what hosted providers charge for computing, in thousandths: `50` is 5 %.
    pub margin_permille: u32,
    /// What an hour of a gibibyte of snapshots costs.
    #[schemars(with = "form::Dollars")]
    pub snapshot_gib_hour: Usd,
}

/// What may be spent. Each tenant is counted by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// What refusals call it.
    pub name: String,
    /// Only this tenant, by its id. Not set: every tenant, each for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Only what this key asks for, by its public id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Only runs and sandboxes with this label: `name=value`, or `name` for every value by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// How much, in US dollars.
    #[schemars(with = "form::Dollars")]
    pub amount: Usd,
    /// How long it lasts, by the clock of UTC.
    #[serde(default)]
    pub per: BudgetPeriod,
    /// What becomes of a sandbox when it is used up. Runs are stopped in any case.
    #[serde(default)]
    pub at_limit: BudgetEnd,
}

/// How long a budget lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BudgetPeriod {
    Hour,
    Day,
    #[default]
    Month,
    Ever,
}

/// What becomes of a sandbox whose budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BudgetEnd {
    #[default]
    Stop,
    Pause,
}

impl Budget {
    pub(super) fn examples() -> Vec<Self> {
        let amount = Usd::dollars(10);
        let (label, per) = (Some("project=alpha".to_owned()), BudgetPeriod::Day);
        vec![Self {
            name: "alpha".into(),
            tenant: None,
            key: None,
            label,
            amount,
            per,
            at_limit: BudgetEnd::Pause,
        }]
    }

    /// The tenant that it is for; `Err`: what is there is none.
    pub fn tenant_id(&self) -> Result<Option<TenantId>, sandstorm_types::IdError> {
        self.tenant.as_deref().map(str::parse).transpose()
    }

    /// Name and value of the label.
    pub fn label_parts(&self) -> Option<(String, Option<String>)> {
        let label = self.label.as_deref()?;
        Some(match label.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (label.to_owned(), None),
        })
    }

    /// The first thing that is wrong with it: the key, what is there and what is wanted.
    pub(crate) fn check(&self) -> Option<(&'static str, String, &'static str)> {
        if self.name.is_empty() || self.name.len() > 63 || self.name.chars().any(char::is_control) {
            return Some(("name", self.name.clone(), "1 to 63 characters"));
        }
        if !self.amount.is_positive() || self.amount > Usd::dollars(1_000_000_000) {
            return Some(("amount", self.amount.to_string(), "more than nothing and at most a billion"));
        }
        if self.tenant_id().is_err() {
            return Some(("tenant", self.tenant.clone().unwrap_or_default(), "the id of a tenant, `ten_…`"));
        }
        if self.key.as_ref().is_some_and(String::is_empty) {
            return Some(("key", String::new(), "the public id of a key"));
        }
        let (name, value) = self.label_parts()?;
        let one = std::collections::BTreeMap::from([(name, value.unwrap_or_default())]);
        Labels::try_from(one)
            .err()
            .map(|_| ("label", self.label.clone().unwrap_or_default(), "`name` or `name=value`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        let good = Budget::examples().remove(0);
        assert_eq!(good.check(), None);
        assert_eq!(good.label_parts(), Some(("project".into(), Some("alpha".into()))));
        for (bad, key) in [
            (Budget { name: String::new(), ..good.clone() }, "name"),
            (Budget { amount: Usd::ZERO, ..good.clone() }, "amount"),
            (Budget { tenant: Some("local".into()), ..good.clone() }, "tenant"),
            (Budget { key: Some(String::new()), ..good.clone() }, "key"),
            (Budget { label: Some("a b=c".into()), ..good.clone() }, "label"),
        ] {
            assert_eq!(bad.check().map(|(key, ..)| key), Some(key));
        }
    }
}
