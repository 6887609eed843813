//! Another Sandstorm.

use std::sync::Arc;

use anyhow::{Context, bail};
use sandstorm_fleet::Connect;
use sandstorm_provider::Provider;
use sandstorm_providers::sandstorm::{ApiKey, Config, SandstormProvider};

use super::Wanted;

pub(super) fn connector(wanted: &Wanted) -> anyhow::Result<Connect> {
    if let Some(unknown) = wanted.settings.options.keys().next() {
        bail!("there is no option `{unknown}` for this kind of provider");
    }
    let url = wanted.settings.url.as_ref().context("`url` is not set")?.as_str();
    let owner = wanted.owner.parse().context("the mark of this installation")?;
    let mut config = Config::new(&wanted.name, url, owner);
    config.key = wanted.key.clone().map(ApiKey::new);
    config.region.clone_from(&wanted.settings.region);
    Ok(Box::new(move || {
        let config = config.clone();
        Box::pin(async move {
            let provider = SandstormProvider::connect(config).await?;
            Ok(Arc::new(provider) as Arc<dyn Provider>)
        })
    }))
}
