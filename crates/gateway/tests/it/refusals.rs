//! Answers that come before a request's body was read reach clients that send all of it first, and bind the server to little.

use sandstorm_control::server::Quota;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{PATIENCE, World, control_settings};

const LARGE: usize = 20 << 20;

/// Sends a whole request before it reads anything, as ordinary clients do, and gives the answer.
async fn sent_whole(stream: &mut TcpStream, head: &str) -> String {
    let head = format!("{head}\r\nHost: x\r\nContent-Length: {LARGE}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let piece = vec![b' '; 1 << 20];
    for _ in 0..LARGE >> 20 {
        stream.write_all(&piece).await.unwrap_or_else(|error| panic!("{head}: a broken pipe: {error}"));
    }
    answer(stream).await
}

async fn answer(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    let hear = async {
        loop {
            let text = String::from_utf8_lossy(&said).into_owned();
            if let Some(head) = text.find("\r\n\r\n") {
                let length = text[..head].lines().find_map(|line| line.strip_prefix("content-length: "));
                if text.len() >= head + 4 + length.map_or(0, |length| length.parse().unwrap()) {
                    return text;
                }
            }
            assert!(stream.read_buf(&mut said).await.unwrap() > 0, "the connection ended: {text}");
        }
    };
    tokio::time::timeout(PATIENCE, hear).await.unwrap()
}

#[tokio::test]
async fn who_sends_all_of_a_body_first_gets_the_answer_and_keeps_the_connection() {
    let world = World::new().await;
    let key = format!("X-API-Key: {}", world.key);
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    for (head, status) in [
        ("POST /v1/runs HTTP/1.1\r\nContent-Type: application/json".to_owned(), 401),
        (format!("POST /v1/runs HTTP/1.1\r\nContent-Type: application/json\r\n{key}"), 413),
        (format!("POST /v1/runs HTTP/1.1\r\nContent-Type: text/plain\r\n{key}"), 415),
        (format!("PATCH /v1/runs HTTP/1.1\r\n{key}"), 405),
        (format!("POST /v1/nowhere HTTP/1.1\r\n{key}"), 404),
        ("GET /foreign/who HTTP/1.1".to_owned(), 401),
        // What a good answer has no use for is read on, too.
        ("GET /healthz HTTP/1.1".to_owned(), 200),
    ] {
        let said = sent_whole(&mut stream, &head).await;
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{head}: {said}");
    }
    let mut admin = TcpStream::connect(world.admin).await.unwrap();
    let said = sent_whole(&mut admin, "POST /v1/admin/keys HTTP/1.1\r\nContent-Type: application/json").await;
    assert!(said.starts_with("HTTP/1.1 401 "), "{said}");
}

#[tokio::test]
async fn who_is_over_a_quota_gets_the_answer_too() {
    let mut rules = control_settings();
    rules.quota = Quota { requests_per_second: Some(1), ..rules.quota };
    let world = World::with(Default::default(), Default::default(), rules).await;
    let head =
        format!("POST /v1/runs HTTP/1.1\r\nContent-Type: application/json\r\nX-API-Key: {}", world.key);
    let mut refused = false;
    for _ in 0..20 {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        while world.call("GET", "/v1/me", "").await.status != 429 {}
        let said = sent_whole(&mut stream, &head).await;
        assert!(said.starts_with("HTTP/1.1 4"), "{said}");
        refused = said.starts_with("HTTP/1.1 429 ") && said.contains("retry-after");
        if refused {
            break;
        }
    }
    assert!(refused, "one request a second");
}

#[tokio::test]
async fn what_is_announced_without_measure_ends_the_connection() {
    let world = World::new().await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head = format!("POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", 1_u64 << 40);
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b' '; 1 << 20]).await.unwrap();
    let said = answer(&mut stream).await;
    assert!(said.starts_with("HTTP/1.1 401 ") && said.contains("connection: close"), "{said}");
    // It is not waited for what never comes.
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("it is closed");
    assert!(rest.is_empty());
}

#[tokio::test]
async fn who_asks_first_is_told_before_anything_is_sent() {
    let world = World::new().await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {LARGE}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let said = answer(&mut stream).await;
    assert!(said.starts_with("HTTP/1.1 401 ") && said.contains("connection: close"), "{said}");
}
