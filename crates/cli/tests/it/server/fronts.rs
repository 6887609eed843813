//! The fronts of foreign APIs from outside: who gets to a port, and what of a request the program there sees.

use serde_json::{Value, json};

use super::http::Request;
use super::instance::Server;
use super::tenants::{new_key, on_state};
use super::walk::raw;
use crate::support::{Who, eventually};

/// Answers with the head that it got, and tries to act on the host that it is seen under.
const PROGRAM: &str = r#"
import http.server
class Echo(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = ''.join(f'{name}: {value}\n' for name, value in self.headers.items()).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.send_header('Content-Type', 'text/html')
        self.send_header('Set-Cookie', 'sid=1; Domain=sandbox.test; Path=/')
        self.send_header('Strict-Transport-Security', 'max-age=9')
        self.send_header('Access-Control-Allow-Origin', '*')
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass
http.server.HTTPServer(('127.0.0.1', 8000), Echo).serve_forever()
"#;

/// A sandbox of E2B's API with the program in it: its id and its tokens.
struct Echo {
    id: String,
    access: String,
    traffic: String,
}

fn echo(server: &Server, wishes: Value) -> Echo {
    let mut new = json!({ "templateID": "base", "timeout": 300 });
    new.as_object_mut().unwrap().extend(wishes.as_object().unwrap().clone());
    let made = server.post("/v2/sandboxes", &new).expect(201);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    let echo =
        Echo { id: text("sandboxID"), access: text("envdAccessToken"), traffic: text("trafficAccessToken") };
    listen(server, &echo.id);
    echo
}

/// Starts the program in a sandbox, whatever API it is from.
fn listen(server: &Server, bare: &str) {
    let exec = format!("/v1/sandboxes/sbx_{bare}/exec");
    let start = json!({ "command": ["/usr/bin/python3", "-c", PROGRAM], "background": true, "timeout": 300 });
    server.post(&exec, &start).expect(202);
    eventually("the program answers", || {
        server.get(&format!("/v1/sandboxes/sbx_{bare}/ports/8000/")).status == 200
    });
}

/// What is said on port 8000 of a sandbox, by headers and by host, with further headers.
fn by_both(server: &Server, bare: &str, headers: &str) -> [String; 2] {
    let port = server.port;
    let ask = |host: &str, more: &str| {
        let head = format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{more}{headers}\r\n");
        raw(server, head.as_bytes()).to_ascii_lowercase()
    };
    let named = format!("e2b-sandbox-id: {bare}\r\ne2b-sandbox-port: 8000\r\n");
    [ask(&format!("127.0.0.1:{port}"), &named), ask(&format!("8000-{bare}.localhost:{port}"), "")]
}

fn status(said: &str) -> u16 {
    said.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{said:?}"))
}

#[test]
fn without_a_token_only_ports_that_were_opened_answer() {
    let server = Server::start(Who::Root);
    on_state(&server, &["tenants", "create", "other"]);
    let (_, other) = new_key(&server, &["--tenant", "other"]);
    let theirs = Request::new("POST", "/v1/sandboxes").header("x-api-key", &other).json(&json!({}));
    let theirs = server.send(&theirs).expect(201)["id"].as_str().unwrap().to_owned();
    let native = server.sandbox(&json!({}));
    let called = json!({ "command": "true" });
    let assistant = server.post("/mcp/tools/sandbox_create", &json!({})).expect(200);
    let assistant = assistant["metadata"]["sandbox_id"].as_str().unwrap_or_else(|| panic!("{assistant}"));
    let denied = server.post("/v1/sandboxes", &json!({ "labels": { "sandstorm/public-ports": "false" } }));
    let denied = denied.expect(201)["id"].as_str().unwrap().to_owned();
    let bare = |id: &str| id.rsplit('_').next().unwrap().to_owned();
    let never = "a".repeat(26);
    for id in [&native, assistant, &denied] {
        server.post(&format!("/v1/sandboxes/sbx_{}/exec", bare(id)), &called).expect(200);
        listen(&server, &bare(id));
    }
    for (id, wanted) in
        [(native.as_str(), 502), (assistant, 502), (&theirs, 502), (&never, 502), (&denied, 403)]
    {
        for said in by_both(&server, &bare(id), "") {
            assert_eq!(status(&said), wanted, "{id}: {said}");
        }
    }
    // A key is no token, and a token of another sandbox none for this one.
    let open = echo(&server, json!({}));
    for more in
        [format!("x-api-key: {}\r\n", server.key), format!("e2b-traffic-access-token: {}\r\n", open.traffic)]
    {
        for said in by_both(&server, &bare(&native), &more) {
            assert_eq!(status(&said), 502, "{said}");
        }
    }
    // Made through E2B's API, a sandbox is public unless its owner says otherwise, then and later.
    for said in by_both(&server, &open.id, "") {
        assert_eq!(status(&said), 200, "{said}");
    }
    let update = |id: &str, body: Value| {
        let update = server.request("PUT", format!("/sandboxes/{id}/network")).json(&body);
        assert_eq!(server.send(&update).status, 204, "{body}");
    };
    let closed = echo(&server, json!({ "network": { "allowPublicTraffic": false } }));
    update(&open.id, json!({ "allowPublicTraffic": false }));
    for echo in [&open, &closed] {
        for said in by_both(&server, &echo.id, "") {
            assert_eq!(status(&said), 403, "{said}");
        }
        for said in by_both(&server, &echo.id, &format!("e2b-traffic-access-token: {}\r\n", echo.access)) {
            assert_eq!(status(&said), 403, "{said}");
        }
        for said in by_both(&server, &echo.id, &format!("e2b-traffic-access-token: {}\r\n", echo.traffic)) {
            assert_eq!(status(&said), 200, "{said}");
        }
    }
    update(&closed.id, json!({ "allowPublicTraffic": true }));
    for said in by_both(&server, &closed.id, "") {
        assert_eq!(status(&said), 200, "{said}");
    }
    // Other changes leave that as it is.
    update(&closed.id, json!({ "denyOut": ["0.0.0.0/0"] }));
    for said in by_both(&server, &closed.id, "") {
        assert_eq!(status(&said), 200, "{said}");
    }
}

#[test]
fn no_credential_reaches_a_program_and_no_program_acts_on_the_apis_host() {
    let server = Server::start(Who::Root);
    let (_, key) = new_key(&server, &["--form", "e2b"]);
    let echo = echo(&server, json!({}));
    let basic = data_encoding::BASE64.encode(format!("user:{key}").as_bytes());
    let sent = [
        format!("authorization: Bearer {}\r\n", server.key),
        format!("authorization: Bearer {key}\r\n"),
        format!("authorization: Basic {basic}\r\n"),
        format!("x-api-key: {key}\r\n"),
        format!("x-access-token: {}\r\n", echo.access),
        format!("e2b-traffic-access-token: {}\r\n", echo.traffic),
        format!("x-of-the-client: {}\r\n", server.key),
        format!("cookie: key={key}\r\n"),
    ];
    for header in &sent {
        for said in by_both(&server, &echo.id, header) {
            assert_eq!(status(&said), 200, "{said}");
            for secret in [&key, &server.key.to_ascii_lowercase(), &echo.access, &echo.traffic, &basic] {
                assert!(!said.contains(&secret.to_ascii_lowercase()), "{header} gave: {said}");
            }
        }
    }
    let own = "authorization: Bearer mine\r\nx-api-key: mine\r\ncookie: sid=mine\r\n";
    let [by_headers, by_host] = by_both(&server, &echo.id, own);
    // On the API's host they may be for the API, on a host of its own they are the program's.
    assert!(!by_headers.contains("mine"), "{by_headers}");
    assert_eq!(by_host.matches("mine").count(), 3, "{by_host}");
    let (head, _) = by_headers.split_once("\r\n\r\n").unwrap();
    for gone in ["set-cookie", "strict-transport-security", "access-control-allow-origin"] {
        assert!(!head.contains(gone), "{head}");
    }
    assert!(
        head.contains("content-security-policy: sandbox") && !head.contains("allow-same-origin"),
        "{head}"
    );
    let (head, _) = by_host.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("set-cookie: sid=1; path=/\r\n"), "{head}");
}

