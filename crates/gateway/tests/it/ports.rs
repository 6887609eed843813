//! The way to ports inside a sandbox, with a hostile program behind it.

use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::world::{PATIENCE, World};

/// A program that answers every connection with these bytes, and tells what it was sent.
async fn program(
    answer: &'static [u8],
) -> (SocketAddr, tokio::sync::mpsc::Receiver<String>, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (told, heard) = tokio::sync::mpsc::channel(16);
    let work = async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut seen = Vec::new();
            let mut piece = [0; 4096];
            while !seen.windows(4).any(|four| four == b"\r\n\r\n") {
                match stream.read(&mut piece).await {
                    Ok(length @ 1..) => seen.extend_from_slice(&piece[..length]),
                    _ => break,
                }
            }
            let _ = stream.write_all(answer).await;
            let _ = told.send(String::from_utf8_lossy(&seen).into_owned()).await;
        }
    };
    (address, heard, AbortOnDropHandle::new(TaskTracker::new().spawn(work)))
}

#[tokio::test]
async fn nothing_of_ours_goes_in_and_nothing_of_theirs_acts_on_us() {
    let world = World::new().await;
    let answer = b"HTTP/1.1 302 Found\r\nContent-Length: 4\r\nSet-Cookie: sid=1; Domain=test; Path=/\r\n\
        Location: /login\r\nStrict-Transport-Security: max-age=9\r\nAccess-Control-Allow-Origin: *\r\n\
        X-Request-Id: forged\r\nContent-Type: text/html\r\n\r\nbody";
    let (address, mut heard, _program) = program(answer).await;
    world.provider.listen(address);
    let prefix = format!("/v1/sandboxes/{}/ports/8000", world.sandbox().await);
    let request = world.request("GET", &format!("{prefix}/a%2Fb?token=x&access_token=y"));
    let request = request.header("authorization", format!("Bearer {}", world.key));
    let request = request.header("cookie", "session=ours").header("x-forwarded-for", "192.0.2.1");
    let reply = world.send(request, "").await;
    assert_eq!((reply.status.as_u16(), reply.text().as_str()), (302, "body"));
    let seen = heard.recv().await.unwrap();
    assert!(seen.starts_with("GET /a%2Fb?token=x&access_token=y HTTP/1.1\r\n"), "{seen}");
    assert!(seen.contains("host: localhost:8000\r\n"), "{seen}");
    for secret in [world.key.as_str(), "authorization", "session=ours", "192.0.2.1", "x-api-key"] {
        assert!(!seen.to_ascii_lowercase().contains(secret), "{secret} in {seen}");
    }
    assert_eq!(reply.headers["location"], format!("{prefix}/login"));
    for gone in ["strict-transport-security", "access-control-allow-origin"] {
        assert!(!reply.headers.contains_key(gone), "{gone}");
    }
    assert_ne!(reply.headers["x-request-id"], "forged");
    let cookie = reply.headers["set-cookie"].to_str().unwrap();
    assert!(!cookie.contains("Domain") && cookie.contains(&format!("Path={prefix}/")), "{cookie}");
    let policy = reply.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("sandbox") && !policy.contains("allow-same-origin"), "{policy}");
}

#[tokio::test]
async fn answers_that_are_no_http_are_our_502() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let path = format!("/v1/sandboxes/{id}/ports/8000/");
    world.call("GET", &path, "").await.refused(502);
    for answer in [
        &b"nonsense\r\n\r\n"[..],
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ] {
        let (address, _heard, _program) = program(answer).await;
        world.provider.listen(address);
        assert_eq!(world.call("GET", &path, "").await.refused(502)["code"], "provider");
    }
    let endless: &'static [u8] =
        Box::leak(format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(1 << 20)).into_bytes().into());
    let (address, _heard, _program) = program(endless).await;
    world.provider.listen(address);
    world.call("GET", &path, "").await.refused(502);
    // A second answer behind the first belongs to nobody.
    let two =
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled";
    let (address, _heard, _program) = program(two).await;
    world.provider.listen(address);
    let key = &world.key;
    let twice = format!("GET {path} HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\n\r\n").repeat(2);
    let said = world.raw(twice.as_bytes()).await;
    assert!(!said.contains("smuggled"), "{said}");
}

