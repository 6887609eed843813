//! A client's walk over every kind of route that the provider in memory can serve.

use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::world::{PATIENCE, World, eventually};

/// The events of a finished stream: name, id, data.
fn events(text: &str) -> Vec<(String, String, Value)> {
    let block = |block: &str| {
        let line = |name: &str| {
            let found = block.lines().find_map(|line| line.strip_prefix(name));
            found.map_or(String::new(), |value| value.trim().to_owned())
        };
        (line("event:"), line("id:"), serde_json::from_str(&line("data:")).unwrap_or(Value::Null))
    };
    text.split("\n\n").filter(|block| block.contains("data:")).map(block).collect()
}

#[tokio::test]
async fn runs_answer_with_results_or_events() {
    let world = World::new().await;
    let run = r#"{"language": "bash", "code": "hello", "enforcement": "best_effort"}"#;
    let done = world.call("POST", "/v1/runs", run).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let result = done.json();
    assert_eq!((&result["status"], &result["stdout"]), (&json!("ok"), &json!("hello")));
    let id = result["id"].as_str().unwrap();
    assert_eq!(done.headers["location"], format!("/v1/runs/{id}"));
    let view = world.call("GET", &format!("/v1/runs/{id}"), "").await.json();
    assert_eq!((&view["id"], &view["result"]["stdout"]), (&json!(id), &json!("hello")));
    let again = world.call("POST", &format!("/v1/runs/{id}/cancel"), "").await.json();
    assert_eq!(again["status"], "ok");

    let request = world.request("POST", "/v1/runs").header("x-api-key", &world.key);
    let request = request.header("accept", "text/event-stream").header("content-type", "application/json");
    let stream = world.send(request, run).await;
    assert_eq!(stream.headers["content-type"], "text/event-stream");
    let events = events(&stream.text());
    let names: Vec<_> = events.iter().map(|(name, _, _)| name.as_str()).collect();
    assert_eq!((names.first(), names.last()), (Some(&"start"), Some(&"end")), "{names:?}");
    assert!(names.contains(&"stdout"));
    for (place, (_, id, data)) in events.iter().enumerate() {
        assert_eq!((id.as_str(), &data["seq"]), (place.to_string().as_str(), &json!(place)));
    }

    let first = world.call("GET", "/v1/runs?limit=1", "").await.json();
    assert_eq!(first["items"].as_array().unwrap().len(), 1);
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = world.call("GET", &format!("/v1/runs?limit=1&cursor={cursor}"), "").await.json();
    assert_eq!(second["items"][0]["id"], id);
    let foreign = world
        .request("GET", &format!("/v1/runs?limit=1&cursor={cursor}"))
        .header("x-api-key", &world.stranger);
    world.send(foreign, "").await.refused(400);
}

