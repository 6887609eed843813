//! One connection pool to one server: keys, deadlines, refusals, retries.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::StatusCode;
use http::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Response, Url};
use serde::de::DeserializeOwned;

use crate::address::Address;
use crate::call::{Call, Within};
use crate::error::Refusal;
use crate::{ClientOptions, Error, Result, certificate, pace};

/// How long the words of a refusal may take.
const WORDS: Duration = Duration::from_secs(10);
/// The most that is read of a refusal.
const MOST_REFUSAL: usize = 64 * 1024;

/// A client of one server. Cloning gives another hand on the same connections.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    http: reqwest::Client,
    address: Address,
    key: Option<HeaderValue>,
    options: ClientOptions,
    /// Hears of each wait for a busy server.
    waits: OnceLock<fn(&Error, Duration)>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("server", &self.0.address.server()).finish_non_exhaustive()
    }
}

impl Client {
    /// A client of the server at `url`, such as `http://127.0.0.1:7300`. Connects when it is first used.
    pub fn new(url: &str, key: Option<&str>) -> Result<Self> {
        Self::with_options(url, key, ClientOptions::default())
    }

    pub fn with_options(url: &str, key: Option<&str>, options: ClientOptions) -> Result<Self> {
        let address = Address::parse(url)?;
        let key = match key {
            Some(key) => Some(authorization(key).ok_or(Error::Key)?),
            None => None,
        };
        let version = |builder: reqwest::ClientBuilder| match options.http1_only {
            true => builder.http1_only(),
            false => builder,
        };
        let http = http_client(&address, &options, version)?;
        Ok(Self(Arc::new(Inner { http, address, key, options, waits: OnceLock::new() })))
    }

    /// Has each wait for a busy server told, with its refusal and the time until the next try, so that no user waits
    /// without a word. Only the first call counts.
    pub fn tell_waits(&self, tell: fn(&Error, Duration)) {
        let _ = self.0.waits.set(tell);
    }

    /// The server as people know it: scheme, host and port.
    pub fn server(&self) -> String {
        self.0.address.server()
    }

    pub(crate) fn options(&self) -> &ClientOptions {
        &self.0.options
    }

    pub(crate) fn v1(&self, parts: &[&str]) -> Url {
        self.0.address.v1(parts)
    }

    /// A path outside of `/v1`.
    pub(crate) fn outside(&self, part: &str) -> Url {
        self.0.address.outside(part)
    }

    fn within(&self, call: &Call) -> Option<Duration> {
        match call.within {
            Within::Usual => Some(self.0.options.answer),
            Within::Given(within) => Some(within),
            Within::Any => None,
        }
    }

    /// A client for one connection that becomes something else than HTTP, which only version 1.1 can.
    pub(crate) fn for_upgrade(&self) -> Result<reqwest::Client> {
        http_client(&self.0.address, &self.0.options, reqwest::ClientBuilder::http1_only)
    }

    pub(crate) fn signed(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match &self.0.key {
            Some(key) => request.header(AUTHORIZATION, key.clone()),
            None => request,
        }
    }

