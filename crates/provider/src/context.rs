//! What every operation carries: its deadline, its cancellation, for whom it is and its trace.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use sandstorm_types::{ErrorKind, TenantId, User};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Error, Result};

/// The context of one operation. Cloning shares the cancellation.
#[derive(Debug, Clone)]
pub struct OpContext {
    deadline: Option<Instant>,
    cancel: CancellationToken,
    tenant: TenantId,
    trace: TraceId,
    user: User,
}

/// The trace that an operation belongs to, as W3C trace context numbers it; zero is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TraceId(pub u128);

impl OpContext {
    pub fn new(tenant: TenantId) -> Self {
        let (cancel, trace) = (CancellationToken::new(), TraceId::default());
        Self { deadline: None, cancel, tenant, trace, user: User::default() }
    }

    /// Ties the operation to a token of the caller's.
    pub fn with_cancellation(mut self, cancel: CancellationToken) -> Self {
        self.cancel = cancel;
        self
    }

    pub fn with_trace(mut self, trace: TraceId) -> Self {
        self.trace = trace;
        self
    }

    /// Works on files as this user of the sandbox. Whom a program runs as, its request says.
    pub fn acting_as(mut self, user: User) -> Self {
        self.user = user;
        self
    }

    /// Shortens the deadline; a later one than the present changes nothing.
    pub fn with_deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(self.deadline.map_or(deadline, |present| present.min(deadline)));
        self
    }

    /// Shortens the deadline to `span` from now.
    pub fn with_timeout(self, span: Duration) -> Self {
        match Instant::now().checked_add(span) {
            Some(deadline) => self.with_deadline(deadline),
            None => self,
        }
    }

    /// A context for part of this operation: cancelled with it, and by itself without it.
    pub fn child(&self) -> Self {
        Self { cancel: self.cancel.child_token(), ..self.clone() }
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Time until the deadline: none left once it has passed.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancel
    }

    pub fn tenant(&self) -> TenantId {
        self.tenant
    }

    pub fn trace(&self) -> TraceId {
        self.trace
    }

    /// Whom it works on files as.
    pub fn user(&self) -> User {
        self.user
    }

    /// Fails if the operation was cancelled or is too late already.
    pub fn check(&self, operation: &'static str) -> Result<()> {
        if self.cancel.is_cancelled() {
            return Err(cancelled(operation));
        }
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(too_late(operation));
        }
        Ok(())
    }

    /// Runs `work` until it is done, cancelled or too late. Work that did not finish is dropped, so it must
    /// be such that dropping it leaves nothing behind.
    pub async fn run<T>(&self, operation: &'static str, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.check(operation)?;
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(cancelled(operation)),
            () = sleep_until(self.deadline) => Err(too_late(operation)),
            done = work => done,
        }
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn cancelled(operation: &'static str) -> Error {
    Error::new(ErrorKind::Cancelled, "the caller gave up").with_operation(operation)
}

fn too_late(operation: &'static str) -> Error {
    Error::new(ErrorKind::Timeout, "the deadline passed").with_operation(operation)
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(result: Result<()>) -> Option<ErrorKind> {
        result.err().map(|error| error.kind())
    }

    #[tokio::test(start_paused = true)]
    async fn deadlines_only_shrink() {
        let cx = OpContext::new(TenantId::LOCAL).with_timeout(Duration::from_secs(1));
        let longer = cx.clone().with_timeout(Duration::from_secs(9));
        assert_eq!(longer.remaining(), Some(Duration::from_secs(1)));
        assert_eq!(kind(longer.run("wait", std::future::pending()).await), Some(ErrorKind::Timeout));
        assert_eq!(kind(longer.check("again")), Some(ErrorKind::Timeout));
    }

    #[tokio::test]
    async fn cancelling_reaches_children_but_not_parents() {
        let cx = OpContext::new(TenantId::LOCAL);
        let (first, second) = (cx.child(), cx.child());
        first.cancellation().cancel();
        assert_eq!(kind(first.run("wait", std::future::pending()).await), Some(ErrorKind::Cancelled));
        assert_eq!(kind(cx.check("parent")), None);
        cx.cancellation().cancel();
        assert_eq!(kind(second.check("child")), Some(ErrorKind::Cancelled));
    }

    #[test]
    fn traces_print_as_on_the_wire() {
        assert_eq!(TraceId(0xab).to_string(), "000000000000000000000000000000ab");
    }
}
