//! Content of files on its way to and from sandboxes that live elsewhere.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use sandstorm_provider::{ByteStream, Error, Result};
use sandstorm_types::ErrorKind;
use tokio_util::sync::CancellationToken;

/// The stream until somebody cancels it, which is its last word.
pub(crate) fn until<T: Send + 'static>(
    cancel: CancellationToken,
    inner: impl Stream<Item = Result<T>> + Send + 'static,
) -> impl Stream<Item = Result<T>> + Send + 'static {
    stream::unfold(Some((Box::pin(inner), cancel)), |state| async move {
        let (mut inner, cancel) = state?;
        tokio::select! {
            biased;
            () = cancel.cancelled() => {
                Some((Err(Error::new(ErrorKind::Cancelled, "the caller gave up")), None))
            }
            item = inner.next() => item.map(|item| (item, Some((inner, cancel)))),
        }
    })
}

/// What became of a body on its way out: how long it was, and why it broke off, if it did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sent(Arc<(AtomicU64, Mutex<Option<Error>>)>);

impl Sent {
    pub(crate) fn of(
        body: ByteStream,
    ) -> (impl Stream<Item = std::io::Result<Bytes>> + Send + 'static, Self) {
        let sent = Self::default();
        let seen = sent.clone();
        let body = body.map(move |piece| match piece {
            Ok(piece) => {
                seen.0.0.fetch_add(piece.len() as u64, Ordering::AcqRel);
                Ok(piece)
            }
            Err(error) => {
                let told = std::io::Error::other(error.to_string());
                *seen.0.1.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                Err(told)
            }
        });
        (body, sent)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.0.load(Ordering::Acquire)
    }

    /// Why the body broke off: that is what the caller has to hear, not what came of it.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.0.1.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
