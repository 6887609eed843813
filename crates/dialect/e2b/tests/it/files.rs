//! Files: `/files` and `filesystem.Filesystem`.

use axum::body::Body;
use data_encoding::{BASE64, BASE64_NOPAD};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::world::{Answer, Client, ENVD, Made, World};

async fn put(client: &Client, made: &Made, path: &str, content: &str) -> Answer {
    let request = client.inside("POST", made, ENVD, &format!("/files?path={path}"));
    let request = request.header("content-type", "application/octet-stream");
    client.send(request.body(Body::from(content.to_owned())).unwrap()).await
}

async fn read(client: &Client, made: &Made, path: &str) -> Answer {
    let request = client.inside("GET", made, ENVD, &format!("/files?path={path}"));
    client.send(request.body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn files_are_written_and_read_in_parts() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    let written = put(&client, &made, "a.txt", "0123456789").await;
    assert_eq!(written.json(), json!([{"path": "/home/user/a.txt", "name": "a.txt", "type": "file"}]));
    assert_eq!(read(&client, &made, "/home/user/a.txt").await.text(), "0123456789");
    let request = client.inside("GET", &made, ENVD, "/files?path=a.txt").header("range", "bytes=2-4");
    let part = client.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!((part.status.as_u16(), part.text()), (206, "234".to_owned()));
    assert_eq!(part.headers["content-range"], "bytes 2-4/10");
    let request = client.inside("GET", &made, ENVD, "/files?path=a.txt").header("range", "bytes=10-");
    assert_eq!(client.send(request.body(Body::empty()).unwrap()).await.status, 416);
    read(&client, &made, "nothing").await.refused(404);
    read(&client, &made, "/home/user").await.refused(400);
}

#[tokio::test]
async fn what_is_kept_with_a_file_is_told_wherever_it_is() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    let up = async |path: &str, metadata: &[(&str, &str)]| {
        let mut request = client.inside("POST", &made, ENVD, path);
        for (name, value) in metadata {
            request = request.header(format!("X-Metadata-{name}"), *value);
        }
        let request = request.header("content-type", "application/octet-stream");
        client.send(request.body(Body::from("x")).unwrap()).await
    };
    let call = async |method: &str, message: Value| {
        client.rpc(&made, &format!("/filesystem.Filesystem/{method}"), message).await.json()
    };
    let wanted = json!({"author": "Ada L.", "n": "1"});
    let written = up("/files?path=d/a", &[("Author", "Ada L."), ("n", "1")]).await;
    assert_eq!(written.json()[0]["metadata"], wanted);
    assert_eq!(call("Stat", json!({"path": "d/a"})).await["entry"]["metadata"], wanted);
    assert_eq!(call("ListDir", json!({"path": "d"})).await["entries"][0]["metadata"], wanted);
    let moved = call("Move", json!({"source": "d/a", "destination": "d/b"})).await;
    assert_eq!(moved["entry"]["metadata"], wanted);
    // Writing anew keeps nothing of before.
    let plain = up("/files?path=d/b", &[]).await;
    assert_eq!(plain.json()[0].get("metadata"), None);
    assert_eq!(call("Stat", json!({"path": "d/b"})).await["entry"].get("metadata"), None);
    up("/files?path=d/c", &[("k", "\tx")]).await.refused(400);
    up("/files?path=d/c", &[("k", &"x".repeat(5000))]).await.refused(400);
    assert_eq!(call("Stat", json!({"path": "d/c"})).await["code"], "not_found");
}

/// A user as calls name it, and as addresses do.
#[tokio::test]
async fn files_of_root_are_roots() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    let put = async |path: &str| {
        let request = client.inside("POST", &made, ENVD, path);
        let request = request.header("content-type", "application/octet-stream");
        client.send(request.body(Body::from("x")).unwrap()).await
    };
    let stat = async |user: &str, path: &str| {
        let basic = format!("Basic {}", BASE64.encode(format!("{user}:").as_bytes()));
        let request = client.inside("POST", &made, ENVD, "/filesystem.Filesystem/Stat");
        let request = request.header("content-type", "application/json").header("authorization", basic);
        let body = json!({"path": path}).to_string();
        client.send(request.body(Body::from(body)).unwrap()).await.json()
    };
    put("/files?path=/root/a").await.refused(403);
    let written = put("/files?path=a&username=root").await;
    assert_eq!(written.json()[0]["path"], "/root/a");
    let entry = stat("root", "~/a").await["entry"].clone();
    assert_eq!((&entry["path"], &entry["owner"]), (&json!("/root/a"), &json!("root")));
    assert_eq!(put("/files?path=a").await.json()[0]["path"], "/home/user/a");
    assert_eq!(stat("user", "a").await["entry"]["owner"], "user");
    assert_eq!(stat("nobody", "a").await["code"], "unauthenticated");
    put("/files?path=a&username=nobody").await.refused(401);
}

