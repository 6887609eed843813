use super::*;

fn read(head: &str) -> Checked<Head> {
    let name = "a.test".parse().unwrap();
    parse(head.as_bytes(), Authority { name: &name, port: 8080 })
}

fn with(headers: &str) -> Checked<Head> {
    read(&format!("POST / HTTP/1.1\r\nHost: a.test\r\n{headers}\r\n"))
}

#[test]
fn plain_requests_pass() {
    for line in
        ["GET / HTTP/1.1", "OPTIONS * HTTP/1.1", "GET http://a.test/x?y HTTP/1.1", "FROB /%00 HTTP/1.0"]
    {
        for host in ["a.test", "A.Test", "a.test:8080", "  a.test\t"] {
            let head = read(&format!("{line}\r\nHost:{host}\r\nAccept: */*\r\n\r\n"));
            assert_eq!(head, Ok(Head { body: None, upgrade: Upgrade::No }), "{line} {host}");
        }
    }
    assert!(read("GET HTTP://A.test:8080?x HTTP/1.1\r\nHost: a.test\r\n\r\n").is_ok());
    assert_eq!(with("Content-Length: 12\r\n").unwrap().body, Some(Body::Length(12)));
    assert_eq!(with("Content-Length: 0\r\n").unwrap().body, None);
    assert_eq!(with("Transfer-Encoding: Chunked\r\n").unwrap().body, Some(Body::chunked()));
    assert_eq!(with("Connection: keep-alive, TE\r\nX-Empty:\r\n").unwrap().body, None);
}

#[test]
fn another_host_is_refused_wherever_it_stands() {
    for host in [
        "evil.test",
        "a.test.",
        "a.test:80",
        "a.test:",
        "a.test:8080:8080",
        "xa.test",
        "a.test.evil.test",
        "evil.test:8080",
        "a.test@evil.test",
        "a.test/",
        "a.test,evil.test",
        "a.test evil.test",
        "",
    ] {
        assert_eq!(
            read(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")),
            Err(Refusal::OtherHost),
            "{host}"
        );
    }
    for target in [
        "http://evil.test/",
        "http://a.test@evil.test/",
        "http://evil.test?a.test/",
        "http://a.test:80/",
        "http://a.test\\evil.test/",
    ] {
        let head = read(&format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n"));
        assert_eq!(head, Err(Refusal::OtherHost), "{target}");
    }
}

#[test]
fn proxies_are_not_asked_through_us() {
    for line in ["CONNECT evil.test:443 HTTP/1.1", "connect a.test:8080 HTTP/1.1", "CONNECT / HTTP/1.1"] {
        assert_eq!(read(&format!("{line}\r\nHost: a.test\r\n\r\n")), Err(Refusal::ProxyRequest), "{line}");
    }
    for header in ["Proxy-Authorization: Basic eA==", "proxy-connection: keep-alive"] {
        assert_eq!(with(&format!("{header}\r\n")), Err(Refusal::ProxyRequest), "{header}");
    }
    assert_eq!(read("PRI * HTTP/2.0\r\n\r\n"), Err(Refusal::PlainHttp2));
}

#[test]
fn what_can_be_read_in_two_ways_is_refused() {
    for headers in [
        "Host: a.test\r\n",
        "host: evil.test\r\n",
        "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 1, 1\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x1\r\n",
        "Content-Length:\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: \x0bchunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        " Transfer-Encoding: chunked\r\n",
        "X: y\r\n folded\r\n",
        "X: y\rZ: w\r\n",
        "X: y\nHost: evil.test\r\n",
        "X: \0\r\n",
        "no colon\r\n",
        ": x\r\n",
        "X\u{e9}: y\r\n",
        "Connection: Host\r\n",
        "Connection: close, content-length\r\n",
        "Upgrade: websocket\r\nUpgrade: h2c\r\n",
    ] {
        assert_eq!(with(headers), Err(Refusal::MalformedRequest), "{headers:?}");
    }
    for line in [
        "GET /",
        "GET  / HTTP/1.1",
        "GET / HTTP/1.1 ",
        " GET / HTTP/1.1",
        "GET\t/\tHTTP/1.1",
        "GET / HTTP/1.2",
        "GET / http/1.1",
        "GET / HTTP/0.9",
        "GET /\0 HTTP/1.1",
        "GET /\r HTTP/1.1",
        "GET /#x HTTP/1.1",
        "GET * HTTP/1.1",
        "GET a.test/ HTTP/1.1",
        "GET https://a.test/ HTTP/1.1",
        "GET //a.test HTTP/1.1\nHost: evil.test",
        "G(T / HTTP/1.1",
        "",
    ] {
        let head = read(&format!("{line}\r\nHost: a.test\r\n\r\n"));
        assert_eq!(head, Err(Refusal::MalformedRequest), "{line:?}");
    }
    assert_eq!(read("GET / HTTP/1.1\r\n\r\n"), Err(Refusal::MalformedRequest));
    let chunked_at_1_0 = "POST / HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(read(chunked_at_1_0), Err(Refusal::MalformedRequest));
    assert!(with(&"X: y\r\n".repeat(MAX_HEADERS - 1)).is_ok());
    assert_eq!(with(&"X: y\r\n".repeat(MAX_HEADERS)), Err(Refusal::MalformedRequest));
}

#[test]
fn upgrades_are_told_apart() {
    let upgrade =
        |protocol| with(&format!("Connection: Upgrade\r\nUpgrade: {protocol}\r\n")).unwrap().upgrade;
    assert_eq!(upgrade("WebSocket"), Upgrade::WebSocket);
    assert_eq!(upgrade("h2c"), Upgrade::Other);
    assert_eq!(upgrade("websocket, h2c"), Upgrade::Other);
    assert_eq!(upgrade("TLS/1.0"), Upgrade::Other);
}
