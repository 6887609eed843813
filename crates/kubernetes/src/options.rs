//! From the words of a configuration to a cluster's.

use std::collections::BTreeMap;
use std::str::FromStr;

use sandstorm_types::{Isolation, NetworkPolicy, duration};
use thiserror::Error;

use crate::config::{Access, Config, Enforced, Owner, Pull, Scratch, WarmPool};

/// What is wrong with an option.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OptionError {
    #[error("there is no option `{0}` for this kind of provider")]
    Unknown(String),
    #[error("the option `{0}` is not set")]
    Missing(&'static str),
    #[error("the option `{name}` is {expected}")]
    Value { name: &'static str, expected: &'static str },
}

/// Options that are taken out one after the other; what is left at the end is unknown.
struct Options<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Options<'a> {
    fn text(&mut self, name: &'static str) -> Option<&'a str> {
        self.0.remove(name)
    }

    fn read<T>(
        &mut self,
        name: &'static str,
        expected: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, OptionError> {
        let wrong = OptionError::Value { name, expected };
        self.text(name).map(|text| read(text).ok_or(wrong)).transpose()
    }

    fn parsed<T: FromStr>(
        &mut self,
        name: &'static str,
        expected: &'static str,
    ) -> Result<Option<T>, OptionError> {
        self.read(name, expected, |text| text.parse().ok())
    }

    fn yes(&mut self, name: &'static str) -> Result<bool, OptionError> {
        Ok(self.parsed(name, "`true` or `false`")?.unwrap_or(false))
    }
}

impl Config {
    /// A cluster as an operator describes it. Every option has the name of its field here, but for `kubeconfig`, `context`,
    /// `network_policies` and those of the pool.
    pub fn from_options(
        name: &str,
        owner: Owner,
        given: &BTreeMap<String, String>,
    ) -> Result<Self, OptionError> {
        let mut options = Options(given.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect());
        let image = options.text("image").ok_or(OptionError::Missing("image"))?;
        let mut config = Self::new(name, owner, image);
        config.read_access(&mut options)?;
        config.read_pod(&mut options)?;
        config.read_walls(&mut options)?;
        config.read_times(&mut options)?;
        config.warm_pool = warm_pool(&mut options)?;
        match options.0.into_keys().next() {
            Some(unknown) => Err(OptionError::Unknown(unknown.to_owned())),
            None => Ok(config),
        }
    }

    fn read_access(&mut self, options: &mut Options<'_>) -> Result<(), OptionError> {
        let context = options.text("context").map(str::to_owned);
        match (options.text("kubeconfig"), context) {
            (Some(path), context) => self.access = Access::File { path: path.into(), context },
            (None, Some(_)) => return Err(OptionError::Missing("kubeconfig")),
            (None, None) => {}
        }
        if let Some(namespace) = options.text("namespace") {
            namespace.clone_into(&mut self.namespace);
        }
        Ok(())
    }

    fn read_pod(&mut self, options: &mut Options<'_>) -> Result<(), OptionError> {
        self.other_images = options.yes("other_images")?;
        let pull = options.read("pull", "`if_not_present`, `always` or `never`", |text| match text {
            "if_not_present" => Some(Pull::IfNotPresent),
            "always" => Some(Pull::Always),
            "never" => Some(Pull::Never),
            _ => None,
        })?;
        self.pull = pull.unwrap_or(self.pull);
        let scratch = options.read("scratch", "`memory` or `disk`", |text| match text {
            "memory" => Some(Scratch::Memory),
            "disk" => Some(Scratch::Disk),
            _ => None,
        })?;
        self.scratch = scratch.unwrap_or(self.scratch);
        let labels = options.read("node_labels", "`name=value`, more behind commas", |text| {
            let pairs = text.split(',').map(|pair| pair.split_once('='));
            pairs.map(|pair| pair.map(|(key, value)| (key.to_owned(), value.to_owned()))).collect()
        })?;
        self.node_labels = labels.unwrap_or_default();
        self.max_memory = options.parsed("max_memory", "a size, such as `8GiB`")?;
        self.max_cpus = options.parsed("max_cpus", "processors, such as `4` or `500m`")?;
        Ok(())
    }

    fn read_walls(&mut self, options: &mut Options<'_>) -> Result<(), OptionError> {
        self.runtime_class = options.text("runtime_class").map(str::to_owned);
        let grades = "`container`, `user_kernel` or `micro_vm`";
        let isolation = options.read("isolation", grades, |text| match text {
            "container" => Some(Isolation::Container),
            "user_kernel" => Some(Isolation::UserKernel),
            "micro_vm" => Some(Isolation::MicroVm),
            _ => None,
        })?;
        self.isolation = isolation.unwrap_or(self.isolation);
        self.user_namespaces = options.yes("user_namespaces")?;
        self.loose_limits = options.yes("loose_limits")?;
        let known = "`unknown`, `declared`, or an address and port that other pods can reach";
        let enforced = options.read("network_policies", known, |text| match text {
            "unknown" => Some(Enforced::No),
            "declared" => Some(Enforced::Declared),
            address => address.parse().ok().map(Enforced::Tried),
        })?;
        self.enforced = enforced.unwrap_or(self.enforced);
        Ok(())
    }

    fn read_times(&mut self, options: &mut Options<'_>) -> Result<(), OptionError> {
        for (name, place) in [
            ("ready_within", &mut self.ready_within),
            ("room_within", &mut self.room_within),
            ("longest_life", &mut self.longest_life),
        ] {
            if let Some(span) =
                options.read(name, "a time, such as `60s`", |text| duration::parse(text).ok())?
            {
                *place = span;
            }
        }
        Ok(())
    }
}

fn warm_pool(options: &mut Options<'_>) -> Result<Option<WarmPool>, OptionError> {
    let Some(name) = options.text("warm_pool") else { return Ok(None) };
    let size = "a size, such as `512MiB`";
    let network = options.read("warm_pool_network", "`none` or `open`", |text| match text {
        "none" => Some(NetworkPolicy::None),
        "open" => Some(NetworkPolicy::Open),
        _ => None,
    })?;
    Ok(Some(WarmPool {
        name: name.to_owned(),
        cpus: options
            .parsed("warm_pool_cpus", "processors, such as `1`")?
            .ok_or(OptionError::Missing("warm_pool_cpus"))?,
        memory: options.parsed("warm_pool_memory", size)?.ok_or(OptionError::Missing("warm_pool_memory"))?,
        disk: options.parsed("warm_pool_disk", size)?.ok_or(OptionError::Missing("warm_pool_disk"))?,
        network: network.unwrap_or_default(),
    }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Config, OptionError> {
        let options = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Config::from_options("far", "me".parse().unwrap(), &options)
    }

    #[test]
    fn every_option_is_read() {
        let config = read(&[
            ("image", "python:3"),
            ("kubeconfig", "/etc/kube"),
            ("context", "prod"),
            ("namespace", "boxes"),
            ("other_images", "true"),
            ("pull", "never"),
            ("scratch", "disk"),
            ("node_labels", "pool=boxes,zone=a"),
            ("max_memory", "8GiB"),
            ("max_cpus", "4"),
            ("runtime_class", "gvisor"),
            ("isolation", "user_kernel"),
            ("user_namespaces", "true"),
            ("loose_limits", "true"),
            ("network_policies", "10.0.0.1:443"),
            ("ready_within", "90s"),
            ("room_within", "0.5s"),
            ("longest_life", "1h"),
            ("warm_pool", "warm"),
            ("warm_pool_cpus", "1"),
            ("warm_pool_memory", "512MiB"),
            ("warm_pool_disk", "1GiB"),
            ("warm_pool_network", "open"),
        ])
        .unwrap();
        assert_eq!(
            config.access,
            Access::File { path: "/etc/kube".into(), context: Some("prod".to_owned()) }
        );
        assert_eq!((config.pull, config.scratch), (Pull::Never, Scratch::Disk));
        assert_eq!(config.enforced, Enforced::Tried("10.0.0.1:443".parse().unwrap()));
        assert_eq!(config.ready_within, Duration::from_secs(90));
        assert_eq!(config.node_labels.len(), 2);
        assert_eq!(config.isolation, Isolation::UserKernel);
        assert_eq!(config.warm_pool.unwrap().network, NetworkPolicy::Open);
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(read(&[]).unwrap_err(), OptionError::Missing("image"));
        let with = |name, value| read(&[("image", "x"), (name, value)]).unwrap_err();
        assert_eq!(with("imag", "y"), OptionError::Unknown("imag".to_owned()));
        assert_eq!(with("context", "prod"), OptionError::Missing("kubeconfig"));
        assert_eq!(with("warm_pool", "w"), OptionError::Missing("warm_pool_cpus"));
        for (name, value) in [
            ("pull", "sometimes"),
            ("isolation", "process"),
            ("network_policies", "yes"),
            ("other_images", "maybe"),
            ("node_labels", "x"),
            ("ready_within", "soon"),
        ] {
            assert!(matches!(with(name, value), OptionError::Value { name: named, .. } if named == name));
        }
    }
}
