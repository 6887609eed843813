//! Requests that make no sense are refused in words, and nothing breaks.

use axum::body::Body;
use http::Request;

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
        ("/contexts", "{\"language\": \"bash\"}", 400),
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
