//! Writing a file: beside its place first, and into its place as a whole.
//!
//! The agent writes a body into the file as it comes, so that readers would see half of it, and a body that breaks off
//! would leave it so. A rename is whole.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use reqwest::{Body, Method};
use sandstorm_e2b_wire::filesystem::{MoveRequest, PathRequest};
use sandstorm_provider::{ByteStream, Error, Result};
use sandstorm_types::{GuestPath, SandboxId};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::cloud::Cloud;
use super::envd::{FILESYSTEM, name};
use super::error::{Failure, of_file, senseless};
use super::places::Place;
use crate::bodies::Sent;

/// How the name of a file begins that is on its way.
const BESIDE: &str = ".sandstorm-upload-";

/// Whether a name is that of a file on its way.
pub(super) fn is_on_its_way(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|last| last.starts_with(BESIDE))
}

#[derive(Debug, Deserialize)]
struct Written {
    path: String,
}

/// A file beside its place. Dropped before it is there, it is removed.
struct Beside {
    cloud: Arc<Cloud>,
    place: Place,
    path: GuestPath,
    open: bool,
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.open || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let (cloud, place, path) = (Arc::clone(&self.cloud), self.place.clone(), self.path.clone());
        self.cloud.tasks.start("remove half a file", async move { cloud.tidy(&place, &path).await });
    }
}

impl Cloud {
    pub(super) async fn write_file(
        self: &Arc<Self>,
        place: &Place,
        path: &GuestPath,
        body: ByteStream,
    ) -> Result<()> {
        let folder = path.parent().unwrap_or_else(GuestPath::root);
        let beside = folder
            .join(&format!("{BESIDE}{}", SandboxId::random().bare()))
            .map_err(|error| Error::new(sandstorm_types::ErrorKind::InvalidRequest, error.to_string()))?;
        let mut way = Beside { cloud: Arc::clone(self), place: place.clone(), path: beside, open: true };
        if let Err(error) = self.upload(place, &way.path, body).await {
            way.open = false;
            self.tidy(place, &way.path).await;
            return Err(error);
        }
        let rename = MoveRequest { source: way.path.to_string(), destination: path.to_string() };
        match self.client.unary::<IgnoredAny>(place, FILESYSTEM, "Move", &rename).await {
            Ok(_) => {
                way.open = false;
                Ok(())
            }
            Err(failure) => {
                way.open = false;
                self.tidy(place, &way.path).await;
                Err(self.of_agent(place, failure, of_file).await)
            }
        }
    }

    pub(super) async fn write_bytes(
        self: &Arc<Self>,
        place: &Place,
        path: &GuestPath,
        bytes: Bytes,
    ) -> Result<()> {
        self.write_file(place, path, ByteStream::from(bytes)).await
    }

    async fn upload(&self, place: &Place, path: &GuestPath, body: ByteStream) -> Result<()> {
        let (body, sent) = Sent::of(body);
        let query = [("path", path.as_str()), ("username", name(place.user()))];
        let request = self
            .client
            .inside(place, Method::POST, &["files"], &query)
            .header(CONTENT_TYPE, "application/octet-stream")
            .body(Body::wrap_stream(body));
        let uploading = async {
            let response = self.client.dispatch(request).await?;
            self.client.read::<Vec<Written>>(response).await
        };
        let done = tokio::select! {
            done = uploading => done,
            () = self.stalled(&sent) => Err(Failure::Silent(self.client.answer)),
        };
        match done {
            Ok(written) if written.iter().any(|file| file.path == path.as_str()) => Ok(()),
            Ok(_) => Err(senseless("another file was written than sent")),
            Err(failure) => match sent.failure() {
                Some(error) => Err(error),
                None => Err(self.of_agent(place, failure, of_file).await),
            },
        }
    }

    /// Waits until nothing has moved for as long as an answer may take.
    async fn stalled(&self, sent: &Sent) {
        let mut before = None;
        while before != Some(sent.bytes()) {
            before = Some(sent.bytes());
            tokio::time::sleep(self.client.answer).await;
        }
    }

    /// Removes what is left of a file that did not come to its place.
    async fn tidy(&self, place: &Place, path: &GuestPath) {
        let request = PathRequest { path: path.to_string(), depth: 0 };
        let removed = self.client.unary::<IgnoredAny>(place, FILESYSTEM, "Remove", &request).await;
        if let Err(failure) = removed {
            tracing::debug!(sandbox = %place.ours(), error = %failure, "half a file may be left");
        }
    }
}
