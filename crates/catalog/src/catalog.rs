//! All providers, and finding one among them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use thiserror::Error;

use crate::data;
use crate::{Date, Overrides, ProviderEntry, Stale};

/// What is known of every provider, in order of their names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Catalog {
    entries: BTreeMap<String, ProviderEntry>,
}

/// Why the operator's figures cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CatalogError {
    #[error("there is no provider `{0}` in the catalogue: say `like` which one it is to be priced")]
    NoSuchProvider(String),
    #[error("`{0}` is to be like `{1}`, which is not in the catalogue")]
    NoSuchModel(String, String),
    #[error("the file of {0} cannot be read: {1}")]
    Unreadable(String, String),
}

static EMBEDDED: LazyLock<Catalog> =
    LazyLock::new(|| Catalog::read(data::PROVIDERS).expect("a test reads every embedded file"));

impl Catalog {
    /// What was compiled in.
    pub fn embedded() -> &'static Self {
        &EMBEDDED
    }

    fn read(files: &[(&str, &str)]) -> Result<Self, CatalogError> {
        let read = |&(id, text): &(&str, &str)| {
            let entry = toml::from_str::<ProviderEntry>(text)
                .map_err(|error| CatalogError::Unreadable(id.to_owned(), error.message().to_owned()))?;
            Ok((id.to_owned(), ProviderEntry { id: id.to_owned(), ..entry }))
        };
        Ok(Self { entries: files.iter().map(read).collect::<Result<_, _>>()? })
    }

    pub fn iter(&self) -> impl Iterator<Item = &ProviderEntry> {
        self.entries.values()
    }

    pub fn get(&self, id: &str) -> Option<&ProviderEntry> {
        self.entries.get(id)
    }

    /// With the operator's figures in place of ours.
    pub fn with(&self, overrides: &Overrides) -> Result<Self, CatalogError> {
        let mut entries = self.entries.clone();
        for (id, figures) in &overrides.providers {
            let known = match (&figures.like, self.get(id)) {
                (Some(like), _) => {
                    self.get(like).ok_or_else(|| CatalogError::NoSuchModel(id.clone(), like.clone()))?
                }
                (None, Some(known)) => known,
                (None, None) => return Err(CatalogError::NoSuchProvider(id.clone())),
            };
            let mut entry = ProviderEntry { id: id.clone(), ..known.clone() };
            figures.apply(&mut entry);
            entries.insert(id.clone(), entry);
        }
        Ok(Self { entries })
    }

    /// Every figure that is older than `max_age_days` or of unknown age.
    pub fn stale(&self, today: Date, max_age_days: u64) -> Vec<Stale> {
        self.iter().flat_map(|entry| entry.stale(today, max_age_days)).collect()
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_types::Isolation;

    use super::*;
    use crate::{Confidence, PriceModel, Usd};

    fn with(json: &str) -> Result<Catalog, CatalogError> {
        Catalog::embedded().with(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn every_file_is_read_and_says_where_it_is_from() {
        let catalog = Catalog::read(data::PROVIDERS).unwrap();
        let names: Vec<_> = catalog.iter().map(|entry| entry.id.as_str()).collect();
        let all = "aws-lambda-microvms beam blaxel cloudflare codesandbox daytona e2b hopx isorun kubernetes local modal \
                   morph namespace northflank runloop sandstorm sprites tenki vercel";
        assert_eq!(names.join(" "), all);
        for entry in catalog.iter() {
            assert!(!entry.price.source.is_empty(), "{}", entry.id);
            let known = entry.price.figure.is_known();
            assert_eq!(known, entry.price.confidence != Confidence::Unknown, "{}", entry.id);
        }
    }

    #[test]
    fn a_key_that_means_nothing_is_refused() {
        for json in [
            r#"{"e2b": {"prize": 1}}"#,
            r#"{"e2b": {"quotas": {"concurent": 1}}}"#,
            r#"{"e2b": {"price": {"model": "allocated", "vcpu_second": 1}}}"#,
            r#"{"e2b": {"price": {"model": "owned", "vcpu_second": 1}}}"#,
            r#"{"e2b": {"price": {"model": "flat"}}}"#,
        ] {
            assert!(serde_json::from_str::<Overrides>(json).is_err(), "{json}");
        }
        assert_eq!(with(r#"{"e3b": {}}"#).unwrap_err(), CatalogError::NoSuchProvider("e3b".into()));
        let unlike = with(r#"{"e3b": {"like": "e4b"}}"#).unwrap_err();
        assert_eq!(unlike, CatalogError::NoSuchModel("e3b".into(), "e4b".into()));
    }

    #[test]
    fn the_operator_replaces_single_figures() {
        let json = r#"{
            "e2b": {"as_of": "2026-11-15", "isolation": "container", "quotas": {"concurrent": 7},
                    "credits": {"once": 5}, "billing": {"minimum_charge": "0.01"},
                    "price": {"model": "allocated", "vcpu_second": "0.00001", "gib_second": "0.000004"}},
            "k8s-eu": {"like": "kubernetes", "price": {"model": "owned", "vcpu_hour": 0.02}}
        }"#;
        let catalog = with(json).unwrap();
        let entry = catalog.get("e2b").unwrap();
        assert_eq!((entry.quotas().concurrent, entry.credits().once), (Some(7), Some(Usd::dollars(5))));
        assert_eq!(
            entry.quotas().max_lifetime,
            Catalog::embedded().get("e2b").unwrap().quotas().max_lifetime
        );
        assert_eq!(entry.isolation.figure, Isolation::Container);
        assert_eq!((entry.price.confidence, entry.price.source.as_str()), (Confidence::Operator, "operator"));
        assert_eq!(entry.billing().minimum_charge, Some(Usd::micros(10_000)));
        let cluster = catalog.get("k8s-eu").unwrap();
        assert_eq!(cluster.id, "k8s-eu");
        let rate = PriceModel::Owned { vcpu_hour: Usd::micros(20_000), gib_hour: Usd::ZERO };
        assert_eq!(cluster.price.figure, rate);
        assert_eq!(
            catalog.stale("2026-12-01".parse().unwrap(), 90).iter().find(|s| s.provider == "e2b"),
            None
        );
    }
}
