//! A word to a client whose connection is refused, where it speaks plain HTTP: it sees why, and not only a reset.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::report::Refusal;
use super::shared::Shared;
use crate::denial::Denial;
use crate::http::{Opening, classify};

const HTTP_PORT: u16 = 80;
/// How long a refused client may take to say what it speaks. Most speak first, and at once; on other ports than that of
/// HTTP one may wait for the server instead, and is not to wait long for its refusal.
const HEARD_ON_HTTP_PORT: Duration = Duration::from_secs(2);
const HEARD: Duration = Duration::from_millis(250);
/// How long an answer may take to be read, and how much of a request is read meanwhile.
const LINGERS: Duration = Duration::from_secs(1);
const MOST_READ: u64 = 256 * 1024;

/// Why a connection ends, and what its client said and heard until then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turned {
    pub(super) reason: Refusal,
    pub(super) heard: Heard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Nothing was read, and nothing was answered.
    Nothing,
    /// A request of plain HTTP, of which nothing was answered.
    Http,
    Other,
}

/// Answers a refused request. False: the client speaks something else, or there is no seat for it.
pub(super) async fn tell(shared: &Shared, client: &mut TcpStream, denial: &Denial, heard: Heard) -> bool {
    if !denial.reason.is_denial() || heard == Heard::Other {
        return false;
    }
    let Some(_seat) = shared.seat() else { return false };
    if heard == Heard::Nothing {
        let patience = if denial.port == Some(HTTP_PORT) { HEARD_ON_HTTP_PORT } else { HEARD };
        if !timeout(patience, speaks_http(client)).await.unwrap_or(false) {
            return false;
        }
    }
    let answer = answer(denial);
    let say = async {
        client.write_all(answer.as_bytes()).await?;
        client.shutdown().await
    };
    if !timeout(LINGERS, say).await.is_ok_and(|said| said.is_ok()) {
        return false;
    }
    // What is not read when the connection is closed turns its end into a reset, which takes the answer along.
    let mut rest = (&mut *client).take(MOST_READ);
    let _ = timeout(LINGERS, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
    true
}

async fn speaks_http(client: &mut TcpStream) -> bool {
    let mut first = Vec::new();
    loop {
        match classify(&first) {
            Opening::Http => return true,
            Opening::Undecided => {}
            Opening::Tls | Opening::Other => return false,
        }
        match (&mut *client).take(MOST_READ).read_buf(&mut first).await {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
    }
}

fn answer(denial: &Denial) -> String {
    let said = denial.as_told().sentence();
    let text = format!("The network of this sandbox does not let this through: {said}.\n");
    format!(
        "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n{text}",
        text.len()
    )
}
