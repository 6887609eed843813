//! Renewing the lease of every sandbox that we know of, so that it ends there only when we are gone.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use sandstorm_types::{ErrorKind, Phase};

use super::client::Far;
use super::places::Place;
use super::view;

/// Sandboxes that are renewed at the same time.
const AT_ONCE: usize = 8;
/// Times that a lease is renewed before it would end: one that fails is made up for by the next.
const TIMES: u32 = 4;

impl Far {
    pub(super) async fn keep_leases(self: Arc<Self>) {
        let pause = (self.lease / TIMES).max(Duration::from_millis(100));
        loop {
            tokio::time::sleep(pause).await;
            let alive = self.places.all().into_iter().filter(|place| !place.ended().is_cancelled());
            stream::iter(alive).for_each_concurrent(AT_ONCE, |place| self.renew(place)).await;
        }
    }

    async fn renew(&self, place: Place) {
        match self.client.extend_sandbox(place.theirs(), self.lease).await {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Conflict) => {
                match self.client.sandbox(place.theirs()).await {
                    Ok(theirs) if view::is_gone(theirs.state) => self.places.forget(&place.ours()),
                    Ok(theirs) if theirs.state == Phase::Failed => place.ended().cancel(),
                    Err(error) if error.kind() == ErrorKind::NotFound => self.places.forget(&place.ours()),
                    _ => {}
                }
            }
            Err(error) => {
                tracing::warn!(sandbox = %place.ours(), provider = %self.info.name, %error, "a lease was not renewed");
            }
        }
    }
}
