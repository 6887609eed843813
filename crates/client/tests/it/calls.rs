//! Single calls.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use sandstorm_client::{Client, ClientOptions, Error, NewFork, NewSandbox, SandboxQuery};
use sandstorm_types::{ErrorKind, GuestPath, SandboxId};

use crate::script::{Script, answer};

const SANDBOX: &str =
    r#"{"id":"sbx_aaaaaaaaaaaaaaaaaaaaaaaaaa","state":"ready","created_at":"2026-11-15T12:00:00Z"}"#;

#[tokio::test]
async fn a_busy_server_is_asked_again_with_the_same_key() {
    let script = Script::new().await;
    let client = script.client();
    let busy = answer("503 Service Unavailable", "retry-after: 1\r\n", r#"{"code":"capacity"}"#);
    let answers = [busy.as_str(), &answer("201 Created", "", SANDBOX)];
    let began = Instant::now();
    let new = NewSandbox::default();
    let (asked, made) = tokio::join!(script.play(&answers), client.create_sandbox(&new));
    assert_eq!(made.unwrap().id, SandboxId::from_bits(0));
    assert!(began.elapsed() >= Duration::from_secs(1), "it waits as long as it was asked to");
    assert_eq!(asked[0].line, "POST /v1/sandboxes HTTP/1.1");
    assert_eq!(asked[0].header("authorization"), Some("Bearer ss_key"));
    assert_eq!(asked[0].body, b"{}");
    assert!(asked[0].header("idempotency-key").is_some());
    assert_eq!(asked[0].header("idempotency-key"), asked[1].header("idempotency-key"), "one intent, one key");
}

#[tokio::test]
async fn no_wait_for_a_busy_server_is_silent() {
    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let script = Script::new().await;
    let client = script.client();
    client.tell_waits(|error, wait| TOLD.lock().unwrap().push(format!("{error}, {} s", wait.as_secs())));
    let busy =
        answer("503 Service Unavailable", "retry-after: 1\r\n", r#"{"code":"capacity","detail":"no room"}"#);
    let made = answer("201 Created", "", SANDBOX);
    let answers = [busy.as_str(), made.as_str()];
    let new = NewSandbox::default();
    let (_, made) = tokio::join!(script.play(&answers), client.create_sandbox(&new));
    made.unwrap();
    assert_eq!(*TOLD.lock().unwrap(), ["no room, 1 s"]);
}

#[tokio::test]
async fn what_may_have_had_an_effect_is_not_repeated() {
    let script = Script::new().await;
    let client = script.client();
    let busy =
        answer("429 Too Many Requests", "retry-after: 0\r\n", r#"{"code":"quota","detail":"slow down"}"#);
    let (from, to) = (GuestPath::workspace(), GuestPath::root());
    let answers = [busy.as_str()];
    let (_, moved) =
        tokio::join!(script.play(&answers), client.move_file(SandboxId::from_bits(0), &from, &to));
    let error = moved.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Quota, Some(429)));
    assert_eq!(error.retry_after(), Some(Duration::ZERO));
}

#[tokio::test]
async fn a_redirect_is_not_followed_with_the_key() {
    let script = Script::new().await;
    let other = Script::new().await;
    let client = script.client();
    let moved = answer("307 Temporary Redirect", &format!("location: http://{}/\r\n", other.address), "");
    let answers = [moved.as_str()];
    let query = SandboxQuery::default();
    let (_, listed) = tokio::join!(script.play(&answers), client.sandboxes(&query));
    assert_eq!(listed.unwrap_err().status(), Some(307));
    let nobody = tokio::time::timeout(Duration::from_millis(200), other.accept()).await;
    assert!(nobody.is_err(), "the other server was asked");
}

#[tokio::test]
async fn answers_that_make_no_sense_are_errors() {
    for body in ["", "not json", r#"{"items":1}"#, r#"{"items":[{"id":"sbx_short"}]}"#] {
        let script = Script::new().await;
        let client = script.client();
        let strange = answer("200 OK", "", body);
        let answers = [strange.as_str()];
        let query = SandboxQuery::default();
        let (_, listed) = tokio::join!(script.play(&answers), client.sandboxes(&query));
        assert!(matches!(listed, Err(Error::Answer { .. })), "{body}: {listed:?}");
    }
}

#[tokio::test]
async fn a_download_that_is_cut_off_is_not_taken_for_whole() {
    let script = Script::new().await;
    let client = script.client();
    let path = GuestPath::workspace();
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf";
    let answers = [cut];
    let read = async {
        let mut download = client.read_file(SandboxId::from_bits(0), &path, 0).await?;
        assert_eq!(download.size(), Some(10));
        while download.next().await?.is_some() {}
        Ok::<_, Error>(())
    };
    let (asked, read) = tokio::join!(script.play(&answers), read);
    assert!(matches!(read, Err(Error::Broken { .. })), "{read:?}");
    assert!(asked[0].line.contains("/files?path=%2Fworkspace "), "{}", asked[0].line);
}

#[tokio::test]
async fn an_upload_is_streamed_with_its_mode() {
    let script = Script::new().await;
    let client = script.client();
    let path: GuestPath = "a b".parse().unwrap();
    let pieces = futures_util::stream::iter(["one", "two"].map(|piece| Ok(bytes::Bytes::from(piece))));
    let written = answer("200 OK", "", r#"{"path":"/workspace/a b","size":6}"#);
    let answers = [written.as_str()];
    let (asked, written) = tokio::join!(
        script.play(&answers),
        client.write_file(SandboxId::from_bits(0), &path, Some(0o50), pieces)
    );
    assert_eq!(written.unwrap().size, 6);
    assert!(asked[0].line.ends_with("/files?path=%2Fworkspace%2Fa+b&mode=050 HTTP/1.1"), "{}", asked[0].line);
    assert_eq!(asked[0].header("content-type"), Some("application/octet-stream"));
    assert_eq!(asked[0].body, b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n");
}

#[tokio::test]
async fn nobody_there_is_told_at_once() {
    // Taken, so that no other test listens there, and never listened on.
    let taken = tokio::net::TcpSocket::new_v4().unwrap();
    taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = taken.local_addr().unwrap();
    let client = Client::new(&format!("http://{address}"), None).unwrap();
    let error = client.version().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert_eq!(error.to_string(), format!("could not reach http://{address}"));
}

#[tokio::test]
async fn a_fork_is_asked_for_once_and_told_one_by_one() {
    let script = Script::new().await;
    let client = script.client();
    let body = format!(
        r#"{{"forks":[{{"sandbox":{SANDBOX},"contexts":[{{"from":"ctx_aaaaaaaaaaaaaaaaaaaaaaaaaa","to":"ctx_baaaaaaaaaaaaaaaaaaaaaaaaa"}}],
            "not_carried":[{{"what":"watchers 1","why":"they stay"}}],"problem":null}},
            {{"sandbox":null,"contexts":[],"not_carried":[],"problem":{{"code":"quota","detail":"used up"}}}}]}}"#
    );
    let answers = [answer("201 Created", "", &body)];
    let answers = [answers[0].as_str()];
    let new = NewFork { count: 2, ..NewFork::default() };
    let (asked, forks) =
        tokio::join!(script.play(&answers), client.fork_sandbox(SandboxId::from_bits(0), &new));
    assert_eq!(asked[0].line, "POST /v1/sandboxes/sbx_aaaaaaaaaaaaaaaaaaaaaaaaaa/fork HTTP/1.1");
    assert_eq!(asked[0].body, br#"{"count":2}"#);
    assert!(asked[0].header("idempotency-key").is_some(), "a fork that is asked for twice is one fork");
    let forks = forks.unwrap();
    assert_eq!(forks[0].contexts[0].from.to_string(), "ctx_aaaaaaaaaaaaaaaaaaaaaaaaaa");
    assert_eq!(forks[0].not_carried[0].what, "watchers 1");
    assert!(forks[1].sandbox.is_none() && forks[1].problem.as_ref().unwrap().code == "quota");
}

