//! E2B's cloud, or what speaks its API.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, bail};
use sandstorm_fleet::Connect;
use sandstorm_provider::Provider;
use sandstorm_providers::e2b::{ApiKey, Config, E2bProvider, E2bTemplate};
use sandstorm_types::duration;

use super::Wanted;

/// Options `template.NAME` say what a template of ours is there.
const TEMPLATE: &str = "template.";

pub(super) fn connector(wanted: &Wanted) -> anyhow::Result<Connect> {
    let config = config(wanted)?;
    Ok(Box::new(move || {
        let config = config.clone();
        Box::pin(async move {
            let provider = E2bProvider::connect(config).await?;
            Ok(Arc::new(provider) as Arc<dyn Provider>)
        })
    }))
}

fn config(wanted: &Wanted) -> anyhow::Result<Config> {
    let key = wanted.key.clone().context("`key` is not set")?;
    let owner = wanted.owner.parse().context("the mark of this installation")?;
    let mut config = Config::new(&wanted.name, ApiKey::new(key), owner);
    config.region.clone_from(&wanted.settings.region);
    config.api_url = wanted.settings.url.as_ref().map(|url| url.as_str().to_owned());
    let mut templates = BTreeMap::new();
    for (name, value) in &wanted.settings.options {
        let wrong = || format!("`options.{name}`");
        match name.as_str() {
            "domain" => config.domain.clone_from(value),
            "sandbox_url" => config.sandbox_url = Some(value.clone()),
            "isolation" => {
                config.isolation = serde_json::from_value(value.as_str().into()).with_context(wrong)?;
            }
            "max_lifetime" => config.max_lifetime = duration::parse(value).with_context(wrong)?,
            "lease" => config.lease = duration::parse(value).with_context(wrong)?,
            _ => match name.strip_prefix(TEMPLATE).filter(|ours| !ours.is_empty()) {
                Some(ours) => {
                    templates.insert(ours.to_owned(), template(value).with_context(wrong)?);
                }
                None => bail!("there is no option `{name}` for this kind of provider"),
            },
        }
    }
    // One address for everything, unless sandboxes have hosts of their own.
    if config.sandbox_url.is_none() && !wanted.settings.options.contains_key("domain") {
        config.sandbox_url.clone_from(&config.api_url);
    }
    if !templates.is_empty() {
        config.templates = templates;
    }
    Ok(config)
}

/// `ID`, or with what its size is: `ID cpus=2 memory=512MiB disk=10GiB`.
fn template(text: &str) -> anyhow::Result<E2bTemplate> {
    let mut words = text.split_whitespace();
    let mut template = E2bTemplate::new(words.next().context("the template has no id")?);
    for word in words {
        match word.split_once('=') {
            Some(("cpus", cpus)) => template.cpus = cpus.parse()?,
            Some(("memory", memory)) => template.memory = memory.parse()?,
            Some(("disk", disk)) => template.disk = disk.parse()?,
            _ => bail!("`{word}` is none of `cpus=`, `memory=` and `disk=`"),
        }
    }
    Ok(template)
}

#[cfg(test)]
mod tests {
    use sandstorm_config::{ProviderKind, ProviderSettings};
    use sandstorm_types::{ByteSize, Isolation};

    use super::*;

    fn with(options: &[(&str, &str)]) -> anyhow::Result<Config> {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let settings = ProviderSettings { kind: ProviderKind::E2b, options, ..ProviderSettings::default() };
        let (key, owner) = (Some("e2b_0".to_owned()), "abc".to_owned());
        let (name, denied) = ("cloud".to_owned(), Vec::new());
        config(&Wanted { name, settings, key, owner, denied, strict_filter: false })
    }

    #[test]
    fn options_are_read_or_refused_by_name() {
        let config = with(&[
            ("domain", "sandboxes.example.org"),
            ("isolation", "container"),
            ("max_lifetime", "24h"),
            ("template.host", "base"),
            ("template.python:3.12", "py cpus=4 memory=2GiB disk=20GiB"),
        ])
        .unwrap();
        assert_eq!((config.isolation, config.max_lifetime.as_secs()), (Isolation::Container, 86_400));
        let python = &config.templates["python:3.12"];
        assert_eq!((python.id.as_str(), python.memory), ("py", ByteSize::gib(2)));
        assert_eq!(with(&[]).unwrap().templates["host"].id, "base");
        for (name, value) in [
            ("color", "red"),
            ("template.", "base"),
            ("template.host", ""),
            ("template.host", "base big"),
            ("lease", "soon"),
            ("isolation", "none"),
        ] {
            let error = format!("{:#}", with(&[(name, value)]).unwrap_err());
            assert!(error.contains(name), "{error}");
        }
    }
}
