//! W3C trace context: from a request's headers into our spans, and out again into requests and sandboxes.
//!
//! Headers are read strictly and within bounds, as anybody may send them. Without a collector there are no spans of ours
//! to name, so the caller's context is handed on as it came: the program inside still joins the caller's trace.

mod parse;

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::{Dispatch, Span, dispatcher, span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::registry::{LookupSpan, Registry};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// A place in a trace: the span that work belongs under. Prints as the value of a `traceparent` header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceParent {
    trace: u128,
    span: u64,
    sampled: bool,
    /// The value of `tracestate`; empty if there is none.
    state: String,
}

impl TraceParent {
    /// The id of the trace; never zero.
    pub fn trace_id(&self) -> u128 {
        self.trace
    }

    /// Makes a new span part of this trace. Call it before the span is entered; later it has no effect.
    pub fn adopt(&self, span: &Span) {
        // The layer for traces is missing without a collector; the extension below stands in for it.
        let _ = span.set_parent(opentelemetry::Context::new().with_remote_span_context(self.to_otel()));
        span.with_subscriber(|(id, dispatch)| {
            let registry = dispatch.downcast_ref::<Registry>();
            if let Some(span) = registry.and_then(|registry| registry.span(id)) {
                span.extensions_mut().replace(Caller(self.clone()));
            }
        });
    }

    fn to_otel(&self) -> SpanContext {
        let flags = if self.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
        let state = self.state.parse::<TraceState>().unwrap_or_default();
        SpanContext::new(TraceId::from(self.trace), SpanId::from(self.span), flags, true, state)
    }

    fn of_otel(context: &SpanContext) -> Option<Self> {
        context.is_valid().then(|| TraceParent {
            trace: u128::from_be_bytes(context.trace_id().to_bytes()),
            span: u64::from_be_bytes(context.span_id().to_bytes()),
            sampled: context.is_sampled(),
            state: context.trace_state().header(),
        })
    }

    /// Where the current span stands: itself if traces are recorded, else what its caller sent.
    fn current() -> Option<Self> {
        let context = Span::current().context();
        Self::of_otel(context.span().span_context()).or_else(|| dispatcher::get_default(Self::passed_on))
    }

    fn passed_on(dispatch: &Dispatch) -> Option<Self> {
        let registry = dispatch.downcast_ref::<Registry>()?;
        let current = tracing::Subscriber::current_span(registry);
        let id: &span::Id = current.id()?;
        registry
            .span(id)?
            .scope()
            .find_map(|span| span.extensions().get::<Caller>().map(|caller| caller.0.clone()))
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

/// What a caller sent, kept at the span of its request.
struct Caller(TraceParent);

/// The caller's place in its trace, if the headers name one. Anything that is not exactly as the standard says counts as
/// absent: a request never fails for its trace context.
pub fn extract(headers: &HeaderMap) -> Option<TraceParent> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (trace, span, sampled) = parse::traceparent(value.to_str().ok()?)?;
    let state = parse::tracestate(headers.get_all(TRACESTATE).iter().map(HeaderValue::as_bytes));
    Some(TraceParent { trace, span, sampled, state: state.unwrap_or_default() })
}

/// Where a span stands, if traces are recorded, as the value of a `traceparent` header.
pub fn traceparent_of(span: &Span) -> Option<String> {
    TraceParent::of_otel(span.context().span().span_context()).map(|place| place.to_string())
}

/// Puts the current span's context into the headers of a request or answer, in place of any that was there.
pub fn inject(headers: &mut HeaderMap) {
    headers.remove(TRACEPARENT);
    headers.remove(TRACESTATE);
    let Some(current) = TraceParent::current() else { return };
    if let Ok(value) = HeaderValue::try_from(current.to_string()) {
        headers.insert(TRACEPARENT, value);
        if let Ok(state) = HeaderValue::try_from(&current.state)
            && !current.state.is_empty()
        {
            headers.insert(TRACESTATE, state);
        }
    }
}

/// The current span's context as the value of a `traceparent` header or of the variable `TRACEPARENT`.
pub fn current_traceparent() -> Option<String> {
    TraceParent::current().map(|current| current.to_string())
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
        });
        let mut headers = HeaderMap::new();
        pairs.for_each(|(name, value)| {
            headers.append(name, value);
        });
        headers
    }

    #[test]
    fn a_context_is_read_and_printed_back() {
        let parent =
            extract(&headers(&[("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")]))
                .unwrap();
        assert_eq!(parent.to_string(), PARENT);
        assert_eq!(parent.trace_id(), 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(parent.state, "a=1,b=2");
        assert_eq!(TraceParent::of_otel(&parent.to_otel()), Some(parent));
    }

    #[test]
    fn a_doubtful_context_is_none() {
        assert_eq!(extract(&headers(&[])), None);
        assert_eq!(extract(&headers(&[("traceparent", PARENT), ("traceparent", PARENT)])), None);
        assert_eq!(extract(&headers(&[("traceparent", "\u{fe}")])), None);
        // A bad state does not spoil the parent.
        let parent = extract(&headers(&[("traceparent", PARENT), ("tracestate", "no equals sign")])).unwrap();
        assert_eq!(parent.state, "");
    }

    #[test]
    fn without_a_collector_the_callers_context_is_handed_on() {
        tracing::subscriber::with_default(Registry::default().with(tracing_subscriber::fmt::layer()), || {
            let request = tracing::info_span!("request");
            assert_eq!(request.in_scope(current_traceparent), None);
            extract(&headers(&[("traceparent", PARENT), ("tracestate", "a=1")])).unwrap().adopt(&request);
            let _in_request = request.enter();
            let _in_work = tracing::info_span!("work").entered();
            assert_eq!(current_traceparent().as_deref(), Some(PARENT));
            let mut out = headers(&[("traceparent", "theirs"), ("tracestate", "theirs=1")]);
            inject(&mut out);
            assert_eq!(out, headers(&[("traceparent", PARENT), ("tracestate", "a=1")]));
        });
        let mut out = headers(&[("traceparent", PARENT)]);
        inject(&mut out);
        assert!(out.is_empty(), "a context that is not ours is not handed on");
    }
}
