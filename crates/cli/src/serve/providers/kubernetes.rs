//! A Kubernetes cluster.

use std::sync::Arc;

use anyhow::{Context, bail};
use sandstorm_fleet::Connect;
use sandstorm_kubernetes::{Config, KubernetesProvider};
use sandstorm_provider::Provider;

use super::Wanted;

pub(super) fn connector(wanted: &Wanted) -> anyhow::Result<Connect> {
    let config = config(wanted)?;
    Ok(Box::new(move || {
        let config = config.clone();
        Box::pin(async move {
            let provider = KubernetesProvider::connect(config).await?;
            Ok(Arc::new(provider) as Arc<dyn Provider>)
        })
    }))
}

fn config(wanted: &Wanted) -> anyhow::Result<Config> {
    if wanted.settings.url.is_some() || wanted.key.is_some() {
        bail!("`url` and `key` are not for this kind of provider: the way to a cluster is its `kubeconfig`");
    }
    let owner = wanted.owner.parse().context("the mark of this installation")?;
    let mut config =
        Config::from_options(&wanted.name, owner, &wanted.settings.options).context("`options`")?;
    config.denied.clone_from(&wanted.denied);
    config.region.clone_from(&wanted.settings.region);
    config.strict_filter = wanted.strict_filter;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use sandstorm_config::{Environment, LoadInput, ProviderKind, ProviderSettings, SystemCalls};

    use super::super::wanted;
    use super::*;

    #[test]
    fn the_choice_of_system_calls_reaches_the_cluster() {
        let system_file = "/no/such/file".into();
        let input = LoadInput { system_file, ..LoadInput::new(Environment::default(), 0) };
        let mut loaded = sandstorm_config::Config::load(input).unwrap();
        let options = [("image".to_owned(), "python".to_owned())].into();
        let settings =
            ProviderSettings { kind: ProviderKind::Kubernetes, options, ..ProviderSettings::default() };
        loaded.config.providers.insert("cluster".to_owned(), settings);
        for (chosen, strict) in [(SystemCalls::Standard, false), (SystemCalls::Strict, true)] {
            loaded.config.system_calls = chosen;
            let wanted = wanted(&loaded).unwrap();
            assert_eq!(config(&wanted[0]).unwrap().strict_filter, strict);
        }
    }
}