#[tokio::test]
async fn sandboxes_live_and_end() {
    let world = World::new().await;
    let wanted = json!({
        "enforcement": "best_effort", "labels": {"team": "a"}, "lifetime": "10m", "on_end": "delete",
        "env": {"SECRET": "value"},
    });
    let made = world.call("POST", "/v1/sandboxes", &wanted.to_string()).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let sandbox = made.json();
    let id = sandbox["id"].as_str().unwrap().to_owned();
    let place = format!("/v1/sandboxes/{id}");
    assert_eq!(made.headers["location"], place);
    assert_eq!((&sandbox["state"], &sandbox["lifetime"]), (&json!("ready"), &json!(600)));
    assert!(!made.text().contains("SECRET"), "variables are not shown");

    let listed = world.call("GET", "/v1/sandboxes?label=team=a&state=ready", "").await.json();
    assert_eq!(listed["items"][0]["id"], id);
    assert_eq!(world.call("GET", "/v1/sandboxes?label=team=b", "").await.json()["items"], json!([]));
    let extended = world.call("POST", &format!("{place}/extend"), r#"{"seconds": 1200}"#).await;
    assert!(extended.json()["expires_at"].as_str().unwrap() > sandbox["expires_at"].as_str().unwrap());
    assert_eq!(world.call("POST", &format!("{place}/pause"), "").await.json()["state"], "paused");
    world.call("POST", &format!("{place}/exec"), r#"{"command": "true"}"#).await.refused(409);
    assert_eq!(world.call("POST", &format!("{place}/resume"), "").await.json()["state"], "ready");
    assert_eq!(world.call("PUT", &format!("{place}/network"), r#"{"network": "none"}"#).await.status, 200);
    assert!(world.call("GET", &format!("{place}/metrics"), "").await.json()["samples"].is_array());
    assert_eq!(world.call("DELETE", &place, "").await.status, 204);
    assert_eq!(world.call("DELETE", &place, "").await.status, 204);
    assert_eq!(world.call("GET", &place, "").await.json()["state"], "terminated");

    let request = world.request("GET", &format!("{place}/events?after=0")).header("x-api-key", &world.key);
    let told = events(&world.send(request, "").await.text());
    let names: Vec<_> = told.iter().map(|(name, _, _)| name.as_str()).collect();
    assert!(names.contains(&"sandbox:ready") && names.ends_with(&["sandbox:terminated"]), "{names:?}");
}

#[tokio::test]
async fn execs_run_in_front_and_behind() {
    let world = World::new().await;
    let place = format!("/v1/sandboxes/{}", world.sandbox().await);
    let exec = format!("{place}/exec");
    let done = world.call("POST", &exec, r#"{"command": "cat; exit 3", "stdin": "in"}"#).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let result = done.json();
    assert_eq!((&result["exit_code"], &result["stdout"]), (&json!(3), &json!("in")));
    assert_eq!((&result["status"], &result["success"]), (&json!("error"), &json!(false)));

    let behind =
        world.call("POST", &exec, r#"{"command": ["cat"], "background": true, "stdin_stream": true}"#).await;
    assert_eq!(behind.status, 202, "{}", behind.text());
    let at = behind.headers["location"].to_str().unwrap().to_owned();
    assert_eq!(world.call("GET", &at, "").await.json()["running"], true);
    let write = world.request("POST", &format!("{at}/stdin?close=true")).header("x-api-key", &world.key);
    assert_eq!(world.send(write, "typed").await.status, 204);
    let follow = world.request("GET", &format!("{at}/events")).header("x-api-key", &world.key);
    let all = events(&world.send(follow, "").await.text());
    let text: String = all.iter().filter_map(|(_, _, data)| data["text"].as_str()).collect();
    assert_eq!((text.as_str(), all.last().unwrap().0.as_str()), ("typed", "end"));
    let resume = world.request("GET", &format!("{at}/events")).header("x-api-key", &world.key);
    let rest = events(&world.send(resume.header("last-event-id", "0"), "").await.text());
    assert_eq!(rest, all[1..]);
    assert_eq!(world.call("GET", &at, "").await.json()["status"], "ok");

    let sleeper = world.call("POST", &exec, r#"{"command": "sleep 100", "background": true}"#).await;
    let at = sleeper.headers["location"].to_str().unwrap().to_owned();
    let running = world.call("GET", &format!("{place}/execs?running=true"), "").await.json();
    assert_eq!(running["items"].as_array().unwrap().len(), 1);
    assert_eq!(world.call("POST", &format!("{at}/signal"), r#"{"signal": "SIGTERM"}"#).await.status, 204);
    let follow = world.request("GET", &format!("{at}/events")).header("x-api-key", &world.key);
    assert_eq!(events(&world.send(follow, "").await.text()).last().unwrap().0, "end");
    assert_eq!(world.call("DELETE", &at, "").await.status, 204);
}

#[tokio::test]
async fn who_goes_away_ends_what_they_listened_to() {
    let world = World::new().await;
    let place = format!("/v1/sandboxes/{}", world.sandbox().await);
    let request = world.request("POST", &format!("{place}/exec")).header("x-api-key", &world.key);
    let request = request.header("accept", "text/event-stream").header("content-type", "application/json");
    let mut stream = world.open(request, r#"{"command": "echo on; sleep 100"}"#).await;
    stream.body_mut().frame().await.unwrap().unwrap();
    let running = format!("{place}/execs?running=true");
    let count = async || world.call("GET", &running, "").await.json()["items"].as_array().unwrap().len();
    // One who waits for the whole result listens too.
    let key = &world.key;
    let body = r#"{"command": "sleep 100"}"#;
    let head = format!(
        "POST {place}/exec HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\nContent-Type: application/json\r\n"
    );
    let mut waiting = tokio::net::TcpStream::connect(world.address).await.unwrap();
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    tokio::io::AsyncWriteExt::write_all(&mut waiting, request.as_bytes()).await.unwrap();
    eventually("both run", || async { count().await == 2 }).await;
    drop((stream, waiting));
    eventually("neither runs", || async { count().await == 0 }).await;
}

#[tokio::test]
async fn files_are_read_written_listed_moved_packed() {
    let world = World::new().await;
    let files = format!("/v1/sandboxes/{}/files", world.sandbox().await);
    let with_key = |method: &str, path: &str| world.request(method, path).header("x-api-key", &world.key);
    let put = world.send(with_key("PUT", &format!("{files}?path=a/b%20c.txt&mode=600")), "0123456789").await;
    assert_eq!(put.json(), json!({"path": "/workspace/a/b c.txt", "size": 10}));
    let path = format!("{files}?path=a/b%20c.txt");

    let read = world.send(with_key("GET", &path), "").await;
    assert_eq!((read.status.as_u16(), read.text().as_str()), (200, "0123456789"));
    assert_eq!(read.headers["content-type"], "application/octet-stream");
    assert_eq!(read.headers["x-content-type-options"], "nosniff");
    assert_eq!(
        read.headers["content-disposition"],
        "attachment; filename=\"b_c.txt\"; filename*=UTF-8''b%20c.txt"
    );
    assert!(read.headers["content-security-policy"].to_str().unwrap().contains("sandbox"));
    let part = world.send(with_key("GET", &path).header("range", "bytes=2-4"), "").await;
    assert_eq!((part.status.as_u16(), part.text().as_str()), (206, "234"));
    assert_eq!(part.headers["content-range"], "bytes 2-4/10");
    let tail = world.send(with_key("GET", &path).header("range", "bytes=-3"), "").await;
    assert_eq!((tail.status.as_u16(), tail.text().as_str()), (206, "789"));
    let past = world.send(with_key("GET", &path).header("range", "bytes=10-"), "").await;
    past.refused(416);
    assert_eq!(past.headers["content-range"], "bytes */10");
    let etag = read.headers["etag"].clone();
    let same = world.send(with_key("GET", &path).header("if-none-match", etag), "").await;
    assert_eq!((same.status.as_u16(), same.body.len()), (304, 0));
    let head = world.send(with_key("HEAD", &path), "").await;
    assert_eq!((head.status.as_u16(), &head.headers["content-length"]), (200, &"10".parse().unwrap()));

    let stat = world.call("GET", &format!("{files}/stat?path=a/b%20c.txt"), "").await.json();
    assert_eq!((&stat["kind"], &stat["mode"], &stat["size"]), (&json!("file"), &json!("0600"), &json!(10)));
    assert_eq!(world.call("POST", &format!("{files}/mkdir"), r#"{"path": "d"}"#).await.status, 204);
    let moved =
        world.call("POST", &format!("{files}/move"), r#"{"from": "a/b c.txt", "to": "d/e.txt"}"#).await;
    assert_eq!(moved.status, 204);
    assert_eq!(
        world.call("POST", &format!("{files}/mode"), r#"{"path": "d/e.txt", "mode": "644"}"#).await.status,
        204
    );
    let list = world.call("GET", &format!("{files}/list?depth=2"), "").await.json();
    let paths: Vec<_> =
        list["entries"].as_array().unwrap().iter().map(|e| e["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/workspace/a", "/workspace/d", "/workspace/d/e.txt"]);
    let found = world.call("GET", &format!("{files}/search?pattern=*.txt"), "").await.json();
    assert_eq!(found["paths"], json!(["/workspace/d/e.txt"]));
    for (name, there) in [("d/e.txt", true), ("d/none", false)] {
        let exists = world.call("GET", &format!("{files}/exists?path={name}"), "").await.json();
        assert_eq!(exists, json!({ "exists": there }));
    }

    let tar = world.send(with_key("GET", &format!("{files}/archive?path=d")), "").await;
    assert_eq!(tar.headers["content-type"], "application/x-tar");
    let put =
        with_key("PUT", &format!("{files}/archive?path=copy")).header("content-type", "application/x-tar");
    assert_eq!(world.send(put, tar.body).await.status, 204);
    assert_eq!(
        world.send(with_key("GET", &format!("{files}?path=copy/e.txt")), "").await.text(),
        "0123456789"
    );

    assert_eq!(world.call("DELETE", &format!("{files}?path=d"), "").await.status, 409);
    assert_eq!(world.call("DELETE", &format!("{files}?path=d&recursive=true"), "").await.status, 204);
    let gone = world.call("GET", &format!("{files}?path=d/e.txt"), "").await.refused(404);
    assert_eq!(gone["detail"], "there is no file /workspace/d/e.txt");
}

#[tokio::test]
async fn changes_are_told_as_they_happen() {
    let world = World::new().await;
    let files = format!("/v1/sandboxes/{}/files", world.sandbox().await);
    let request =
        world.request("GET", &format!("{files}/watch?recursive=true")).header("x-api-key", &world.key);
    let mut stream = world.open(request, "").await;
    let write = world.request("PUT", &format!("{files}?path=new.txt")).header("x-api-key", &world.key);
    assert_eq!(world.send(write, "x").await.status, 200);
    let frame = tokio::time::timeout(PATIENCE, stream.body_mut().frame()).await.unwrap();
    let text = String::from_utf8(frame.unwrap().unwrap().into_data().unwrap().to_vec()).unwrap();
    assert!(text.contains("event: created") && text.contains("/workspace/new.txt"), "{text}");
}

#[tokio::test]
async fn the_server_tells_about_itself_and_its_caller() {
    let world = World::new().await;
    assert_eq!(world.call("GET", "/v1/version", "").await.json()["api"], "v1");
    assert_eq!(world.call("GET", "/v1/languages", "").await.json()["languages"][0]["name"], "bash");
    assert_eq!(world.call("GET", "/v1/limits", "").await.json()["default"]["wall"], 30);
    let me = world.call("GET", "/v1/me", "").await.json();
    assert_eq!(me["scopes"], json!(["run", "sandbox", "files", "admin"]));
    assert!(world.key.contains(me["key"].as_str().unwrap()));
    assert_eq!(world.call("GET", "/v1/usage", "").await.json()["quota"]["sandboxes"], 100);
    assert_eq!(world.call("GET", "/healthz", "").await.json()["status"], "ok");
    assert_eq!(world.call("GET", "/readyz", "").await.status, 200);
    let who = world.call("GET", "/foreign/who", "").await;
    assert_eq!(who.text(), me["tenant"].as_str().unwrap());
}