#[tokio::test]
async fn a_watcher_tells_what_is_there_when_it_is_asked_to() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    let call = async |method: &str, message: Value| {
        client.rpc(&made, &format!("/filesystem.Filesystem/{method}"), message).await.json()
    };
    call("MakeDir", json!({"path": "d"})).await;
    let full = json!({"path": "d", "includeEntry": true, "allowNetworkMounts": true});
    let full = call("CreateWatcher", full).await["watcherId"].clone();
    let plain = call("CreateWatcher", json!({"path": "d"})).await["watcherId"].clone();
    assert_eq!(put(&client, &made, "d/a", "12345").await.status, 200);
    let events = call("GetWatcherEvents", json!({"watcherId": full})).await["events"].clone();
    assert_eq!((&events[0]["name"], &events[0]["type"]), (&json!("a"), &json!("EVENT_TYPE_CREATE")));
    assert_eq!(
        (&events[0]["entry"]["path"], &events[0]["entry"]["size"]),
        (&json!("/home/user/d/a"), &json!("5"))
    );
    let events = call("GetWatcherEvents", json!({"watcherId": plain})).await["events"].clone();
    assert_eq!((&events[0]["name"], events[0].get("entry")), (&json!("a"), None));
    assert_eq!(call("Remove", json!({"path": "d/a"})).await, json!({}));
    let events = call("GetWatcherEvents", json!({"watcherId": full})).await["events"].clone();
    assert_eq!((&events[0]["type"], events[0].get("entry")), (&json!("EVENT_TYPE_REMOVE"), None));
}

#[tokio::test]
async fn gzip_is_taken_and_given() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    assert_eq!(put(&client, &made, "a", &"x".repeat(5000)).await.status, 200);
    let request = client.inside("GET", &made, ENVD, "/files?path=a").header("accept-encoding", "gzip");
    let packed = client.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert!(packed.body.len() < 500);
    let up = |body: Vec<u8>| {
        let request = client.inside("POST", &made, ENVD, "/files?path=b");
        let request =
            request.header("content-type", "application/octet-stream").header("content-encoding", "gzip");
        client.send(request.body(Body::from(body)).unwrap())
    };
    assert_eq!(up(packed.body.clone()).await.status, 200);
    assert_eq!(read(&client, &made, "b").await.text(), "x".repeat(5000));
    up(b"not gzip".to_vec()).await.refused(400);
}

#[tokio::test]
async fn forms_carry_files_under_their_paths() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    let form = |parts: &[(&str, &str, &str)]| {
        let mut body = String::new();
        for (name, file, content) in parts {
            body.push_str(&format!(
                "--cut\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{file}\"\r\n\r\n{content}\r\n"
            ));
        }
        body.push_str("--cut--\r\n");
        body
    };
    let send = async |path: &str, body: String| {
        let request = client.inside("POST", &made, ENVD, path);
        let request = request.header("content-type", "multipart/form-data; boundary=cut");
        client.send(request.body(Body::from(body)).unwrap()).await
    };
    let two =
        send("/files", form(&[("file", "/tmp/d/a", "1"), ("other", "x", "2"), ("file", "b", "3")])).await;
    let paths: Vec<Value> = two.json().as_array().unwrap().iter().map(|file| file["path"].clone()).collect();
    assert_eq!(paths, ["/tmp/d/a", "/home/user/b"]);
    assert_eq!(read(&client, &made, "/tmp/d/a").await.text(), "1");
    assert_eq!(send("/files?path=c", form(&[("file", "other", "4")])).await.status, 200);
    assert_eq!(read(&client, &made, "c").await.text(), "4");
    send("/files", form(&[("file", "a", "1"), ("file", "./a", "2")])).await.refused(400);
    send("/files", form(&[("other", "a", "1")])).await.refused(400);
    send("/files", "--cut\r\nbroken".to_owned()).await.refused(400);
}

