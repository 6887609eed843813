//! What a proxy tells about its sandbox's traffic.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::hello::HelloError;

/// Totals since the proxy started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that reached their destination.
    pub connected: u64,
    /// Connections that were refused or cut off.
    pub refused: u64,
    pub bytes_up: u64,
    pub bytes_down: u64,
    pub queries_answered: u64,
    /// Queries refused for their name, type or form.
    pub queries_refused: u64,
    /// Queries dropped for coming too fast.
    pub queries_dropped: u64,
    /// Denials that the channel did not get: they came too fast, repeated the last one, or nobody read.
    pub denials_suppressed: u64,
}

/// Why a connection or a query was refused, or a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    #[error("the connection was not redirected, so it has no destination")]
    NoDestination,
    #[error("the address stands for no name that was asked for")]
    UnknownAddress,
    #[error("the network policy does not allow the destination")]
    NotAllowed,
    #[error("the name could not be resolved")]
    Unresolved,
    #[error("the destination is not a public address")]
    ForbiddenAddress,
    #[error("the operator of this machine denies the address")]
    DeniedAddress,
    #[error("the destination did not answer")]
    Unreachable,
    #[error("a connection to this port must speak TLS")]
    NotTls,
    #[error("the TLS client hello is malformed or did not arrive")]
    MalformedHello,
    #[error("the TLS client hello names no server")]
    NoServerName,
    #[error("the TLS client hello names another server")]
    OtherServerName,
    #[error("the TLS client hello is encrypted")]
    EncryptedHello,
    #[error("a connection to this port must speak HTTP/1 or TLS")]
    NotHttp,
    #[error("the HTTP request is malformed or can be read in two ways")]
    MalformedRequest,
    #[error("the HTTP request names another host")]
    OtherHost,
    #[error("the HTTP request is one for a proxy")]
    ProxyRequest,
    #[error("HTTP/2 without TLS cannot be checked")]
    PlainHttp2,
    #[error("the policy adds headers to requests to this host, which cannot be done inside TLS: use http://")]
    HeadersInTls,
    #[error("the sandbox has used up its bytes")]
    BytesUsedUp,
    #[error("the network policy changed and no longer allows the destination")]
    PolicyChanged,
    #[error("nothing moved for too long")]
    Idle,
    #[error("the resolver answers for addresses only")]
    RecordType,
    #[error("the name is too long for one that no rule spells out")]
    LongName,
    #[error("the DNS query is malformed")]
    MalformedQuery,
}

impl From<HelloError> for Refusal {
    fn from(_: HelloError) -> Self {
        Self::MalformedHello
    }
}

impl Refusal {
    /// A word for programs.
    pub fn code(self) -> &'static str {
        match self {
            Self::NoDestination => "no_destination",
            Self::UnknownAddress => "unknown_address",
            Self::NotAllowed => "not_allowed",
            Self::Unresolved => "unresolved",
            Self::ForbiddenAddress => "forbidden_address",
            Self::DeniedAddress => "denied_address",
            Self::Unreachable => "unreachable",
            Self::NotTls => "not_tls",
            Self::MalformedHello => "malformed_hello",
            Self::NoServerName => "no_server_name",
            Self::OtherServerName => "other_server_name",
            Self::EncryptedHello => "encrypted_hello",
            Self::NotHttp => "not_http",
            Self::MalformedRequest => "malformed_request",
            Self::OtherHost => "other_host",
            Self::ProxyRequest => "proxy_request",
            Self::PlainHttp2 => "plain_http2",
            Self::HeadersInTls => "headers_in_tls",
            Self::BytesUsedUp => "bytes_used_up",
            Self::PolicyChanged => "policy_changed",
            Self::Idle => "idle",
            Self::RecordType => "record_type",
            Self::LongName => "long_name",
            Self::MalformedQuery => "malformed_query",
        }
    }

    /// Whether it is about a request of plain HTTP.
    pub(crate) fn is_of_http(self) -> bool {
        matches!(self, Self::MalformedRequest | Self::OtherHost | Self::ProxyRequest)
    }

    /// Whether something that the sandbox tried was forbidden. The others are what any network does to a program.
    pub fn is_denial(self) -> bool {
        !matches!(self, Self::Unresolved | Self::Unreachable | Self::Idle)
    }
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) connected: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) bytes_up: AtomicU64,
    pub(super) bytes_down: AtomicU64,
    pub(super) queries_answered: AtomicU64,
    pub(super) queries_refused: AtomicU64,
    pub(super) queries_dropped: AtomicU64,
    pub(super) denials_suppressed: AtomicU64,
}

impl Tally {
    pub(super) fn counters(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            connected: read(&self.connected),
            refused: read(&self.refused),
            bytes_up: read(&self.bytes_up),
            bytes_down: read(&self.bytes_down),
            queries_answered: read(&self.queries_answered),
            queries_refused: read(&self.queries_refused),
            queries_dropped: read(&self.queries_dropped),
            denials_suppressed: read(&self.denials_suppressed),
        }
    }
}