#[tokio::test]
async fn large_bodies_stream_both_ways() {
    let world = World::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    world.provider.listen(listener.local_addr().unwrap());
    let echo = axum::Router::new().fallback(|body: axum::body::Body| async { body });
    let work = async move { axum::serve(listener, echo).await.unwrap() };
    let _server = AbortOnDropHandle::new(TaskTracker::new().spawn(work));
    let path = format!("/v1/sandboxes/{}/ports/8000/echo", world.sandbox().await);
    let request = world.request("POST", &path).header("x-api-key", &world.key);
    let sent = vec![b'x'; 20 << 20];
    let reply = world.send(request, sent.clone()).await;
    assert!(reply.status == 200 && reply.body == sent, "{} {}", reply.status, reply.body.len());
}

#[tokio::test]
async fn websockets_pass_and_end_with_their_key() {
    let world = World::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    world.provider.listen(listener.local_addr().unwrap());
    let work = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
            while let Some(Ok(message)) = socket.next().await {
                if message.is_text() && socket.send(message).await.is_err() {
                    break;
                }
            }
        }
    };
    let _server = AbortOnDropHandle::new(TaskTracker::new().spawn(work));
    let key = world.make_key(sandstorm_types::TenantId::LOCAL, "sandbox", None).await;
    let address = format!("ws://{}/v1/sandboxes/{}/ports/8000/ws", world.address, world.sandbox().await);
    let refused = tokio_tungstenite::connect_async(&address).await.unwrap_err();
    assert!(refused.to_string().contains("401"), "{refused}");
    let mut request = address.into_client_request().unwrap();
    request.headers_mut().insert("x-api-key", key.parse().unwrap());
    let (mut socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
    socket.send(Message::text("hello")).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("hello"));
    let id = key.split('_').nth(1).unwrap();
    world.control.revoke_key(&world.control.developer(), id).await.unwrap();
    let over = tokio::time::timeout(PATIENCE, socket.next()).await.unwrap();
    assert!(!matches!(over, Some(Ok(Message::Text(_)))));
}

#[tokio::test]
async fn a_tunnel_carries_whatever_is_spoken() {
    let world = World::new().await;
    let (address, mut heard, _program) = program(b"\x00\xffno http\n").await;
    let path = format!("/v1/sandboxes/{}/tunnel/8000", world.sandbox().await);
    let ask = |key: &str, path: &str, upgrade: &str| {
        let host = world.address;
        format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {key}\r\n{upgrade}\r\n")
    };
    let tcp = "connection: Upgrade\r\nupgrade: tcp\r\n";
    let status = async |request: String| {
        let said = world.raw(request.as_bytes()).await;
        said.split(' ').nth(1).map(str::to_owned).unwrap_or_default()
    };
    assert_eq!(status(ask(&world.key, &path, "connection: close\r\n")).await, "426");
    assert_eq!(status(ask(&world.stranger, &path, tcp)).await, "404");
    assert_eq!(status(ask("ss_x_y", &path, tcp)).await, "401");
    assert_eq!(status(ask(&world.key, &path, tcp)).await, "400", "nothing listens there");
    world.provider.listen(address);
    let mut stream = tokio::net::TcpStream::connect(world.address).await.unwrap();
    stream.write_all(ask(&world.key, &path, tcp).as_bytes()).await.unwrap();
    let mut said = Vec::new();
    while !said.windows(4).any(|four| four == b"\r\n\r\n") {
        assert_ne!(stream.read_buf(&mut said).await.unwrap(), 0, "{:?}", String::from_utf8_lossy(&said));
    }
    assert!(said.starts_with(b"HTTP/1.1 101 "), "{:?}", String::from_utf8_lossy(&said));
    stream.write_all(b"EHLO\r\n\r\n").await.unwrap();
    assert_eq!(heard.recv().await.unwrap(), "EHLO\r\n\r\n");
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await.unwrap().unwrap();
    assert!(said.ends_with(b"\x00\xffno http\n"));
}