#[tokio::test]
async fn a_part_of_a_file_is_asked_for_by_its_bytes() {
    for (from, length, range) in [
        (0, None, None),
        (5, None, Some("bytes=5-")),
        (5, Some(3), Some("bytes=5-7")),
        (0, Some(1), Some("bytes=0-0")),
        (5, Some(u64::MAX), Some("bytes=5-")),
    ] {
        let script = Script::new().await;
        let client = script.client();
        let path = GuestPath::workspace();
        let status = if range.is_some() { "206 Partial Content" } else { "200 OK" };
        let part = answer(status, "", "abc");
        let answers = [part.as_str()];
        let reading = client.read_file_part(SandboxId::from_bits(0), &path, from, length);
        let (asked, read) = tokio::join!(script.play(&answers), reading);
        assert!(read.is_ok());
        assert_eq!(asked[0].header("range"), range);
    }
}

#[tokio::test]
async fn whoever_can_go_elsewhere_is_not_kept_waiting() {
    let script = Script::new().await;
    let options = ClientOptions { repeats: false, most_answer: 100, ..ClientOptions::default() };
    let client = Client::with_options(&format!("http://{}", script.address), None, options).unwrap();
    let busy = answer("503 Service Unavailable", "retry-after: 1\r\n", r#"{"code":"capacity"}"#);
    let long = answer("200 OK", "", &format!(r#"{{"version":"{}"}}"#, "1".repeat(200)));
    let answers = [busy.as_str(), long.as_str()];
    let asking = async { (client.version().await, client.version().await) };
    let (_, (refused, endless)) = tokio::join!(script.play(&answers), asking);
    assert_eq!(refused.unwrap_err().retry_after(), Some(Duration::from_secs(1)));
    assert!(matches!(endless, Err(Error::Answer { .. })), "{endless:?}");
}
