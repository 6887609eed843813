//! The one error at the provider boundary.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use sandstorm_types::{Attempt, ErrorKind, Retry, Unmet};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed: what kind of failure, whether trying again helps, what was done to which
/// object, and the cause. `Display` shows its own facts only; whoever prints it walks the sources.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    retry: Retry,
    retry_after: Option<Duration>,
    not_started: bool,
    blameless: bool,
    message: Cow<'static, str>,
    operation: Option<&'static str>,
    provider: Option<String>,
    context: Vec<(&'static str, String)>,
    unmet: Vec<Unmet>,
    attempts: Vec<Attempt>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of `kind` with a message in lower case and without a full stop.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            kind,
            retry: kind.usual_retry(),
            retry_after: None,
            not_started: false,
            blameless: false,
            message: message.into(),
            operation: None,
            provider: None,
            context: Vec::new(),
            unmet: Vec::new(),
            attempts: Vec::new(),
            source: None,
        }))
    }

    /// The refusal of something that the provider does not offer; another one may.
    pub fn unmet(unmet: Vec<Unmet>) -> Self {
        let message = "the provider does not offer what was asked for";
        let mut error = Self::new(ErrorKind::InvalidRequest, message).with_retry(Retry::Elsewhere);
        error.0.unmet = unmet;
        error.0.not_started = true;
        error
    }

    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.0.retry = retry;
        self
    }

    /// Says when trying again may help.
    pub fn with_retry_after(mut self, span: Duration) -> Self {
        self.0.retry_after = Some(span);
        self
    }

    /// Says that nothing was begun: no sandbox and no program came of the call, nor will one later. Only for what is
    /// proven, such as a connection that was never made: whoever reads it may do the same elsewhere.
    pub fn with_not_started(mut self) -> Self {
        self.0.not_started = true;
        self
    }

    /// Says that the provider refused this request alone, for what it or its tenant asks: other requests may do well there.
    pub fn with_blameless_provider(mut self) -> Self {
        self.0.blameless = true;
        self
    }

    /// Names what was being done; the innermost name stays.
    pub fn with_operation(mut self, operation: &'static str) -> Self {
        self.0.operation.get_or_insert(operation);
        self
    }

    /// Names the provider; the innermost name stays.
    pub fn with_provider(mut self, provider: &str) -> Self {
        self.0.provider.get_or_insert_with(|| provider.to_owned());
        self
    }

    /// Adds the name of an object that it is about.
    pub fn with(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        self.0.context.push((key, value.to_string()));
        self
    }

    /// The places that were tried, each of which may have cost something.
    pub fn with_attempts(mut self, attempts: Vec<Attempt>) -> Self {
        self.0.attempts = attempts;
        self
    }

    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    pub fn retry(&self) -> Retry {
        self.0.retry
    }

    /// How long to wait before trying again, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Whether it is proven that nothing was begun. `false` is no proof of the opposite.
    pub fn is_not_started(&self) -> bool {
        self.0.not_started
    }

    /// Whether the failure says something about the provider, of whatever kind it is.
    pub fn blames_provider(&self) -> bool {
        !self.0.blameless
    }

    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub fn operation(&self) -> Option<&'static str> {
        self.0.operation
    }

    pub fn provider(&self) -> Option<&str> {
        self.0.provider.as_deref()
    }

    pub fn context(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.context.iter().map(|(key, value)| (*key, value.as_str()))
    }

    /// The places that were tried before it was given up, in order.
    pub fn attempts(&self) -> &[Attempt] {
        &self.0.attempts
    }

    /// Every reason why the provider could not take it, where that is what happened.
    pub fn reasons(&self) -> &[Unmet] {
        &self.0.unmet
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.operation, &self.0.provider) {
            (Some(operation), Some(provider)) => write!(f, "{operation} on {provider}: ")?,
            (Some(operation), None) => write!(f, "{operation}: ")?,
            (None, Some(provider)) => write!(f, "{provider}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.0.message)?;
        for (place, (key, value)) in self.0.context.iter().enumerate() {
            write!(f, "{}{key} {value}", if place == 0 { " (" } else { ", " })?;
        }
        if !self.0.context.is_empty() {
            f.write_str(")")?;
        }
        for Unmet { feature, wanted, offered, why } in &self.0.unmet {
            write!(f, "; {feature}: wanted {wanted}, offered {offered}: {why}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Error");
        shown.field("kind", &self.0.kind).field("retry", &self.0.retry).field("message", &self.to_string());
        if self.0.not_started {
            shown.field("not_started", &true);
        }
        if let Some(source) = &self.0.source {
            shown.field("source", source);
        }
        shown.finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_what_where_and_to_which_object() {
        let error = Error::new(ErrorKind::NotFound, "there is no such sandbox")
            .with("sandbox", "sbx_x")
            .with_operation("get")
            .with_operation("outer")
            .with_provider("memory")
            .with_source(std::io::Error::other("cause"));
        assert_eq!(error.to_string(), "get on memory: there is no such sandbox (sandbox sbx_x)");
        assert_eq!(error.source().map(ToString::to_string), Some("cause".to_owned()));
        assert_eq!(error.retry(), Retry::Never);
        assert_eq!(error.retry_after(), None);
        let busy = Error::new(ErrorKind::Capacity, "full").with_retry_after(Duration::from_secs(2));
        assert_eq!(busy.retry_after(), Some(Duration::from_secs(2)));
    }

    #[test]
    fn what_is_not_offered_may_be_had_elsewhere() {
        let error = Error::unmet(vec![Unmet::new("exec_tty", "yes", "no", "there are no terminals here")]);
        assert_eq!((error.kind(), error.retry()), (ErrorKind::InvalidRequest, Retry::Elsewhere));
        assert!(error.to_string().ends_with("exec_tty: wanted yes, offered no: there are no terminals here"));
        assert!(error.is_not_started(), "a refusal begins nothing");
        assert!(!Error::new(ErrorKind::Provider, "it broke off").is_not_started());
        assert!(Error::new(ErrorKind::Provider, "nobody listens").with_not_started().is_not_started());
    }
}
