//! Requests that a proxy before us could read otherwise: refused, and what follows them is never answered.

use crate::world::World;

#[tokio::test]
async fn the_second_request_is_never_answered() {
    let world = World::new().await;
    let smuggled = "GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n";
    let head = |fields: &str| format!("POST /healthz HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
    for (name, attack) in [
        (
            "CL.TE",
            format!("{}0\r\n\r\n{smuggled}", head("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n")),
        ),
        (
            "TE.CL",
            format!("{}0\r\n\r\n{smuggled}", head("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n")),
        ),
        (
            "TE.TE",
            format!("{}0\r\n\r\n{smuggled}", head("Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n")),
        ),
        ("TE list", format!("{}0\r\n\r\n{smuggled}", head("Transfer-Encoding: identity, chunked\r\n"))),
        ("TE vertical tab", format!("{}0\r\n\r\n{smuggled}", head("Transfer-Encoding: \x0bchunked\r\n"))),
        ("TE space", format!("{}0\r\n\r\n{smuggled}", head("Transfer-Encoding : chunked\r\n"))),
        ("two lengths", format!("{}abcd{smuggled}", head("Content-Length: 4\r\nContent-Length: 0\r\n"))),
        ("same lengths", format!("{}abcd{smuggled}", head("Content-Length: 4\r\nContent-Length: 4\r\n"))),
        ("length list", format!("{}abcd{smuggled}", head("Content-Length: 4, 4\r\n"))),
        ("signed length", format!("{}abcd{smuggled}", head("Content-Length: +4\r\n"))),
        ("folded", format!("{}{smuggled}", head("X: a\r\n b: c\r\n"))),
        ("bare LF", format!("POST /healthz HTTP/1.1\nHost: x\n\n{smuggled}")),
        ("bare LF in head", format!("{}{smuggled}", head("X: a\nContent-Length: 9\r\n"))),
        ("bare CR", format!("{}{smuggled}", head("X: a\rContent-Length: 9\r\n"))),
        ("NUL", format!("{}{smuggled}", head("X: a\0b\r\n"))),
        ("chunk LF", format!("{}0\n\n{smuggled}", head("Transfer-Encoding: chunked\r\n"))),
        ("chunk size", format!("{}0x1\r\na\r\n0\r\n\r\n{smuggled}", head("Transfer-Encoding: chunked\r\n"))),
        (
            "chunk extension",
            format!(
                "{}1;{}\r\na\r\n0\r\n\r\n{smuggled}",
                head("Transfer-Encoding: chunked\r\n"),
                "x".repeat(9000)
            ),
        ),
        (
            "HTTP/1.0 chunked",
            format!("POST /healthz HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"),
        ),
        ("leading line", format!("\r\n\r\n{smuggled}")),
        (
            "two hosts",
            format!("GET /v1/me HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n{smuggled}"),
        ),
        (
            "other host",
            format!("GET http://a/v1/me HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n{smuggled}"),
        ),
    ] {
        let said = world.raw(attack.as_bytes()).await;
        assert!(said.starts_with("HTTP/1.1 4"), "{name}: {said}");
        assert!(!said.contains("\"openapi\""), "{name}: {said:.300}");
    }
    // The same two requests, written properly, are both answered.
    let honest = format!("{}abcd{smuggled}", head("Content-Length: 4\r\n"));
    let said = world.raw(honest.as_bytes()).await;
    assert!(said.starts_with("HTTP/1.1 405") && said.contains("\"openapi\""), "{said:.300}");
}