    /// Sends, and reads the answer as JSON.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, call: Call) -> Result<T> {
        let within = self.within(&call);
        let response = self.send(call).await?;
        self.read(response, within).await
    }

    /// Reads an answer as JSON, and no more of it than fits.
    pub(crate) async fn read<T: DeserializeOwned>(
        &self,
        response: Response,
        within: Option<Duration>,
    ) -> Result<T> {
        let reading = self.whole(response);
        let bytes = match within {
            Some(within) => tokio::time::timeout(within, reading).await.map_err(|_| self.silent(within))?,
            None => reading.await,
        }?;
        serde_json::from_slice(&bytes)
            .map_err(|source| self.senseless("it is not what was asked for", source))
    }

    async fn whole(&self, mut response: Response) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| self.broken(error))? {
            if bytes.len() + piece.len() > self.0.options.most_answer {
                let what = "it is longer than any answer";
                return Err(Error::Answer { server: self.server(), what, source: None });
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    /// Sends; the answer holds nothing of interest.
    pub(crate) async fn tell(&self, call: Call) -> Result<()> {
        self.send(call).await.map(drop)
    }

    /// Sends, again if need be, until there is an answer that is no refusal.
    pub(crate) async fn send(&self, call: Call) -> Result<Response> {
        let mut tries = 0;
        loop {
            tries += 1;
            let error = match self.try_send(&call).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            let status = error.status().filter(|_| call.repeatable && self.0.options.repeats);
            let wait = status.and_then(|status| pace::before_retry(tries, status, error.retry_after()));
            let Some(wait) = wait else { return Err(error) };
            tracing::debug!(status, ?wait, "the server is busy; trying again");
            if let Some(tell) = self.0.waits.get() {
                tell(&error, wait);
            }
            tokio::time::sleep(wait).await;
        }
    }

    async fn try_send(&self, call: &Call) -> Result<Response> {
        let mut request =
            self.0.http.request(call.method.clone(), call.url.clone()).headers(call.headers.clone());
        if let Some(body) = &call.body {
            request = request.body(body.clone());
        }
        let sending = self.dispatch(request);
        match self.within(call) {
            Some(within) => tokio::time::timeout(within, sending).await.map_err(|_| self.silent(within))?,
            None => sending.await,
        }
    }

    /// Sends a body that can be read only once.
    pub(crate) async fn upload(&self, call: Call, body: reqwest::Body) -> Result<Response> {
        let request = self.0.http.request(call.method, call.url).headers(call.headers).body(body);
        self.dispatch(request).await
    }

    async fn dispatch(&self, request: reqwest::RequestBuilder) -> Result<Response> {
        let response = self.signed(request).send().await.map_err(|error| self.failed(error))?;
        self.accepted(response).await
    }

    /// The response, unless it is a refusal.
    pub(crate) async fn accepted(&self, response: Response) -> Result<Response> {
        let status = response.status();
        if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response);
        }
        let headers = response.headers().clone();
        let body = tokio::time::timeout(WORDS, beginning(response)).await.unwrap_or_default();
        Err(Box::new(Refusal::read(status, &headers, &body)).into())
    }

    pub(crate) fn failed(&self, error: reqwest::Error) -> Error {
        let server = self.server();
        if error.is_connect() {
            Error::Unreachable { server, source: root(error) }
        } else if error.is_body() {
            Error::Upload { source: root(error) }
        } else {
            Error::Broken { server, source: Some(root(error)) }
        }
    }

    pub(crate) fn broken(&self, error: reqwest::Error) -> Error {
        Error::Broken { server: self.server(), source: Some(root(error)) }
    }

    pub(crate) fn silent(&self, within: Duration) -> Error {
        Error::Silent { server: self.server(), within }
    }

    pub(crate) fn senseless(&self, what: &'static str, source: serde_json::Error) -> Error {
        Error::Answer { server: self.server(), what, source: Some(source.into()) }
    }
}

/// What was really wrong. The layers above it say in other words what our own error says.
fn root(error: reqwest::Error) -> Box<dyn std::error::Error + Send + Sync> {
    let mut cause: &dyn std::error::Error = &error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    certificate::explained(cause.to_string()).into()
}

/// The beginning of a body, as far as it comes.
async fn beginning(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < MOST_REFUSAL
        && let Ok(Some(piece)) = response.chunk().await
    {
        body.extend_from_slice(&piece);
    }
    body
}

fn authorization(key: &str) -> Option<HeaderValue> {
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {key}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn http_client(
    address: &Address,
    options: &ClientOptions,
    change: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
) -> Result<reqwest::Client> {
    // Another part of the process may have chosen already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("sandstorm/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(options.connect)
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(30))
        // The API redirects nowhere, and a key is for the server that it was given for.
        .redirect(reqwest::redirect::Policy::none());
    if address.is_loopback() {
        builder = builder.no_proxy();
        // Nothing here is encrypted, so a machine without any authority's certificate can be a client, too.
        if !address.is_encrypted() {
            builder = builder.tls_certs_only([]);
        }
    }
    change(builder).build().map_err(|source| Error::Tls { source: source.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_checked_and_never_shown() {
        let client = Client::new("http://127.0.0.1:1", Some("ss_abc_hunter2")).unwrap();
        assert!(!format!("{client:?} {:?}", client.0.key).contains("hunter2"));
        for bad in ["", "with space", "line\nbreak", "ü"] {
            assert!(matches!(Client::new("http://h", Some(bad)), Err(Error::Key)), "{bad:?}");
        }
    }

    #[test]
    fn tls_can_be_set_up() {
        assert_eq!(
            Client::new("https://example.org:8443", None).unwrap().server(),
            "https://example.org:8443"
        );
    }
}
