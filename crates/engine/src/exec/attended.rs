//! The events of a program that is followed in the task of whoever takes them.
//!
//! Two tasks would wake each other for every event of a short program. Whoever lets go of the events before their end leaves
//! the rest, which begins with ending the program, to a task of its own.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, Stream, StreamExt};
use sandstorm_provider::{ExecEvent, Result, Tasks};
use tokio::runtime::Handle;

use super::FOLLOWING;

pub(super) struct Attended {
    pub(super) events: BoxStream<'static, Result<ExecEvent>>,
    /// `None`: it came to its end.
    pub(super) following: Option<BoxFuture<'static, ()>>,
    pub(super) tasks: Tasks,
}

impl Stream for Attended {
    type Item = Result<ExecEvent>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // Taken out meanwhile: what panicked is not followed any further.
        if let Some(mut following) = self.following.take()
            && following.as_mut().poll(cx).is_pending()
        {
            self.following = Some(following);
        }
        self.events.poll_next_unpin(cx)
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        // Without a runtime everything ends anyway.
        if let (Some(following), Ok(_)) = (self.following.take(), Handle::try_current()) {
            self.tasks.start(FOLLOWING, following);
        }
    }
}
