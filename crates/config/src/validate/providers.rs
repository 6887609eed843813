//! Providers and routing.

use sandstorm_types::Usd;

use super::Check;
use crate::tree::{Config, Price, PriceModel, ProviderKind, ProviderSettings, RoutingSettings};

/// Longest name of a provider: it is part of labels.
const MAX_NAME: usize = 32;

impl Check<'_> {
    pub(super) fn providers(&mut self, config: &Config) {
        for (name, provider) in &config.providers {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(plain) {
                let expected = "a name of 1 to 32 of the characters a-z, 0-9 and `-`";
                self.refuse(format!("providers.{name}"), format!("`{name}`"), expected);
            }
            self.provider(name, provider);
        }
        let used = |(_, provider): &(&String, &ProviderSettings)| provider.enabled;
        let here = config.providers.get("local").is_none_or(|local| local.enabled);
        if !config.providers.is_empty() && !here && !config.providers.iter().any(|one| used(&one)) {
            self.refuse("providers", "all are switched off".to_owned(), "one that is enabled");
        }
        self.routing(&config.routing);
    }

    fn provider(&mut self, name: &str, provider: &ProviderSettings) {
        let key = |field: &str| format!("providers.{name}.{field}");
        let is_local = provider.kind == ProviderKind::Local;
        if is_local != (name == "local") {
            let expected =
                "`kind: local` for `local`, which is this machine, and another kind for all others";
            self.refuse(key("kind"), format!("`{}`", provider.kind.name()), expected);
        }
        if provider.kind == ProviderKind::Sandstorm && provider.url.is_none() {
            self.refuse(key("url"), "not set".to_owned(), "the address of the other server");
        }
        if is_local {
            for (field, set) in [("url", provider.url.is_some()), ("key", provider.key.is_some())] {
                if set {
                    self.refuse(key(field), "set".to_owned(), "nothing: this machine has none");
                }
            }
            for option in provider.options.keys() {
                let expected = "nothing: this machine has no options, only settings of their own";
                self.refuse(key(&format!("options.{option}")), "set".to_owned(), expected);
            }
        }
        if provider.concurrency == Some(0) {
            self.refuse(key("concurrency"), "0".to_owned(), "at least 1, or `enabled: false`");
        }
        if provider.free_credit.is_some_and(|credit| credit < Usd::ZERO) {
            self.refuse(key("free_credit"), "less than nothing".to_owned(), "0 or more");
        }
        self.price(name, &provider.price);
    }

    fn price(&mut self, name: &str, price: &Price) {
        let per_second = [("vcpu_second", price.vcpu_second), ("gib_second", price.gib_second)];
        let per_hour = [("vcpu_hour", price.vcpu_hour), ("gib_hour", price.gib_hour)];
        for (field, amount) in per_second.iter().chain(&per_hour) {
            let key = format!("providers.{name}.price.{field}");
            let owned = field.ends_with("_hour");
            match (amount, price.model) {
                (Some(amount), _) if *amount < Usd::ZERO => {
                    self.refuse(key, "less than nothing".to_owned(), "0 or more");
                }
                (Some(_), None) => self.refuse(key, "set without `model`".to_owned(), "both or neither"),
                (Some(_), Some(model)) if owned != (model == PriceModel::Owned) => {
                    let expected = "an hour for `owned`, a second for the other models";
                    self.refuse(key, "of another model".to_owned(), expected);
                }
                (None, Some(model)) if !owned && model != PriceModel::Owned => {
                    self.refuse(key, "not set".to_owned(), "what a second costs, 0 if nothing");
                }
                _ => {}
            }
        }
    }

    fn routing(&mut self, routing: &RoutingSettings) {
        let weights = routing.weights;
        for (field, weight) in
            [("latency", weights.latency), ("cost", weights.cost), ("reliability", weights.reliability)]
        {
            if !weight.is_finite() || weight < 0.0 {
                self.refuse(format!("routing.weights.{field}"), weight.to_string(), "0 or more");
            }
        }
        if weights.latency + weights.cost + weights.reliability <= 0.0 {
            self.refuse("routing.weights", "nothing counts".to_owned(), "one that is more than 0");
        }
        for (field, number) in
            [("probes_per_hour", routing.probes_per_hour), ("probes_per_request", routing.probes_per_request)]
        {
            if !number.is_finite() || number < 0.0 {
                self.refuse(format!("routing.{field}"), number.to_string(), "0 or more");
            }
        }
        for (field, amount) in
            [("hedge_max_cost", routing.hedge_max_cost), ("probes_max_cost", routing.probes_max_cost)]
        {
            if amount < Usd::ZERO {
                self.refuse(format!("routing.{field}"), amount.to_string(), "0 or more");
            }
        }
        for (field, span) in [("patience", routing.patience), ("reconcile_every", routing.reconcile_every)] {
            if span.as_secs() == 0 {
                self.refuse(format!("routing.{field}"), "less than a second".to_owned(), "a second or more");
            }
        }
    }
}
