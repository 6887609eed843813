//! When no member could take it: one answer that names every reason.

use std::time::Duration;

use sandstorm_provider::Error;
use sandstorm_router::{Decision, ErrorFamily, Exclusion};
use sandstorm_types::{ErrorKind, Retry};

/// Nobody is even worth asking.
pub(crate) fn fits(decision: &Decision) -> Error {
    let verdicts: Vec<String> = decision
        .excluded
        .iter()
        .map(|place| format!("{}: {}", place.provider, place.why.join("; ")))
        .collect();
    let kind = if decision.may_work_later() { ErrorKind::Capacity } else { ErrorKind::InvalidRequest };
    let mut error = Error::new(kind, "no provider can take it")
        .with("verdicts", verdicts.join(" | "))
        .with_retry(if decision.may_work_later() { Retry::Here } else { Retry::Never })
        .with_operation("route");
    if let Some(span) = soonest(decision) {
        error = error.with_retry_after(span);
    }
    error
}

/// All that were asked failed; `reasons` has what each of them said.
pub(crate) fn worked(last: Option<Error>, reasons: &[String]) -> Error {
    let Some(error) = last else {
        let message = "every provider is being tried by somebody else already";
        return Error::new(ErrorKind::Capacity, message).with_operation("route");
    };
    // What is wrong with the request is the answer; that all providers failed is nobody's mistake but theirs.
    if ErrorFamily::of(error.kind()).is_none() || !error.blames_provider() {
        return error;
    }
    // Its causes may name addresses, which are not the caller's business.
    tracing::warn!(%error, "no provider could make a sandbox");
    let mut all = Error::new(ErrorKind::Capacity, "no provider could make the sandbox")
        .with("tried", reasons.join(" | "))
        .with_retry(error.retry())
        .with_operation("route");
    if let Some(span) = error.retry_after() {
        all = all.with_retry_after(span);
    }
    all
}

/// When the first of them may be asked again.
fn soonest(decision: &Decision) -> Option<Duration> {
    let reasons = decision.excluded.iter().flat_map(|place| &place.reasons);
    let spans = reasons.filter_map(|reason| match reason {
        Exclusion::Unhealthy { health } => health.retry_in(),
        _ => None,
    });
    spans.min()
}
