//! The way to the control plane: one pool of connections, keys, deadlines, bounded answers.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use http::header::{HeaderValue, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, Url};
use sandstorm_e2b_wire::{IDEMPOTENCY_KEY, NEXT_TOKEN};
use sandstorm_provider::{Error, Result};
use sandstorm_types::ErrorKind;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::config::Config;
use super::error::{Failure, Refusal};
use super::snapshots::{Saved, TheirSnapshot};
use super::view::{Access, Listed, TheirId};

/// The most that is read of an answer, and of a refusal.
const MOST_ANSWER: usize = 8 << 20;
const MOST_REFUSAL: usize = 64 << 10;
/// How long the words of a refusal may take.
const WORDS: Duration = Duration::from_secs(10);
/// How many times longer than any other answer that of saving a sandbox may take.
const SAVING: u32 = 10;
/// Rows of a page.
const PAGE: &str = "100";
/// Domains of E2B's own, where all sandboxes share one host and are named by headers.
const SHARED: [&str; 4] = ["e2b.app", "e2b.dev", "e2b.pro", "e2b-staging.dev"];

/// A client of one account. It never follows a redirection: a key is for the server that it was given for.
pub(super) struct Client {
    pub(super) http: reqwest::Client,
    control: Url,
    sandboxes: Option<Url>,
    domain: String,
    key: HeaderValue,
    pub(super) answer: Duration,
    pub(super) silence: Duration,
    pub(super) keepalive: HeaderValue,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("control", &self.control.as_str()).finish_non_exhaustive()
    }
}

impl Client {
    pub(super) fn new(config: &Config) -> Result<Self> {
        if !is_domain(&config.domain) {
            return Err(misconfigured("the domain is none").with("domain", &config.domain));
        }
        let control = match &config.api_url {
            Some(url) => address(url)?,
            None => address(&format!("https://api.{}", config.domain))?,
        };
        let sandboxes = config.sandbox_url.as_deref().map(address).transpose()?;
        let mut key = HeaderValue::from_str(config.key.expose_secret())
            .ok()
            .filter(|key| !key.is_empty())
            .ok_or_else(|| misconfigured("the key is none"))?;
        key.set_sensitive(true);
        // Another part of the process may have chosen already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("sandstorm/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(config.connect_timeout)
            .tcp_nodelay(true)
            .tcp_keepalive(Duration::from_secs(30))
            .redirect(reqwest::redirect::Policy::none())
            // On one connection for all, a listener that does not read would hold up the others.
            .http1_only();
        if is_loopback(&control) {
            builder = builder.no_proxy();
        }
        let http = builder
            .build()
            .map_err(|error| misconfigured("connections cannot be set up").with_source(error))?;
        Ok(Self {
            http,
            control,
            sandboxes,
            domain: config.domain.clone(),
            key,
            answer: config.answer_timeout,
            silence: config.silence,
            keepalive: HeaderValue::from(config.keepalive_seconds()),
        })
    }

    /// Where the agent of a sandbox is. A domain that they tell has to be ours or below it: what they say must not lead
    /// us anywhere else.
    pub(super) fn agent(&self, theirs: &TheirId, domain: Option<&str>) -> Result<Url, Failure> {
        if let Some(one) = &self.sandboxes {
            return Ok(one.clone());
        }
        let domain = domain.unwrap_or(&self.domain);
        let ours =
            domain == self.domain || domain.strip_suffix(&self.domain).is_some_and(|sub| sub.ends_with('.'));
        if !is_domain(domain) || !(ours || SHARED.contains(&domain)) {
            return Err(Failure::Senseless("the sandbox is in a domain of somebody else"));
        }
        let host = match SHARED.contains(&domain) {
            true => format!("https://sandbox.{domain}"),
            false => format!("https://{}-{theirs}.{domain}", sandstorm_e2b_wire::ENVD_PORT),
        };
        Url::parse(&host).map_err(|_| Failure::Senseless("the sandbox has no address"))
    }

    fn call(&self, method: Method, parts: &[&str]) -> RequestBuilder {
        self.call_with(method, parts, &[])
    }

    fn call_with(&self, method: Method, parts: &[&str], query: &[(&str, &str)]) -> RequestBuilder {
        let url = below(&self.control, parts, query);
        self.http.request(method, url).header("x-api-key", self.key.clone())
    }

