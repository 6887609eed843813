//! Bad input: each kind gets its own status, in the one form of refusals, and costs the server little.

use std::time::{Duration, Instant};

use sandstorm_control::server::{Quota, Settings};
use sandstorm_gateway::{GatewaySettings, ServeLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::world::{PATIENCE, Reply, World, control_settings, eventually};

async fn post(world: &World, path: &str, content_type: &str, body: impl Into<bytes::Bytes>) -> Reply {
    let request =
        world.request("POST", path).header("x-api-key", &world.key).header("content-type", content_type);
    world.send(request, body).await
}

#[tokio::test]
async fn documents_that_are_no_requests() {
    let world = World::new().await;
    let deep = format!(r#"{{"language": "bash", "code": {}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    for bad in [
        "",
        "{",
        "[]",
        "null",
        "\"x\"",
        r#"{"language": "bash"}"#,
        r#"{"language": "bash", "code": "", "code": ""}"#,
        r#"{"language": "bash", "code": "", "env": {"A": "1", "A": "2"}}"#,
        r#"{"language": "bash", "code": "", "privileged": true}"#,
        r#"{"language": "bash", "code": 1}"#,
        r#"{"language": "bash", "code": "", "limits": {"memory": 1e999}}"#,
        r#"{"language": "bash", "code": "", "limits": {"processes": 1.5}}"#,
        r#"{"language": "bash", "code": "", "limits": {"wall": -1}}"#,
        r#"{"language": "bash", "code": "", "limits": {"wall": 99999999999999999999999}}"#,
        r#"{"language": "bash", "code": "", "files": {"../x": ""}}"#,
        r#"{"language": "bash", "code": "", "files": {"a/%2e%2e/x": ""}}"#,
        r#"{"language": "bash", "code": "", "stdin": {"base64": "%%%"}}"#,
        r#"{"language": "", "code": ""}"#,
        r#"{"language": "no-such-language", "code": ""}"#,
        r#"{"language": "bash", "code": "", "args": ["\u0000"]}"#,
        r#"{"language": "bash", "code": "", "network": {"allow": ["10.0.0.1"]}}"#,
        &deep,
    ] {
        let problem = post(&world, "/v1/runs", "application/json", bad.to_owned()).await.refused(400);
        assert_eq!(problem["code"], "invalid_request", "{:.80}", bad);
    }
    post(&world, "/v1/runs", "application/json", &b"{\"language\": \"bash\", \"code\": \"\xff\xfe\"}"[..])
        .await
        .refused(400);
    let named = post(
        &world,
        "/v1/runs",
        "application/json",
        r#"{"language": "bash", "code": "", "limits": {"disk": 1}}"#,
    );
    assert_eq!(named.await.refused(400)["errors"][0]["field"], "limits");
}

#[tokio::test]
async fn bodies_that_are_too_large_or_of_another_kind() {
    let settings = GatewaySettings { json_limit: 100_000, ..GatewaySettings::default() };
    let world = World::with(settings, ServeLimits::default(), control_settings()).await;
    let large = format!(r#"{{"language": "bash", "code": "{}"}}"#, "a".repeat(100_000));
    post(&world, "/v1/runs", "application/json", large).await.refused(413);
    let place = format!("/v1/sandboxes/{}", world.sandbox().await);
    let large = format!(r#"{{"seconds": 60{}}}"#, " ".repeat(70_000));
    post(&world, &format!("{place}/extend"), "application/json", large).await.refused(413);
    // The size counts as it streams, whatever is declared.
    let key = &world.key;
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let chunks = format!("{:x}\r\n{}\r\n", 60_000, "a".repeat(60_000)).repeat(3);
    let said = world.raw(format!("{head}{chunks}0\r\n\r\n").as_bytes()).await;
    assert!(said.starts_with("HTTP/1.1 413"), "{said}");

    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/xml",
    ] {
        post(&world, "/v1/runs", kind, r#"{"language": "bash", "code": ""}"#).await.refused(415);
    }
    let none = world.request("POST", "/v1/runs").header("x-api-key", &world.key);
    world.send(none, "{}").await.refused(415);
    let packed = world.request("POST", "/v1/runs").header("x-api-key", &world.key);
    let packed = packed.header("content-type", "application/json").header("content-encoding", "gzip");
    world.send(packed, "{}").await.refused(415);
    let archive = world.request("PUT", &format!("{place}/files/archive")).header("x-api-key", &world.key);
    world.send(archive.header("content-type", "application/gzip"), "x").await.refused(415);
    let file = world.request("PUT", &format!("{place}/files?path=x")).header("x-api-key", &world.key);
    world.send(file.header("content-type", "multipart/form-data; boundary=x"), "x").await.refused(415);
}

#[tokio::test]
async fn a_file_larger_than_the_disk_is_refused_while_it_streams() {
    let world = World::new().await;
    let made = world
        .call("POST", "/v1/sandboxes", r#"{"enforcement": "best_effort", "limits": {"disk": "1M"}}"#)
        .await;
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let request =
        world.request("PUT", &format!("/v1/sandboxes/{id}/files?path=x")).header("x-api-key", &world.key);
    let reply = world.send(request, vec![0; 3 << 20]).await;
    assert!(matches!(reply.status.as_u16(), 409 | 413 | 507), "{}", reply.text());
    reply.refused(reply.status.as_u16());
    let exists = world.call("GET", &format!("/v1/sandboxes/{id}/files/exists?path=x"), "").await;
    assert_eq!(exists.json()["exists"], false);
}

#[tokio::test]
async fn path_tricks_in_every_parameter() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let tricks =
        ["..", "%2e%2e", "..%2f..", "%00", "sbx_%ff", "%2e%2e%2fx", "a%0d%0ab", "sbx_", "'", "%F0%9F%98%80"];
    for trick in tricks {
        for path in [
            format!("/v1/sandboxes/{trick}"),
            format!("/v1/sandboxes/{trick}/files?path=x"),
            format!("/v1/sandboxes/{id}/execs/{trick}"),
            format!("/v1/sandboxes/{id}/contexts/{trick}"),
            format!("/v1/sandboxes/{id}/ports/{trick}/x"),
            format!("/v1/runs/{trick}"),
        ] {
            let reply = world.call("GET", &path, "").await;
            assert_eq!(reply.status, 404, "{path}: {}", reply.text());
            reply.refused(404);
        }
    }
    for bad in [
        "..",
        "../x",
        "a/../../x",
        "%2e%2e/x",
        "%252e%252e/x",
        "..%5cx",
        "a%00b",
        "",
        "%ff",
        "%",
        &"a/".repeat(3000),
    ] {
        for route in ["files", "files/stat", "files/exists"] {
            let path = format!("/v1/sandboxes/{id}/{route}?path={bad}");
            assert_eq!(
                world.call("GET", &path, "").await.refused(400)["code"],
                "invalid_request",
                "{path:.100}"
            );
        }
    }
    for query in ["path=x&path=y", "path=x&unknown=1", "", "path=x&recursive=maybe"] {
        let path = format!("/v1/sandboxes/{id}/files?{query}");
        world.call("DELETE", &path, "").await.refused(400);
    }
    for query in
        ["limit=0", "limit=-1", "limit=1001", "limit=x", "state=dead", "label=x", "cursor=AAAA", "cursor=%00"]
    {
        world.call("GET", &format!("/v1/sandboxes?{query}"), "").await.refused(400);
    }
    for port in ["0", "65536", "-1", "+80", "080", "8000x"] {
        world.call("GET", &format!("/v1/sandboxes/{id}/ports/{port}/"), "").await.refused(404);
    }
}

#[tokio::test]
async fn routes_and_methods_that_there_are_not() {
    let world = World::new().await;
    for path in ["/", "/v2/runs", "/v1", "/v1/", "/v1//runs", "/v1/runs/", "/V1/runs", "/v1/sandboxes/x/none"]
    {
        world.call("GET", path, "").await.refused(404);
    }
    for method in ["PATCH", "TRACE", "OPTIONS", "PROPFIND", "DELETE"] {
        let reply = world.call(method, "/v1/runs", "").await;
        reply.refused(405);
        let allowed = reply.headers["allow"].to_str().unwrap();
        assert!(allowed.contains("GET") && allowed.contains("POST"), "{allowed}");
    }
}

#[tokio::test]
async fn who_sends_slowly_is_not_waited_for() {
    let settings = GatewaySettings { body_pause: Duration::from_secs(1), ..GatewaySettings::default() };
    let limits = ServeLimits { head_time: Duration::from_secs(2), ..ServeLimits::default() };
    let world = World::with(settings, limits, control_settings()).await;
    let key = &world.key;

    let mut head = TcpStream::connect(world.address).await.unwrap();
    head.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nX-").await.unwrap();
    let mut said = Vec::new();
    tokio::time::timeout(PATIENCE, head.read_to_end(&mut said)).await.unwrap().unwrap();

    let start = format!(
        "POST /v1/runs HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
    );
    let said = world.raw(start.as_bytes()).await;
    assert!(said.starts_with("HTTP/1.1 408") && said.contains("\"code\":\"timeout\""), "{said}");

    let id = world.sandbox().await;
    let start = format!(
        "PUT /v1/sandboxes/{id}/files?path=slow HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\nContent-Length: 100\r\n\r\nab"
    );
    let said = world.raw(start.as_bytes()).await;
    assert!(said.starts_with("HTTP/1.1 408"), "{said}");
    let exists = world.call("GET", &format!("/v1/sandboxes/{id}/files/exists?path=slow"), "").await;
    assert_eq!(exists.json()["exists"], false);
    // A connection on which nothing is asked is closed too.
    let mut idle = TcpStream::connect(world.address).await.unwrap();
    let mut nothing = Vec::new();
    tokio::time::timeout(PATIENCE, idle.read_to_end(&mut nothing)).await.unwrap().unwrap();
}

/// Sends a body a byte at a time, slower than any pause that is too long, and gives how the answer begins.
async fn trickle(world: &World, head: &str, bytes: usize) -> String {
    trickle_of(world, head, "x", bytes, "").await
}

/// The same for pieces, and what comes after them.
async fn trickle_of(world: &World, head: &str, piece: &str, count: usize, end: &str) -> String {
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut answer, mut body) = stream.split();
    let send = async {
        for _ in 0..count {
            tokio::time::sleep(Duration::from_millis(300)).await;
            if body.write_all(piece.as_bytes()).await.is_err() {
                break;
            }
        }
        let _ = body.write_all(end.as_bytes()).await;
        std::future::pending::<()>().await;
    };
    let mut said = Vec::new();
    let hear = async {
        while !said.windows(4).any(|four| four == b"\r\n\r\n") {
            if !matches!(answer.read_buf(&mut said).await, Ok(1..)) {
                break;
            }
        }
    };
    tokio::select! {
        () = send => {}
        heard = tokio::time::timeout(PATIENCE, hear) => heard.unwrap(),
    }
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn who_trickles_is_waited_for_only_where_a_body_may_last() {
    let settings = GatewaySettings { body_time: Duration::from_secs(3), ..GatewaySettings::default() };
    let world = World::with(settings, ServeLimits::default(), control_settings()).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    world.provider.listen(listener.local_addr().unwrap());
    let count = axum::Router::new().fallback(|body: bytes::Bytes| async move { body.len().to_string() });
    let work = async move { axum::serve(listener, count).await.unwrap() };
    let _program = AbortOnDropHandle::new(TaskTracker::new().spawn(work));
    let (id, key) = (world.sandbox().await, &world.key);
    let head = |method: &str, path: &str, length: usize| {
        format!(
            "{method} /v1/sandboxes/{id}/{path} HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    let (file, port) = (head("PUT", "files?path=slow", 1000), head("POST", "ports/8000/", 20));
    // To the port it takes twice as long as a body may.
    let (file, port) = tokio::join!(trickle(&world, &file, 1000), trickle(&world, &port, 20));
    assert!(file.starts_with("HTTP/1.1 408"), "{file}");
    assert!(port.starts_with("HTTP/1.1 200"), "{port}");
}

#[tokio::test]
async fn input_for_a_program_may_last_in_one_of_the_tenants_streams() {
    let settings = GatewaySettings { body_time: Duration::from_secs(3), ..GatewaySettings::default() };
    let rules = control_settings();
    let rules = Settings { quota: Quota { open_streams: 1, ..rules.quota }, ..rules };
    let world = World::with(settings, ServeLimits::default(), rules).await;
    let (id, key) = (world.sandbox().await, &world.key);
    let cat = r#"{"command": ["cat"], "background": true, "stdin_stream": true}"#;
    let started = world.call("POST", &format!("/v1/sandboxes/{id}/exec"), cat).await;
    let at = started.headers["location"].to_str().unwrap().to_owned();
    let head =
        |length: &str| format!("POST {at}/stdin HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\n{length}\r\n\r\n");
    // Twice as long as a body may take that says how long it is. While it lasts, there is no other stream.
    let (endless, known) = (head("Transfer-Encoding: chunked"), head("Content-Length: 1000"));
    let others = async {
        let taken = || async { world.control.open_stream(&world.control.developer()).is_err() };
        eventually("the input takes a stream's place", taken).await;
        let short = world.request("POST", &format!("{at}/stdin")).header("x-api-key", key);
        assert_eq!(world.send(short, "y").await.status, 204, "a short one is none");
        trickle(&world, &known, 1000).await
    };
    let (endless, known) = tokio::join!(trickle_of(&world, &endless, "1\r\nx\r\n", 20, "0\r\n\r\n"), others);
    assert!(endless.starts_with("HTTP/1.1 204"), "{endless}");
    assert!(known.starts_with("HTTP/1.1 408"), "{known}");
    world.control.open_stream(&world.control.developer()).expect("the place is free again");
}

#[tokio::test]
async fn bodies_that_never_end_leave_room_for_others() {
    let world = World::new().await;
    let key = &world.key;
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\nContent-Type: application/json\r\nContent-Length: 15000000\r\n\r\n"
    );
    let part = [head.as_bytes(), &vec![b' '; 14_000_000]].concat();
    let mut open = Vec::new();
    let refused = loop {
        assert!(open.len() < 40, "the server keeps whatever it is sent");
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        // A refusal may come before all of it was sent.
        let _ = stream.write_all(&part).await;
        let mut said = vec![0; 4096];
        match tokio::time::timeout(Duration::from_secs(1), stream.read(&mut said)).await {
            Ok(length) => break String::from_utf8_lossy(&said[..length.unwrap()]).into_owned(),
            Err(_) => open.push(stream),
        }
    };
    assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("retry-after"), "{refused}");
    assert!(open.len() > 4, "one tenant has room for more than {} bodies", open.len());
    drop(open);
    let whole = format!(r#"{{"language": "bash", "code": "{}"}}"#, " ".repeat(10_000_000));
    let began = Instant::now();
    while post(&world, "/v1/runs", "application/json", whole.clone()).await.status == 429 {
        assert!(began.elapsed() < PATIENCE, "the room does not come back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn connections_are_counted() {
    let limits = ServeLimits { connections_per_peer: 3, ..ServeLimits::default() };
    let world = World::with(GatewaySettings::default(), limits, control_settings()).await;
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.unwrap();
        open.push(stream);
    }
    let mut fourth = TcpStream::connect(world.address).await.unwrap();
    let mut said = Vec::new();
    let _ = fourth.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let _ = tokio::time::timeout(PATIENCE, fourth.read_to_end(&mut said)).await.unwrap();
    assert!(said.is_empty());
    open.clear();
    eventually("there is room again", || async {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.is_ok_and(|_| &first == b"HTTP/1.1 200")
    })
    .await;
}

#[tokio::test]
async fn heads_are_bounded() {
    let world = World::new().await;
    let long = world.request("GET", "/healthz").header("x-long", "a".repeat(70 << 10));
    assert_eq!(world.send(long, "").await.refused(431)["code"], "invalid_request");
    let mut many = world.request("GET", "/healthz");
    for number in 0..200 {
        many = many.header(format!("x-{number}"), "a");
    }
    world.send(many, "").await.refused(431);
    let address = "a".repeat(70 << 10);
    let said = world.raw(format!("GET /healthz?{address} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await;
    assert!(said.starts_with("HTTP/1.1 431") && said.contains("application/problem+json"), "{said}");
    let said = world.raw(b"GET / HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n").await;
    assert!(said.starts_with("HTTP/1.1 400") && said.contains("application/problem+json"), "{said}");
}

#[tokio::test]
async fn a_panic_is_one_answer_and_no_more() {
    let world = World::new().await;
    let reply = world.call("GET", "/foreign/panic", "").await;
    let problem = reply.refused(500);
    assert_eq!(problem["code"], "internal");
    assert!(!reply.text().contains("secret"));
    assert_eq!(world.call("GET", "/v1/me", "").await.status, 200);
}

#[tokio::test]
async fn keys_in_odd_places_are_no_keys() {
    let world = World::new().await;
    let key = &world.key;
    let bearer = format!("Bearer {key}");
    let mut bodies = std::collections::BTreeSet::new();
    let long = "a".repeat(20 << 10);
    for headers in [
        vec![("authorization", bearer.as_str()), ("authorization", bearer.as_str())],
        vec![("authorization", bearer.as_str()), ("x-api-key", key)],
        vec![("x-api-key", key), ("x-api-key", key)],
        vec![("authorization", key)],
        vec![("authorization", &long)],
        vec![("cookie", &bearer)],
    ] {
        let mut request = world.request("GET", "/v1/me").header("x-request-id", "same");
        for (name, value) in &headers {
            request = request.header(*name, *value);
        }
        bodies.insert(world.send(request, "").await.refused(401).to_string());
    }
    for query in [format!("api_key={key}"), format!("access_token={key}")] {
        let request = world.request("GET", &format!("/v1/me?{query}")).header("x-request-id", "same");
        bodies.insert(world.send(request.header("x-api-key", key), "").await.refused(401).to_string());
    }
    let tab = format!(
        "GET /v1/me HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer\t{key}\r\n\r\n"
    );
    assert!(world.raw(tab.as_bytes()).await.starts_with("HTTP/1.1 401"));
    assert_eq!(bodies.len(), 1, "{bodies:?}");
}
