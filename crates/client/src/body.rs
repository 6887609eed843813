//! Bodies that come as they are read.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;

use crate::{Client, Error, Result};

/// How long the next piece of a body may take.
const PIECE: Duration = Duration::from_secs(60);

/// The content of a file or an archive. Dropping it ends the download.
pub struct Download {
    client: Client,
    response: reqwest::Response,
    size: Option<u64>,
    read: u64,
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download").field("size", &self.size).field("read", &self.read).finish_non_exhaustive()
    }
}

impl Download {
    pub(crate) fn new(client: &Client, response: reqwest::Response) -> Self {
        let length = response.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let size = length.and_then(|text| text.parse().ok());
        Self { client: client.clone(), response, size, read: 0 }
    }

    /// Bytes that will come, where the server knows.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// The next piece; `None` at the end, which is only told when everything came.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let piece = tokio::time::timeout(PIECE, self.response.chunk()).await;
        let piece =
            piece.map_err(|_| self.client.silent(PIECE))?.map_err(|error| self.client.broken(error))?;
        match &piece {
            Some(piece) => self.read += piece.len() as u64,
            None if self.size.is_some_and(|size| size != self.read) => {
                return Err(Error::Broken { server: self.client.server(), source: None });
            }
            None => {}
        }
        Ok(piece)
    }
}