    pub(super) async fn create(&self, new: &Value, key: &str) -> Result<Access, Failure> {
        let request = self.call(Method::POST, &["v2", "sandboxes"]).header(IDEMPOTENCY_KEY, key).json(new);
        self.ask(request).await
    }

    pub(super) async fn sandbox(&self, id: &TheirId) -> Result<Listed, Failure> {
        let listed: Listed = self.ask(self.call(Method::GET, &["sandboxes", id.as_str()])).await?;
        match listed.id == *id {
            true => Ok(listed),
            false => Err(Failure::Senseless("it shows another sandbox")),
        }
    }

    /// One page of those that carry this metadata, and where the next one is.
    pub(super) async fn page(
        &self,
        metadata: &str,
        next: Option<&str>,
    ) -> Result<(Vec<Listed>, Option<String>), Failure> {
        let mut query = vec![("metadata", metadata), ("state", "running,paused"), ("limit", PAGE)];
        query.extend(next.map(|next| ("nextToken", next)));
        let response = self.send(self.call_with(Method::GET, &["v2", "sandboxes"], &query)).await?;
        let next = response.headers().get(NEXT_TOKEN).and_then(|token| token.to_str().ok());
        let next = next.filter(|token| !token.is_empty()).map(str::to_owned);
        Ok((self.read(response).await?, next))
    }

    pub(super) async fn kill(&self, id: &TheirId) -> Result<(), Failure> {
        self.tell(self.call(Method::DELETE, &["sandboxes", id.as_str()])).await
    }

    pub(super) async fn pause(&self, id: &TheirId) -> Result<(), Failure> {
        self.tell(self.call(Method::POST, &["sandboxes", id.as_str(), "pause"]).json(&json!({}))).await
    }

    /// Wakes one that sleeps.
    pub(super) async fn connect(&self, id: &TheirId, lease: Duration) -> Result<Access, Failure> {
        let body = json!({"timeout": lease.as_secs()});
        self.ask(self.call(Method::POST, &["v2", "sandboxes", id.as_str(), "connect"]).json(&body)).await
    }

    /// Its life ends so long from now.
    pub(super) async fn renew(&self, id: &TheirId, lease: Duration) -> Result<(), Failure> {
        let body = json!({"timeout": lease.as_secs()});
        self.tell(self.call(Method::POST, &["sandboxes", id.as_str(), "timeout"]).json(&body)).await
    }

    /// Saves the files of a sandbox under a name. How long that takes depends on how much there is.
    pub(super) async fn save(&self, id: &TheirId, name: &str) -> Result<Saved, Failure> {
        let body = json!({"name": name, "memory": false});
        let request = self.call(Method::POST, &["sandboxes", id.as_str(), "snapshots"]).json(&body);
        let patience = self.answer * SAVING;
        let sending = tokio::time::timeout(patience, self.dispatch(request));
        let response = sending.await.map_err(|_| Failure::Silent(patience))??;
        self.read(response).await
    }

    /// What was saved under a name.
    pub(super) async fn saved(&self, name: &str) -> Result<Vec<Saved>, Failure> {
        self.ask(self.call_with(Method::GET, &["snapshots"], &[("name", name), ("limit", PAGE)])).await
    }

    pub(super) async fn forget(&self, id: &TheirSnapshot) -> Result<(), Failure> {
        self.tell(self.call(Method::DELETE, &["templates", id.as_str()])).await
    }

    pub(super) async fn set_network(&self, id: &TheirId, network: &Value) -> Result<(), Failure> {
        self.tell(self.call(Method::PUT, &["sandboxes", id.as_str(), "network"]).json(network)).await
    }

    /// Sends, and reads the answer as JSON.
    pub(super) async fn ask<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Failure> {
        let response = self.send(request).await?;
        self.read(response).await
    }

    async fn tell(&self, request: RequestBuilder) -> Result<(), Failure> {
        self.send(request).await.map(drop)
    }

