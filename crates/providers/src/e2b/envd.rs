//! Calls to the agent inside a sandbox.

use data_encoding::BASE64;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, RequestBuilder};
use sandstorm_e2b_wire::envelope;
use sandstorm_e2b_wire::{
    ACCESS_TOKEN, ENVD_PORT, KEEPALIVE_INTERVAL, PORT_HEADER, SANDBOX_HEADER, STREAM, TIMEOUT,
};
use sandstorm_types::User;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::client::{Client, below};
use super::error::Failure;
use super::places::Place;
use super::rpc_stream::RpcStream;

/// Services of the agent.
pub(super) const PROCESS: &str = "process.Process";
pub(super) const FILESYSTEM: &str = "filesystem.Filesystem";

/// What a user is called there.
pub(super) fn name(user: User) -> &'static str {
    match user {
        User::User => "user",
        User::Root => "root",
    }
}

impl Client {
    /// A request to the agent, by its own address or by headers.
    pub(super) fn inside(
        &self,
        place: &Place,
        method: Method,
        parts: &[&str],
        query: &[(&str, &str)],
    ) -> RequestBuilder {
        self.http
            .request(method, below(place.agent(), parts, query))
            .header(SANDBOX_HEADER, place.theirs().as_str())
            .header(PORT_HEADER, ENVD_PORT)
            .header(ACCESS_TOKEN, place.token())
    }

    fn rpc(&self, place: &Place, service: &str, method: &str, user: User) -> RequestBuilder {
        let basic = BASE64.encode(format!("{}:", name(user)).as_bytes());
        let basic = HeaderValue::from_str(&format!("Basic {basic}"));
        let request =
            self.inside(place, Method::POST, &[service, method], &[]).header("connect-protocol-version", "1");
        match basic {
            Ok(basic) => request.header(AUTHORIZATION, basic),
            Err(_) => request,
        }
    }

    /// A call with one answer.
    pub(super) async fn unary<T: DeserializeOwned>(
        &self,
        place: &Place,
        service: &str,
        method: &str,
        message: &impl Serialize,
    ) -> Result<T, Failure> {
        self.ask(self.rpc(place, service, method, place.user()).json(message)).await
    }

    /// The same call, which may take as long as the program on the other side does.
    pub(super) async fn patient<T: DeserializeOwned>(
        &self,
        place: &Place,
        service: &str,
        method: &str,
        message: &impl Serialize,
    ) -> Result<T, Failure> {
        let request = self.rpc(place, service, method, place.user()).json(message);
        let response = self.dispatch(request).await?;
        self.read(response).await
    }

    /// A call whose answer is a stream. `lasts` is how many milliseconds a program that it starts may run.
    pub(super) async fn stream(
        &self,
        place: &Place,
        (service, method): (&str, &str),
        user: User,
        lasts: Option<u64>,
        message: &impl Serialize,
    ) -> Result<RpcStream, Failure> {
        let json = serde_json::to_vec(message).map_err(|_| Failure::Senseless("what is asked is no JSON"))?;
        let mut request = self
            .rpc(place, service, method, user)
            .header(CONTENT_TYPE, STREAM)
            .header(KEEPALIVE_INTERVAL, self.keepalive.clone())
            .body(envelope::message(&json));
        if let Some(lasts) = lasts {
            request = request.header(TIMEOUT, lasts);
        }
        let response = self.send(request).await?;
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        match kind.starts_with(STREAM) {
            true => Ok(RpcStream::new(response, self.silence)),
            false => Err(Failure::Senseless("it is no stream")),
        }
    }
}
