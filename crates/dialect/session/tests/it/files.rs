//! Files of a session: in, out, listed, read piece by piece.

use serde_json::{Value, json};

use crate::world::World;

#[tokio::test]
async fn what_goes_up_comes_down() {
    let world = World::new().await;
    let client = world.client();
    let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let up = client.upload("/upload/s", "file", Some("data.bin"), &content).await.fields();
    assert_eq!(up, json!({"filename": "data.bin", "size": content.len()}));
    let down = client.get("/download/s/data.bin").await;
    assert_eq!((down.status.as_u16(), down.body.len()), (200, content.len()));
    assert!(down.body == content);
    assert_eq!(down.headers["content-type"], "application/octet-stream");
    assert_eq!(down.headers["content-disposition"], "attachment; filename=\"data.bin\"");

    let up = client.upload("/upload/s?filename=deep/er/x.txt", "file", Some("ignored"), b"x").await.fields();
    assert_eq!(up, json!({"filename": "deep/er/x.txt", "size": 1}));
    assert_eq!(client.get("/download/s//deep/er/x.txt").await.body, b"x");

    assert_eq!(client.get("/download/s/missing").await.refused(404), "File not found");
    assert_eq!(client.get("/download/s/deep").await.refused(400), "Not a file");
}

#[tokio::test]
async fn bad_uploads_leave_nothing() {
    let world = World::new().await;
    let client = world.client();
    client.post("/session/s", json!({"size": "1M"})).await.fields();
    assert_eq!(client.upload("/upload/s", "file", None, b"x").await.refused(400), "No filename provided");
    let missing = [(json!(["body", "file"]), json!("missing"))];
    assert_eq!(client.upload("/upload/s", "other", Some("x"), b"x").await.invalid(), missing);
    assert_eq!(client.post("/upload/s", json!({})).await.invalid(), missing);
    client.upload("/upload/s", "file", Some("big"), &vec![0; 2 << 20]).await.refused(400);
    let cut =
        b"--cut\r\nContent-Disposition: form-data; name=\"file\"; filename=\"half\"\r\n\r\nhalf of".to_vec();
    client.call("POST", "/upload/s", "multipart/form-data; boundary=cut", cut).await.refused(400);
    let files = client.get("/files/s?recursive=true").await.fields();
    assert_eq!(files, json!({"files": []}));
}

#[tokio::test]
async fn no_path_leaves_the_session() {
    let world = World::new().await;
    let client = world.client();
    for bad in ["..%2fx", "a%2f..%2fb", "%2e%2e/x", ".%2fx", ".", "a/..%5cb", "a%00b", "%252e%252e/x"] {
        for route in ["download", "readfile", "files"] {
            let refused = client.get(&format!("/{route}/s/{bad}")).await.refused(400);
            assert!(refused.as_str().unwrap().starts_with("Invalid file path"), "{route} {bad}: {refused}");
        }
        let preview = client.get(&format!("/files/preview/s/{bad}?sid=x")).await;
        assert_eq!(preview.status.as_u16(), 400, "{bad}");
    }
    for bad in ["../x", "/../x", "a/../x", "./x", "", "/", ".."] {
        client.post("/create/s", json!({"content": "", "filename": bad})).await.refused(400);
        let script = client.post("/execute_code/s", json!({"code": "", "filename": bad})).await;
        // No name is no mistake there: one is made up.
        let wanted = if bad.is_empty() { 200 } else { 400 };
        if bad != "/" && bad != ".." {
            assert_eq!(script.status.as_u16(), wanted, "{bad}");
        }
    }
    client.upload("/upload/s", "file", Some("../x"), b"x").await.refused(400);
    // An absolute path counts from the session, where there is no such file.
    assert_eq!(client.get("/download/s//etc/passwd").await.refused(404), "File not found");
    client.post("/create/s", json!({"content": "mine", "filename": "/etc/passwd"})).await.fields();
    assert_eq!(client.get("/download/s/etc/passwd").await.body, b"mine");
}

