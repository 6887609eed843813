//! How the members stand, for people who ask.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sandstorm_catalog::ProviderEntry;
use sandstorm_provider::{OpContext, ProviderInfo};
use sandstorm_router::Health;
use sandstorm_types::Capabilities;

use crate::fleet::Fleet;

/// How long a member has to say that it is well.
const PATIENCE: Duration = Duration::from_secs(5);

/// One member as it stands.
#[derive(Debug, Clone)]
pub struct Standing {
    pub info: ProviderInfo,
    /// What the router makes of how it did so far.
    pub health: Health,
    /// Why it cannot be reached at present.
    pub trouble: Option<String>,
    /// Sandboxes that it holds.
    pub sandboxes: u32,
    pub can: Capabilities,
    /// Its page of the catalogue, with the operator's figures.
    pub entry: Arc<ProviderEntry>,
}

impl Fleet {
    /// Asks every member how it is, all at once.
    pub async fn survey(&self, cx: &OpContext) -> Vec<Standing> {
        let ask = |place: usize| async move {
            let member = &self.members[place];
            let cx = cx.child().with_timeout(PATIENCE);
            let trouble = member.provider.health(&cx).await.err().map(|error| error.to_string());
            Standing {
                info: member.provider.info().clone(),
                health: self.router().health(member.name(), self.now()),
                trouble,
                sandboxes: self.homes.count(place),
                can: member.provider.capabilities(),
                entry: Arc::clone(&member.entry),
            }
        };
        join_all((0..self.members.len()).map(ask)).await
    }
}
