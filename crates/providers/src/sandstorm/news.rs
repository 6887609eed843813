//! What happens there without being asked for.

use std::sync::Arc;
use std::time::Duration;

use sandstorm_client::{Activities, Activity};
use sandstorm_provider::{ProviderEvent, Result};
use sandstorm_types::SandboxId;

use super::client::Far;
use super::error::{of, plain};
use super::places::Place;
use super::view;

/// How long to wait after losing the other server: at first and at most.
const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(30);

async fn hear_next(news: Option<&mut Activities>) -> Option<sandstorm_client::Result<Activity>> {
    news?.next().await
}

impl Far {
    /// Listens from now on.
    pub(super) async fn news(&self, after: Option<u64>) -> Result<Activities> {
        Ok(self.client.events(after).await.map_err(of)?.until_it_breaks())
    }

    /// Tells our listeners what concerns our sandboxes. What came while nobody was connected is heard afterwards, as long
    /// as the other server keeps it; where nothing is known of a time, the listeners are told that.
    pub(super) async fn follow_news(self: Arc<Self>, news: Activities) {
        let (mut news, mut pause, mut last) = (Some(news), SHORTEST, None);
        loop {
            while let Some(Ok(activity)) = hear_next(news.as_mut()).await {
                pause = SHORTEST;
                last = Some(activity.seq);
                self.hear(&activity).await;
            }
            if last.is_none() {
                self.events.tell(ProviderEvent::Lagged);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST);
            news = match self.news(last).await {
                Ok(news) => Some(news),
                Err(error) => {
                    tracing::debug!(provider = %self.info.name, %error, "there is no news");
                    None
                }
            };
        }
    }

    async fn hear(&self, activity: &Activity) {
        let Some(theirs) = activity.sandbox else { return };
        let text = |key: &str| activity.more.get(key).and_then(|value| value.as_str());
        match activity.name.as_str() {
            "network:denied" => {
                if let Some(place) = self.ours(&theirs).await {
                    let destination = plain(text("destination").unwrap_or_default());
                    let reason = view::reason(text("reason"));
                    self.events.tell(ProviderEvent::Denied { sandbox: place.ours(), destination, reason });
                }
            }
            _ if activity.is_last() => {
                // What we end ourselves is no news.
                if let Some(place) = self.ours(&theirs).await.filter(|place| !place.is_ending()) {
                    place.ended().cancel();
                    let reason = match text("reason") {
                        Some(reason) => plain(reason),
                        None => "the server ended it".to_owned(),
                    };
                    self.events.tell(ProviderEvent::Ended { sandbox: place.ours(), reason });
                }
            }
            _ => {}
        }
    }

    /// The place of a sandbox of theirs, if it is ours.
    async fn ours(&self, theirs: &SandboxId) -> Option<Place> {
        if let Some(place) = self.places.of_theirs(theirs) {
            return Some(place);
        }
        let shown = self.client.sandbox(*theirs).await.ok()?;
        view::place(view::our_id(&self.owner, &shown)?, &shown).ok()
    }
}
