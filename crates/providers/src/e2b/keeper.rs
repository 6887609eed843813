//! Looking after the sandboxes that we know of: their leases are renewed, and those that ended are told of.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use sandstorm_provider::Result;
use tokio::time::Instant;

use super::cloud::Cloud;
use super::list::Pages;
use super::places::Place;
use super::view::{Condition, TheirId};

/// Sandboxes that are dealt with at the same time.
const AT_ONCE: usize = 8;
/// Times that a lease is renewed before it would end: one that fails is made up for by the next.
const TIMES: u32 = 4;

impl Cloud {
    pub(super) async fn keep(self: Arc<Self>) {
        let every = (self.lease / TIMES).max(Duration::from_millis(100));
        let pause = self.poll.min(every).max(Duration::from_millis(50));
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(pause).await;
            // Those that come while the list is read are not in it.
            let known = self.places.all();
            let renew = renewed.elapsed() >= every;
            if renew {
                renewed = Instant::now();
            }
            if known.is_empty() {
                continue;
            }
            let shown = match self.shown().await {
                Ok(shown) => Some(shown),
                Err(error) => {
                    tracing::warn!(provider = %self.info.name, %error, "our sandboxes cannot be looked after");
                    None
                }
            };
            let look = |place: Place| {
                // What cannot be seen may live: its lease is renewed all the same.
                let state = match &shown {
                    Some(shown) => shown.get(place.theirs()).copied(),
                    None if place.is_paused() => Some(Condition::Paused),
                    None => Some(Condition::Running),
                };
                let cloud = &self;
                async move {
                    match state {
                        Some(Condition::Running) if renew => cloud.renew(place).await,
                        // One that sleeps has no lease, and must not be woken by this.
                        Some(_) => {}
                        None => cloud.missing(place).await,
                    }
                }
            };
            stream::iter(known).for_each_concurrent(AT_ONCE, look).await;
        }
    }

    /// Everything that has our mark.
    async fn shown(self: &Arc<Self>) -> Result<HashMap<TheirId, Condition>> {
        let (mut pages, mut all) = (Pages::of(self), HashMap::new());
        while let Some(page) = pages.next().await? {
            all.extend(page.into_iter().map(|theirs| (theirs.id, theirs.state)));
        }
        Ok(all)
    }

    async fn renew(&self, place: Place) {
        if place.is_ending() {
            return;
        }
        if let Err(failure) = self.client.renew(place.theirs(), self.lease).await {
            tracing::warn!(sandbox = %place.ours(), provider = %self.info.name, error = %failure, "a lease was not renewed");
        }
    }

    /// A list may lag behind; only who asks for the sandbox itself knows that it is gone.
    async fn missing(&self, place: Place) {
        if !place.is_ending()
            && let Err(error) = self.look(&place).await
        {
            tracing::debug!(sandbox = %place.ours(), %error, "a sandbox that is not listed cannot be looked at");
        }
    }
}
