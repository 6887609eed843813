//! A connection to a port inside a sandbox.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::StatusCode;
use sandstorm_types::SandboxId;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{Client, Error, Result};

/// Bytes to and from a port. Dropping it closes the connection.
pub struct Tunnel(reqwest::Upgraded);

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tunnel")
    }
}

impl Client {
    /// Connects to what listens on a port inside.
    pub async fn tunnel(&self, sandbox: SandboxId, port: u16) -> Result<Tunnel> {
        let request = self
            .for_upgrade()?
            .get(self.sandbox_url(sandbox, &["tunnel", &port.to_string()]))
            .header("connection", "Upgrade")
            .header("upgrade", "tcp");
        let opening = async {
            let response = self.signed(request).send().await.map_err(|error| self.failed(error))?;
            let response = self.accepted(response).await?;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                let what = "it did not become a tunnel";
                return Err(Error::Answer { server: self.server(), what, source: None });
            }
            response.upgrade().await.map(Tunnel).map_err(|error| self.broken(error))
        };
        let within = self.options().answer;
        tokio::time::timeout(within, opening).await.map_err(|_| self.silent(within))?
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
