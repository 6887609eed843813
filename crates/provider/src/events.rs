//! Events of a provider on their way to any number of listeners.

use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::sync::broadcast::{self, error::RecvError};

use crate::ProviderEvent;

/// Events that a slow listener may fall behind.
const KEPT: usize = 1024;

/// Where a backend tells what happened.
#[derive(Debug, Clone)]
pub struct Events(broadcast::Sender<ProviderEvent>);

impl Default for Events {
    fn default() -> Self {
        Self(broadcast::Sender::new(KEPT))
    }
}

impl Events {
    /// Tells everybody who listens; nobody is no failure.
    pub fn tell(&self, event: ProviderEvent) {
        let _ = self.0.send(event);
    }

    /// Events from now on. A listener that missed some hears that it did.
    pub fn listen(&self) -> BoxStream<'static, ProviderEvent> {
        stream::unfold(self.0.subscribe(), |mut events| async move {
            match events.recv().await {
                Ok(event) => Some((event, events)),
                Err(RecvError::Lagged(_)) => Some((ProviderEvent::Lagged, events)),
                Err(RecvError::Closed) => None,
            }
        })
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_types::SandboxId;

    use super::*;

    #[tokio::test]
    async fn a_slow_listener_hears_that_it_missed_something() {
        let events = Events::default();
        let (mut slow, mut other) = (events.listen(), events.listen());
        let ended = ProviderEvent::Ended { sandbox: SandboxId::random(), reason: "x".to_owned() };
        events.tell(ended.clone());
        assert_eq!(other.next().await, Some(ended.clone()));
        for _ in 0..KEPT {
            events.tell(ended.clone());
        }
        assert_eq!(slow.next().await, Some(ProviderEvent::Lagged));
        assert_eq!(slow.next().await, Some(ended));
        drop(events);
        assert_eq!(slow.count().await, KEPT - 1);
    }
}