    /// Sends, and gives the beginning of an answer that is no refusal.
    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let sending = self.dispatch(request);
        tokio::time::timeout(self.answer, sending).await.map_err(|_| Failure::Silent(self.answer))?
    }

    /// The same for as long as it takes.
    pub(super) async fn dispatch(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let response = request.send().await.map_err(failed)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after =
            response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = tokio::time::timeout(WORDS, beginning(response)).await.unwrap_or_default();
        Err(Failure::Refused(Box::new(Refusal::read(status.as_u16(), retry_after.as_deref(), &body))))
    }

    pub(super) async fn read<T: DeserializeOwned>(&self, response: Response) -> Result<T, Failure> {
        let bytes = tokio::time::timeout(self.answer, whole(response)).await;
        let bytes = bytes.map_err(|_| Failure::Silent(self.answer))??;
        serde_json::from_slice(&bytes).map_err(|_| Failure::Senseless("it is not what was asked for"))
    }
}

/// An address below another one.
pub(super) fn below(base: &Url, parts: &[&str], query: &[(&str, &str)]) -> Url {
    let mut url = base.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(parts);
    }
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    url
}

async fn whole(mut response: Response) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(broken)? {
        if bytes.len() + piece.len() > MOST_ANSWER {
            return Err(Failure::Senseless("it is longer than any answer"));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
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

fn failed(error: reqwest::Error) -> Failure {
    if error.is_connect() {
        Failure::Unreachable(root(&error))
    } else if error.is_body() {
        Failure::Upload(root(&error))
    } else {
        Failure::Broken(Some(root(&error)))
    }
}

pub(super) fn broken(error: reqwest::Error) -> Failure {
    Failure::Broken(Some(root(&error)))
}

/// What was really wrong. The layers above it say in other words what our own error says, and name the address.
fn root(error: &reqwest::Error) -> Box<dyn std::error::Error + Send + Sync> {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string().into()
}

fn misconfigured(what: &'static str) -> Error {
    Error::new(ErrorKind::InvalidRequest, what).with_not_started()
}

fn address(text: &str) -> Result<Url> {
    let wrong = || misconfigured("the address is none");
    let url = Url::parse(text).map_err(|_| wrong())?;
    let plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    let fine = matches!(url.scheme(), "http" | "https") && url.password().is_none() && plain;
    if fine && url.host_str().is_some_and(|host| !host.is_empty()) { Ok(url) } else { Err(wrong()) }
}

fn is_domain(text: &str) -> bool {
    let label = |label: &str| {
        let letters = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        (1..=63).contains(&label.len()) && letters && !label.starts_with('-')
    };
    text.len() <= 253 && text.contains('.') && text.split('.').all(label)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::ApiKey;

    fn client(change: impl FnOnce(&mut Config)) -> Result<Client> {
        let mut config = Config::new("e2b", ApiKey::new("e2b_hunter2"), "me".parse().unwrap());
        change(&mut config);
        Client::new(&config)
    }

    #[test]
    fn the_key_is_checked_and_never_shown() {
        assert!(!format!("{:?}", client(|_| {}).unwrap()).contains("hunter2"));
        for bad in ["", "line\nbreak"] {
            assert!(client(|config| config.key = ApiKey::new(bad)).is_err(), "{bad:?}");
        }
        for bad in ["", "e2b", "e2b.app/x", "a..b", "e2b.app:8", "-a.b"] {
            assert!(client(|config| config.domain = bad.to_owned()).is_err(), "{bad:?}");
        }
        for bad in ["x", "ftp://h", "http://user:pw@h", "http://h?a=1"] {
            assert!(client(|config| config.api_url = Some(bad.to_owned())).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn no_answer_leads_to_somebody_else() {
        let theirs: TheirId = "abc123".parse().unwrap();
        let e2b = client(|_| {}).unwrap();
        assert_eq!(e2b.agent(&theirs, None).unwrap().as_str(), "https://sandbox.e2b.app/");
        assert_eq!(
            e2b.agent(&theirs, Some("eu.e2b.app")).unwrap().as_str(),
            "https://49983-abc123.eu.e2b.app/"
        );
        for bad in ["evil.example", "note2b.app", "127.0.0.1", "e2b.app.evil.example", "x@e2b.app", ""] {
            assert!(e2b.agent(&theirs, Some(bad)).is_err(), "{bad}");
        }
        let own = client(|config| config.domain = "sandboxes.example.org".to_owned()).unwrap();
        let url = own.agent(&theirs, None).unwrap();
        assert_eq!(url.as_str(), "https://49983-abc123.sandboxes.example.org/");
    }
}
