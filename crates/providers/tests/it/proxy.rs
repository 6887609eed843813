//! A proxy between an adapter and its server that has bad days.
//!
//! It reads the head of one request on each connection and asks a rule what to do with it. What goes through is one
//! request and its answer: both sides are told to close after it, so that the rule sees every request.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// What becomes of a request.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    Pass,
    /// It goes through after a while.
    Late(Duration),
    /// These bytes, and the end of the connection.
    Answer(Vec<u8>),
    /// These bytes, and then the last piece again and again.
    Endless(Vec<u8>, Vec<u8>),
    /// Nothing, ever.
    Hang,
    /// The connection is reset before anybody hears of the request.
    Reset,
    /// The request is carried out, and its answer is lost.
    LoseAnswer,
    /// So many bytes of the answer come through, then the connection is reset.
    CutAfter(usize),
}

/// What happens to connections that are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weather {
    Fine,
    /// All that were open at this moment are reset.
    Broken(u64),
    /// Nothing moves any more, and nobody is told.
    Frozen,
}

type Rule = Arc<dyn Fn(&str) -> Fault + Send + Sync>;

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    rule: Arc<Mutex<Rule>>,
    weather: watch::Sender<Weather>,
    _accepting: AbortOnDropHandle<()>,
}

impl Proxy {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let rule: Arc<Mutex<Rule>> = Arc::new(Mutex::new(Arc::new(|_: &str| Fault::Pass)));
        let weather = watch::Sender::new(Weather::Fine);
        let (rules, skies) = (Arc::clone(&rule), weather.clone());
        let work = async move {
            let connections = TaskTracker::new();
            while let Ok((client, _)) = listener.accept().await {
                let (rule, weather) = (Arc::clone(&rules), skies.subscribe());
                connections.spawn(async move {
                    let _ = serve(client, server, rule, weather).await;
                });
            }
        };
        let accepting = AbortOnDropHandle::new(TaskTracker::new().spawn(work));
        Self { address, rule, weather, _accepting: accepting }
    }

    /// From now on each request is dealt with as the rule says, by its first line.
    pub(crate) fn set(&self, rule: impl Fn(&str) -> Fault + Send + Sync + 'static) {
        *self.rule.lock().unwrap() = Arc::new(rule);
    }

    pub(crate) fn heal(&self) {
        self.set(|_| Fault::Pass);
    }

    /// Resets every connection that is open.
    pub(crate) fn break_all(&self) {
        self.weather.send_modify(|weather| {
            *weather = match *weather {
                Weather::Broken(times) => Weather::Broken(times + 1),
                _ => Weather::Broken(0),
            };
        });
    }

    /// Lets nothing through any more on connections that are open.
    pub(crate) fn freeze(&self) {
        self.weather.send_replace(Weather::Frozen);
    }
}

async fn serve(
    mut client: TcpStream,
    server: SocketAddr,
    rule: Arc<Mutex<Rule>>,
    mut weather: watch::Receiver<Weather>,
) -> std::io::Result<()> {
    weather.mark_unchanged();
    let Some((line, request)) = head(&mut client).await? else { return Ok(()) };
    let fault = {
        let rule = Arc::clone(&rule.lock().unwrap());
        rule(&line)
    };
    let dealing = async {
        match fault {
            Fault::Pass => pass(&mut client, server, &request).await,
            Fault::Late(span) => {
                tokio::time::sleep(span).await;
                pass(&mut client, server, &request).await
            }
            Fault::Answer(bytes) => {
                client.write_all(&bytes).await?;
                client.shutdown().await?;
                drain(&mut client).await
            }
            Fault::Endless(beginning, piece) => {
                client.write_all(&beginning).await?;
                loop {
                    client.write_all(&piece).await?;
                }
            }
            Fault::Hang => std::future::pending().await,
            Fault::Reset => reset(&client),
            Fault::LoseAnswer => {
                let mut upstream = TcpStream::connect(server).await?;
                upstream.write_all(&request).await?;
                let (mut from_client, _) = client.split();
                let (mut from_server, mut to_server) = upstream.split();
                let mut answer = Vec::new();
                tokio::select! {
                    _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
                    _ = from_server.read_to_end(&mut answer) => {}
                }
                reset(&client)
            }
            Fault::CutAfter(most) => {
                let mut upstream = TcpStream::connect(server).await?;
                upstream.write_all(&request).await?;
                let (mut from_client, mut to_client) = client.split();
                let (from_server, mut to_server) = upstream.split();
                let mut part = from_server.take(most as u64);
                tokio::select! {
                    _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
                    _ = tokio::io::copy(&mut part, &mut to_client) => {}
                }
                // What was written has to arrive before the end does.
                tokio::time::sleep(Duration::from_millis(100)).await;
                reset(&client)
            }
        }
    };
    let changed = async {
        let _ = weather.changed().await;
        *weather.borrow()
    };
    tokio::select! {
        done = dealing => return done,
        now = changed => {
            if now == Weather::Frozen {
                std::future::pending::<()>().await;
            }
        }
    }
    reset(&client)
}

/// Closing it is a reset from here on.
fn reset(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_zero_linger()
}

async fn pass(client: &mut TcpStream, server: SocketAddr, request: &[u8]) -> std::io::Result<()> {
    let mut upstream = TcpStream::connect(server).await?;
    upstream.write_all(request).await?;
    copy_bidirectional(client, &mut upstream).await.map(drop)
}

/// Reads what is left of a request, so that closing does not reset the answer away.
async fn drain(client: &mut TcpStream) -> std::io::Result<()> {
    let mut rest = vec![0; 16 << 10];
    while client.read(&mut rest).await? > 0 {}
    Ok(())
}

/// The first line of a request, and what was read of the request, changed to be the last one of its connection.
async fn head(client: &mut TcpStream) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
        if client.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    }
    let end = bytes.windows(2).position(|two| two == b"\r\n").unwrap();
    let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut request = bytes[..end].to_vec();
    request.extend_from_slice(b"\r\nconnection: close");
    request.extend_from_slice(&bytes[end..]);
    Ok(Some((line, request)))
}

/// An answer as a server gives it.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> Fault {
    let length = body.len();
    Fault::Answer(
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n{body}")
            .into_bytes(),
    )
}