#[tokio::test]
async fn a_signature_finds_its_sandbox_and_ends_in_time() {
    let world = World::new().await;
    let client = world.client();
    let (made, _other) = (client.create().await, client.create().await);
    assert_eq!(put(&client, &made, "a", "content").await.status, 200);
    let address = |token: &str, end: Option<&str>| {
        let text = format!("a:read::{token}{}", end.map(|end| format!(":{end}")).unwrap_or_default());
        let signature = BASE64_NOPAD.encode(digest(&SHA256, text.as_bytes()).as_ref()).replace('+', "%2B");
        let end = end.map(|end| format!("&signature_expiration={end}")).unwrap_or_default();
        format!("/files?path=a&signature=v1_{signature}{end}")
    };
    // No header names a sandbox.
    let good = client.get(&address(&made.token, None)).await;
    assert_eq!((good.status.as_u16(), good.text()), (200, "content".to_owned()));
    assert_eq!(client.get(&address(&made.token, Some("9999999999"))).await.status, 200);
    let late = client.get(&address(&made.token, Some("1"))).await;
    assert_eq!(late.json(), json!({"code": 401, "message": "signature is already expired"}));
    let wrong = client.get(&address("wrong", None)).await;
    assert_eq!(wrong.json(), json!({"code": 401, "message": "invalid signature"}));
    // What is over is not looked for.
    let late = client.get(&address("wrong", Some("1"))).await;
    assert_eq!(late.json(), json!({"code": 401, "message": "signature is already expired"}));
    let odd = client.get("/files?path=a&signature=v1_wrong").await;
    assert_eq!(odd.json(), json!({"code": 401, "message": "invalid signature"}));
    let missing = client.get("/files?path=a").await;
    assert_eq!(missing.json(), json!({"code": 401, "message": "missing signature query parameter"}));
}

#[tokio::test]
async fn folders_are_made_listed_moved_and_removed() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    let call = async |method: &str, message: Value| {
        client.rpc(&made, &format!("/filesystem.Filesystem/{method}"), message).await
    };
    let entry = call("MakeDir", json!({"path": "d"})).await.json()["entry"].clone();
    assert_eq!((&entry["type"], &entry["path"]), (&json!("FILE_TYPE_DIRECTORY"), &json!("/home/user/d")));
    assert_eq!(call("MakeDir", json!({"path": "d"})).await.json()["code"], "already_exists");
    assert_eq!(put(&client, &made, "d/a", "12345").await.status, 200);
    assert_eq!(call("MakeDir", json!({"path": "d/a"})).await.json()["code"], "invalid_argument");
    let stat = call("Stat", json!({"path": "d/a"})).await.json()["entry"].clone();
    assert_eq!((&stat["type"], &stat["size"]), (&json!("FILE_TYPE_FILE"), &json!("5")));
    let listed = call("ListDir", json!({"path": "d", "depth": 1})).await.json();
    assert_eq!(listed["entries"][0]["name"], "a");
    assert_eq!(call("ListDir", json!({"path": "d/a"})).await.json()["code"], "invalid_argument");
    assert_eq!(call("ListDir", json!({"path": "none"})).await.json()["code"], "not_found");
    let moved = call("Move", json!({"source": "d/a", "destination": "e/b"})).await.json();
    assert_eq!(moved["entry"]["path"], "/home/user/e/b");
    assert_eq!(call("Move", json!({"source": "d/a", "destination": "x"})).await.json()["code"], "not_found");
    assert_eq!(call("Remove", json!({"path": "e"})).await.json(), json!({}));
    assert_eq!(call("Remove", json!({"path": "e"})).await.json(), json!({}));
    assert_eq!(call("Stat", json!({"path": "e/b"})).await.json()["code"], "not_found");
    for method in ["GetWatcherEvents", "RemoveWatcher"] {
        assert_eq!(call(method, json!({"watcherId": "none"})).await.json()["code"], "not_found");
    }
}
