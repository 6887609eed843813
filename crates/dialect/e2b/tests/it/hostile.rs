//! Requests that make no sense are refused in words, and nothing breaks.

use axum::body::Body;
use http::Request;
use serde_json::json;

use crate::world::{ENVD, INTERPRETER, World};

#[tokio::test]
async fn addresses_of_sandboxes_are_whole_or_refused() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    for headers in [
        vec![("e2b-sandbox-id", made.id.as_str())],
        vec![("e2b-sandbox-port", ENVD)],
        vec![("e2b-sandbox-id", made.id.as_str()), ("e2b-sandbox-port", "0")],
        vec![("e2b-sandbox-id", made.id.as_str()), ("e2b-sandbox-port", "99999")],
        vec![("e2b-sandbox-id", made.id.as_str()), ("e2b-sandbox-port", "+1")],
        vec![("e2b-sandbox-id", made.id.as_str()), ("e2b-sandbox-id", "x"), ("e2b-sandbox-port", ENVD)],
    ] {
        let mut request = Request::get("/health").header("x-access-token", &made.token);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        client.send(request.body(Body::empty()).unwrap()).await.refused(400);
    }
}

#[tokio::test]
async fn a_host_is_as_good_as_headers() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    let ask = |host: String| {
        let request = Request::get("/health").header("host", host).header("x-access-token", &made.token);
        client.send(request.body(Body::empty()).unwrap())
    };
    assert_eq!(ask(format!("49983-{}.localhost:7300", made.id)).await.status, 204);
    assert_eq!(ask(format!("49983-{}.sandbox.example.org", made.id)).await.status, 204);
    // A port that nothing listens on, and hosts that are no sandbox's.
    let closed = ask(format!("8000-{}.localhost", made.id)).await;
    assert_eq!(closed.refused(502), "The sandbox is running but port is not open");
    for host in ["localhost", "x-y.localhost", "49983-short.localhost"] {
        assert_eq!(ask(host.to_owned()).await.status, 200, "{host}");
    }
}

#[tokio::test]
async fn bodies_are_counted_at_every_door() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    let (unary, stream) = ("application/json", "application/connect+json");
    let control = |path: String| Request::post(path).header("content-type", unary);
    let inside = |port: &str, path: &str, kind: &str| {
        client.inside("POST", &made, port, path).header("content-type", kind)
    };
    let frame = "\0\0\0\0\x02{}";
    let doors = {
        let of_sandbox = ["timeout", "refreshes", "pause", "resume", "connect", "snapshots", "fork"];
        let on_control = of_sandbox.map(|last| (control(format!("/sandboxes/{}/{last}", made.id)), "{}"));
        let network = Request::put(format!("/sandboxes/{}/network", made.id)).header("content-type", unary);
        let calls = [
            "/process.Process/Update",
            "/process.Process/SendInput",
            "/process.Process/SendSignal",
            "/process.Process/CloseStdin",
            "/filesystem.Filesystem/Stat",
            "/filesystem.Filesystem/Move",
            "/filesystem.Filesystem/CreateWatcher",
            "/filesystem.Filesystem/GetWatcherEvents",
        ];
        let streams = [
            "/process.Process/Start",
            "/process.Process/Connect",
            "/process.Process/StreamInput",
            "/filesystem.Filesystem/WatchDir",
        ];
        let mut all = vec![(control("/v2/sandboxes".to_owned()), "{}"), (network, "{}")];
        all.extend(on_control);
        all.extend(["/execute", "/contexts"].map(|path| (inside(INTERPRETER, path, unary), "{}")));
        all.extend(calls.map(|path| (inside(ENVD, path, unary), "{}")));
        all.extend(streams.map(|path| (inside(ENVD, path, stream), frame)));
        all
    };
    let mut full = world.control.body_room(&world.control.developer());
    full.grow(512 << 20).unwrap();
    let refusal = "too many large request bodies at the same time";
    for (request, body) in doors {
        let request = request.body(Body::from(body)).unwrap();
        let door = request.uri().clone();
        let answer = client.send(request).await;
        assert!(answer.text().contains(refusal), "{door}: {} {}", answer.status, answer.text());
    }
    drop(full);
    client.post("/v2/sandboxes", json!({})).await.refused(400);
    // All of it was given back.
    let mut all = world.control.body_room(&world.control.developer());
    all.grow(512 << 20).unwrap();
    let mut other = world.control.body_room(&world.control.developer());
    assert!(other.grow(1).is_err());
}

#[tokio::test]
async fn bodies_that_make_no_sense_are_refused() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    for body in ["", "{", "[]", "null", "\"x\"", "{\"path\": 7}", "\u{0}"] {
        let path = "/filesystem.Filesystem/Stat";
        let request = client.inside("POST", &made, ENVD, path).header("content-type", "application/json");
        let answer = client.send(request.body(Body::from(body)).unwrap()).await;
        // An empty message is one without a path, which is home.
        let fine = matches!(answer.status.as_u16(), 200 | 400 | 404);
        assert!(fine, "{body:?}: {} {}", answer.status, answer.text());
    }
    for (kind, status) in
        [("application/proto", 501), ("application/connect+proto", 501), ("text/plain", 501)]
    {
        let request =
            client.inside("POST", &made, ENVD, "/process.Process/List").header("content-type", kind);
        // A list has no message to be read, so any encoding will do.
        let answer = client.send(request.body(Body::empty()).unwrap()).await;
        assert!(matches!(answer.status.as_u16(), 200) || answer.status == status, "{kind}");
    }
    for (path, body, status) in [
        ("/execute", "{}", 400),
        ("/execute", "{\"code\": 1}", 400),
        ("/execute", "{\"code\": \"1\", \"context_id\": \"a\", \"language\": \"b\"}", 400),
        ("/execute", "{\"code\": \"1\", \"context_id\": \"a\"}", 404),
        ("/execute", "{\"code\": \"1\", \"language\": \"no such\"}", 400),
        ("/execute", "{\"code\": \"1\", \"env_vars\": {\"=\": \"\"}}", 400),
        ("/contexts", "{\"language\": \"perl\"}", 400),
        ("/contexts/nothing/restart", "{}", 404),
        ("/nothing", "{}", 404),
    ] {
        let request =
            client.inside("POST", &made, INTERPRETER, path).header("content-type", "application/json");
        let answer = client.send(request.body(Body::from(body)).unwrap()).await;
        assert_eq!(answer.status.as_u16(), status, "{path} {body}: {}", answer.text());
    }
    let request =
        client.inside("DELETE", &made, INTERPRETER, "/contexts/ctx_none").body(Body::empty()).unwrap();
    assert_eq!(client.send(request).await.text(), "Context ctx_none not found");
}
