//! A Kubernetes cluster.

use std::sync::Arc;

use anyhow::{Context, bail};
use sandstorm_fleet::Connect;
use sandstorm_kubernetes::{Config, KubernetesProvider};
use sandstorm_provider::Provider;

use super::Wanted;

pub(super) fn connector(wanted: &Wanted) -> anyhow::Result<Connect> {
    if wanted.settings.url.is_some() || wanted.key.is_some() {
        bail!("`url` and `key` are not for this kind of provider: the way to a cluster is its `kubeconfig`");
    }
    let owner = wanted.owner.parse().context("the mark of this installation")?;
    let mut config =
        Config::from_options(&wanted.name, owner, &wanted.settings.options).context("`options`")?;
    config.denied.clone_from(&wanted.denied);
    config.region.clone_from(&wanted.settings.region);
    Ok(Box::new(move || {
        let config = config.clone();
        Box::pin(async move {
            let provider = KubernetesProvider::connect(config).await?;
            Ok(Arc::new(provider) as Arc<dyn Provider>)
        })
    }))
}