#[test]
fn tokens_end_with_their_key_everywhere() {
    let server = Server::start(Who::Root);
    let (id, key) = new_key(&server, &[]);
    let made = Request::new("POST", "/v2/sandboxes").header("x-api-key", &key);
    let made = server.send(&made.json(&json!({ "templateID": "base", "timeout": 300 }))).expect(201);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    let (sandbox, access) = (text("sandboxID"), text("envdAccessToken"));
    let inside = |method: &'static str, target: &str| {
        let request = Request::new(method, target).header("e2b-sandbox-id", &sandbox);
        request.header("e2b-sandbox-port", "49983").header("x-access-token", &access)
    };
    let message =
        json!({ "process": { "cmd": "/bin/sh", "args": ["-c", "while echo x; do sleep 0.1; done"] } });
    let message = message.to_string();
    let mut frame = vec![0];
    frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend(message.as_bytes());
    let start = inside("POST", "/process.Process/Start").header("content-type", "application/connect+json");
    let mut command = server.open(&start.bytes(frame));
    assert_eq!(command.status, 200);
    assert!(!command.piece().unwrap().is_empty());
    assert_eq!(server.send(&inside("GET", "/health")).status, 204);
    on_state(&server, &["keys", "revoke", &id]);
    // A program that never stops talking does not keep its listener.
    while command.piece().is_ok_and(|piece| !piece.is_empty()) {}
    eventually("the token is worth nothing", || server.send(&inside("GET", "/health")).status == 401);
    let nowhere = Request::new("GET", "/files?path=/etc/passwd").header("x-access-token", &access);
    assert_eq!(server.send(&nowhere).status, 401);
}

