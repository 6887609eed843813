//! One connection pool to one server: keys, deadlines, refusals, retries.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use reqwest::{Response, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::address::Address;
use crate::error::Refusal;
use crate::pace;
use crate::{ClientOptions, Error, Result};

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
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("server", &self.0.address.server()).finish_non_exhaustive()
    }
}

/// A call as it is sent.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Option<Vec<u8>>,
    /// Whether sending it twice does no more than sending it once.
    repeatable: bool,
    within: Within,
}

/// How long the head of an answer may take.
#[derive(Debug, Clone, Copy)]
enum Within {
    /// As long as the client's options say.
    Usual,
    Given(Duration),
    /// As long as the work takes.
    Any,
}

impl Call {
    pub(crate) fn new(method: Method, url: Url) -> Self {
        let repeatable = matches!(method, Method::GET | Method::HEAD | Method::PUT | Method::DELETE);
        Self { method, url, headers: HeaderMap::new(), body: None, repeatable, within: Within::Usual }
    }

    pub(crate) fn get(url: Url) -> Self {
        Self::new(Method::GET, url)
    }

    pub(crate) fn post(url: Url) -> Self {
        Self::new(Method::POST, url)
    }

    pub(crate) fn json(self, body: &impl Serialize) -> Self {
        let bytes = serde_json::to_vec(body).expect("requests are maps of text, numbers and lists");
        self.bytes("application/json", bytes)
    }

    pub(crate) fn bytes(mut self, kind: &'static str, bytes: Vec<u8>) -> Self {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        self.body = Some(bytes);
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        // A value that is no header would be a number or an id of ours that went wrong; the server says so then.
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    /// How long the head of the answer may take.
    pub(crate) fn within(mut self, within: Duration) -> Self {
        self.within = Within::Given(within);
        self
    }

    /// Asks for a stream of events.
    pub(crate) fn events(mut self) -> Self {
        self.headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        self
    }

    /// Makes a creation safe to repeat: the server answers a second one with the same key as it did the first.
    pub(crate) fn once(mut self) -> Self {
        let mut random = [0; 16];
        if getrandom::fill(&mut random).is_ok() {
            self = self.header("idempotency-key", &format!("{:032x}", u128::from_be_bytes(random)));
            self.repeatable = true;
        }
        self
    }

    /// The same with a key of the caller's, who may have to repeat it later.
    pub(crate) fn once_as(mut self, key: &str) -> Self {
        self.repeatable = true;
        self.header("idempotency-key", key)
    }

    /// Safe to repeat for a reason that the method does not tell.
    pub(crate) fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    pub(crate) fn without_deadline(mut self) -> Self {
        self.within = Within::Any;
        self
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
        Ok(Self(Arc::new(Inner { http, address, key, options })))
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
    cause.to_string().into()
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

    #[test]
    fn only_harmless_calls_are_repeated() {
        let url = || Url::parse("http://h/").unwrap();
        assert!(Call::get(url()).repeatable && Call::new(Method::DELETE, url()).repeatable);
        assert!(!Call::post(url()).repeatable);
        let (first, second) = (Call::post(url()).once(), Call::post(url()).once());
        assert!(first.repeatable);
        assert_ne!(first.headers["idempotency-key"], second.headers["idempotency-key"]);
    }
}
