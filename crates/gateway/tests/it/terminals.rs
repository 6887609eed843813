//! Terminals over WebSocket.

use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use sandstorm_types::TenantId;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::world::{PATIENCE, World, eventually, promised};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

async fn open(world: &World, path: &str, headers: &[(&'static str, &str)]) -> Result<Socket, u16> {
    let mut request = format!("ws://{}{path}", world.address).into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    match connect_async(request).await {
        Ok((socket, _)) => Ok(socket),
        Err(Error::Http(response)) => Err(response.status().as_u16()),
        Err(other) => panic!("{other}"),
    }
}

/// Everything until the server closes: bytes of the terminal, then control texts.
async fn rest(socket: &mut Socket) -> (Vec<u8>, Vec<String>) {
    let (mut bytes, mut texts) = (Vec::new(), Vec::new());
    while let Ok(Some(Ok(message))) = tokio::time::timeout(PATIENCE, socket.next()).await {
        match message {
            Message::Binary(piece) => bytes.extend_from_slice(&piece),
            Message::Text(text) => texts.push(text.to_string()),
            Message::Close(frame) => {
                texts.push(frame.map_or(String::new(), |frame| format!("closed: {}", frame.reason)));
                break;
            }
            _ => {}
        }
    }
    (bytes, texts)
}

/// Reads the terminal until it shows this.
async fn see(socket: &mut Socket, text: &str) {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(text) {
        match tokio::time::timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap() {
            Message::Binary(piece) => seen.extend_from_slice(&piece),
            Message::Ping(_) => {}
            other => panic!("{other:?} after {:?}", String::from_utf8_lossy(&seen)),
        }
    }
}

#[tokio::test]
async fn bytes_go_both_ways_and_the_end_is_told() {
    let world = World::new().await;
    let path = format!("/v1/sandboxes/{}/pty?rows=30&cols=100&cmd=stty%20size;%20cat", world.sandbox().await);
    let mut socket = open(&world, &path, &[("x-api-key", &world.key)]).await.unwrap();
    see(&mut socket, "30 100").await;
    socket.send(Message::text(r#"{"resize": {"rows": 40, "cols": 120}}"#)).await.unwrap();
    socket.send(Message::binary(&b"typed\n"[..])).await.unwrap();
    see(&mut socket, "typed").await;

    let path = format!("/v1/sandboxes/{}/pty?cmd=exit%203", world.sandbox().await);
    let mut socket = open(&world, &path, &[("x-api-key", &world.key)]).await.unwrap();
    let (_, texts) = rest(&mut socket).await;
    assert!(texts[0].contains(r#""exit_code":3"#), "{texts:?}");
    assert_eq!(texts[1], "closed: the program ended");
}

#[tokio::test]
async fn who_may_not_gets_no_socket() {
    let world = World::new().await;
    let path = format!("/v1/sandboxes/{}/pty?cmd=cat", world.sandbox().await);
    let key = ("x-api-key", world.key.as_str());
    assert_eq!(open(&world, &path, &[]).await.err(), Some(401));
    assert_eq!(open(&world, &path, &[("x-api-key", "ss_wrong")]).await.err(), Some(401));
    assert_eq!(open(&world, &path, &[("x-api-key", &world.stranger)]).await.err(), Some(404));
    for origin in ["https://evil.test", "null"] {
        assert_eq!(open(&world, &path, &[key, ("origin", origin)]).await.err(), Some(403), "{origin}");
    }
    let files_only = world.make_key(TenantId::LOCAL, "files", None).await;
    assert_eq!(open(&world, &path, &[("x-api-key", &files_only)]).await.err(), Some(403));
    assert_eq!(open(&world, &format!("{path}&rows=0"), &[key]).await.err(), Some(400));
    world.call("GET", &path, "").await.refused(426);
    let running = path.replace("/pty?cmd=cat", "/execs?running=true");
    assert_eq!(world.call("GET", &running, "").await.json()["items"], serde_json::json!([]));
}

#[tokio::test]
async fn a_revoked_key_closes_its_terminal_within_about_a_second() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let path = format!("/v1/sandboxes/{sandbox}/pty?cmd=cat");
    promised(Duration::from_millis(2500), async || {
        let key = world.make_key(TenantId::LOCAL, "sandbox", None).await;
        let mut socket = open(&world, &path, &[("x-api-key", &key)]).await.unwrap();
        let id = key.split('_').nth(1).unwrap();
        world.control.revoke_key(&world.control.developer(), id).await.unwrap();
        let revoked = Instant::now();
        let (_, texts) = rest(&mut socket).await;
        assert_eq!(texts, ["closed: the key is no longer good"]);
        revoked.elapsed()
    })
    .await;
    let running = format!("/v1/sandboxes/{sandbox}/execs?running=true");
    eventually("the program ends", || async {
        world.call("GET", &running, "").await.json()["items"] == serde_json::json!([])
    })
    .await;
}

#[tokio::test]
async fn messages_that_make_no_sense_end_it() {
    let world = World::new().await;
    let path = format!("/v1/sandboxes/{}/pty?cmd=cat", world.sandbox().await);
    let key = ("x-api-key", world.key.as_str());
    for bad in ["", "{", r#"{"resize": {"rows": 0, "cols": 1}}"#, r#"{"resize": [1, 2]}"#, r#"{"other": 1}"#]
    {
        let mut socket = open(&world, &path, &[key]).await.unwrap();
        socket.send(Message::text(bad)).await.unwrap();
        let (_, texts) = rest(&mut socket).await;
        assert_eq!(texts, ["closed: a text message is not a control message"], "{bad}");
    }
    let mut socket = open(&world, &path, &[key]).await.unwrap();
    let _ = socket.send(Message::binary(vec![b'a'; 1 << 20])).await;
    rest(&mut socket).await;
    assert_eq!(world.call("GET", "/v1/me", "").await.status, 200);
}