/// Where keys are asked for, a token of a sandbox opens nothing: not the API, not its foreign sisters, not the operators' socket.
#[test]
fn a_token_is_no_key() {
    let operators = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = Server::with(Who::Root, &[], &["--admin-listen", &operators.to_string()]);
    let made = server.post("/v2/sandboxes", &json!({ "templateID": "base", "timeout": 60 })).expect(201);
    let id = made["sandboxID"].as_str().unwrap();
    for name in ["envdAccessToken", "trafficAccessToken"] {
        let token = made[name].as_str().unwrap();
        for target in [
            format!("/v1/sandboxes/sbx_{id}"),
            format!("/v1/sandboxes/sbx_{id}/files?path=/etc/passwd"),
            format!("/v1/sandboxes/sbx_{id}/ports/8000/"),
            format!("/sandboxes/{id}"),
            "/v2/sandboxes".to_owned(),
            "/workspace/se/workspaces".to_owned(),
            "/mcp".to_owned(),
            "/v1/me".to_owned(),
        ] {
            for (header, value) in [
                ("authorization", format!("Bearer {token}")),
                ("x-api-key", token.to_owned()),
                ("x-access-token", token.to_owned()),
                ("e2b-traffic-access-token", token.to_owned()),
            ] {
                let answer = server.send(&Request::new("GET", &*target).header(header, &value));
                assert_eq!(answer.status, 401, "{target} with {header}: {}", answer.text());
            }
        }
        let admin = Request::new("GET", "/v1/admin/keys").header("x-api-key", token);
        assert_eq!(super::http::open(operators.port(), &admin).unwrap().status, 401);
    }
    let admin = server.request("GET", "/v1/admin/keys");
    assert_eq!(super::http::open(operators.port(), &admin).unwrap().status, 200);
}

/// What is asked for on a port is looked for in the sandbox's own network, where the server is not.
#[test]
fn a_port_of_a_sandbox_is_never_one_of_the_host() {
    let server = Server::start(Who::Root);
    let echo = echo(&server, json!({}));
    let path = format!("/v1/sandboxes/sbx_{}", echo.id);
    let port = server.port;
    assert_eq!(server.get(&format!("{path}/ports/{port}/healthz")).status, 502);
    let tunnel = server.request("GET", format!("{path}/tunnel/{port}"));
    let tunnel = server.send(&tunnel.header("connection", "Upgrade").header("upgrade", "tcp"));
    assert_ne!(tunnel.status, 101, "a tunnel to the server itself");
    let request = Request::new("GET", "/healthz").header("e2b-sandbox-id", &echo.id);
    let answer = server.send(&request.header("e2b-sandbox-port", &port.to_string()));
    assert_eq!(answer.status, 502, "{}", answer.text());
    // Nor does a redirect or a host that the client names lead anywhere else.
    let head = format!("GET http://127.0.0.1:{port}/healthz HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n");
    let named = format!("e2b-sandbox-id: {}\r\ne2b-sandbox-port: 9\r\nconnection: close\r\n\r\n", echo.id);
    assert_eq!(status(&raw(&server, format!("{head}{named}").as_bytes())), 502);
}

/// More at once than one sandbox has processes, or its socket room.
#[test]
fn hundreds_of_uploads_at_once_to_one_sandbox_all_arrive() {
    const UPLOADS: usize = 300;
    let settings = [("SANDSTORM_QUOTAS_REQUESTS_PER_SECOND", "100000")];
    let server = Server::with(Who::Root, &settings, &[]);
    // A slow sandbox, so that they pile up.
    let limits = json!({ "cpus": 0.5, "processes": 64, "disk": "256M", "memory": "512M" });
    let sandbox = server.sandbox(&json!({ "limits": limits }));
    let content = vec![b'x'; 400_000];
    std::thread::scope(|scope| {
        let uploads: Vec<_> = (0..UPLOADS)
            .map(|number| {
                let (server, sandbox, content) = (&server, &sandbox, &content);
                scope.spawn(move || server.put(&format!("{sandbox}/files?path=up/{number}"), content))
            })
            .collect();
        for upload in uploads {
            let answer = upload.join().unwrap();
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    });
    let count = server.exec(&sandbox, "find up -type f -size 400000c | wc -l");
    assert_eq!(count["stdout"].as_str().unwrap().trim(), UPLOADS.to_string(), "{count:#}");
}