#[tokio::test]
async fn lists_show_files_and_no_logs() {
    let world = World::new().await;
    let client = world.client();
    for name in ["a.txt", "Makefile", "stdout.log", "d/b.tar.gz", "d/e/c", "d/stderr.log"] {
        client.post("/create/s", json!({"content": "12", "filename": name})).await.fields();
    }
    let names = |answer: &Value| -> Vec<String> {
        let files = answer["files"].as_array().unwrap();
        files.iter().map(|file| file["filename"].as_str().unwrap().to_owned()).collect()
    };
    let top = client.get("/files/s").await.fields();
    assert_eq!(names(&top), ["Makefile", "a.txt"]);
    assert_eq!(top["files"][0], json!({"filename": "Makefile", "size": 2, "type": "unknown"}));
    assert_eq!(client.get("/files/s/").await.fields(), top);
    assert_eq!(names(&client.get("/files/s/d").await.fields()), ["d/b.tar.gz"]);
    let all = client.get("/files/s/?recursive=1").await.fields();
    assert_eq!(names(&all), ["Makefile", "a.txt", "d/b.tar.gz", "d/e/c"]);
    assert_eq!(client.get("/files/s/missing").await.refused(404), "File not found");
    assert_eq!(client.get("/files/s?recursive=maybe").await.invalid()[0].0, json!(["query", "recursive"]));
    let status = client.get("/status/s").await.fields();
    assert_eq!(names(&status), ["Makefile", "a.txt", "stdout.log"]);
    assert!(status["files"][0]["modified_at"].as_f64().unwrap() > 1.7e9);
}

#[tokio::test]
async fn files_are_made_from_text() {
    let world = World::new().await;
    let client = world.client();
    let made =
        client.post("/create/s", json!({"content": "größe", "filename": "a.sh", "mode": 493})).await.fields();
    assert_eq!(made, json!({"filename": "a.sh", "size": 7}));
    let wrong = client.post("/create/s", json!({"content": 1, "mode": 512})).await.invalid();
    let places: Vec<_> = wrong.into_iter().map(|(place, _)| place).collect();
    assert_eq!(places, [json!(["body", "content"]), json!(["body", "filename"]), json!(["body", "mode"])]);
}

#[tokio::test]
async fn files_are_read_piece_by_piece() {
    let world = World::new().await;
    let client = world.client();
    client.post("/create/s", json!({"content": "grün\n", "filename": "a.md"})).await.fields();
    client.post("/create/s", json!({"content": "bytes", "filename": "a.bin"})).await.fields();
    let first = client.get("/readfile/s/a.md?buffer_size=3").await.fields();
    assert_eq!(first, json!({"content": "gr", "is_binary": false, "offset": 2, "size": 6, "is_eof": false}));
    let rest = client.get("/readfile/s/a.md?offset=2").await.fields();
    assert_eq!(rest, json!({"content": "ün\n", "is_binary": false, "offset": 6, "size": 6, "is_eof": true}));
    let bytes = client.get("/readfile/s/a.bin?offset=1&buffer_size=2").await.fields();
    assert_eq!(bytes, json!({"content": "eXQ=", "is_binary": true, "offset": 3, "size": 5, "is_eof": false}));
    let past = client.get("/readfile/s/a.md?offset=99").await.fields();
    assert_eq!(past, json!({"content": "", "is_binary": false, "offset": 99, "size": 6, "is_eof": true}));
    for bad in ["offset=-1", "offset=x", "buffer_size=0", "buffer_size=99999999999"] {
        client.get(&format!("/readfile/s/a.md?{bad}")).await.invalid();
    }
    assert_eq!(client.get("/readfile/s/missing.md").await.refused(404), "File not found");
}

#[tokio::test]
async fn previews_are_of_known_types_and_harmless() {
    let world = World::new().await;
    let client = world.client();
    client.post("/create/s", json!({"content": "<script>", "filename": "d/a.HTML"})).await.fields();
    let page = client.get("/files/preview/s/d/a.HTML?sid=any").await;
    assert_eq!((page.status.as_u16(), page.body.as_slice()), (200, b"<script>".as_slice()));
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    assert!(page.headers["content-security-policy"].to_str().unwrap().contains("sandbox"));
    assert_eq!(page.headers["x-content-type-options"], "nosniff");
    assert!(page.headers["content-disposition"].to_str().unwrap().starts_with("attachment"));
    assert_eq!(client.get("/files/preview/s/d/a.HTML").await.invalid()[0].0, json!(["query", "sid"]));
    assert_eq!(
        client.get("/files/preview/s/a.exe?sid=x").await.refused(400)["message"],
        "File type not supported"
    );
    assert_eq!(client.get("/files/preview/s/b.html?sid=x").await.refused(404), "File not found");
}
