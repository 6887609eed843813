//! Streams over connections that break.

use sandstorm_client::{Error, NewExec};
use sandstorm_types::{Event, EventBody, ExecId, GuestPath, SandboxId};

use crate::script::{Script, answer, broken_stream, whole_stream};

const SANDBOX: SandboxId = SandboxId::from_bits(0);
const START: &str = "id: 0\nevent: start\ndata: {\"seq\":0,\"type\":\"start\",\"exec\":\"exec_aaaaaaaaaaaaaaaaaaaaaaaaaa\"}\n\n";
const OUTPUT: &str =
    "id: 1\nevent: stdout\ndata: {\"seq\":1,\"type\":\"stdout\",\"offset\":0,\"text\":\"hi\"}\n\n";
const END: &str = "id: 2\nevent: end\ndata: {\"seq\":2,\"type\":\"end\",\"status\":\"ok\",\"success\":true,\
                   \"exit_code\":0,\"signal\":null,\"limits_hit\":[],\"metrics\":{}}\n\n";

/// Events in short.
fn names(events: &[Event]) -> Vec<&'static str> {
    let name = |event: &Event| match event.body {
        EventBody::Start { .. } => "start",
        EventBody::Stdout(_) => "stdout",
        EventBody::End(_) => "end",
        _ => "other",
    };
    events.iter().map(name).collect()
}

async fn all(mut events: sandstorm_client::ExecEvents) -> (Vec<Event>, Option<Error>) {
    let mut seen = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => seen.push(event),
            Err(error) => return (seen, Some(error)),
        }
    }
    (seen, None)
}

#[tokio::test]
async fn an_exec_that_is_kept_goes_on_where_it_was() {
    let script = Script::new().await;
    let client = script.client();
    let (first, second) =
        (broken_stream(&format!("{START}: alive\n\n{OUTPUT}id: 2\ndata: {{\"ha")), whole_stream(END));
    let refused = answer("503 Service Unavailable", "retry-after: 0\r\n", "{}");
    let answers = [first.as_str(), &refused, &second];
    let new = NewExec { keep: true, ..NewExec::shell("x") };
    let follow = async { all(client.exec(SANDBOX, &new).await.unwrap()).await };
    let (asked, (seen, error)) = tokio::join!(script.play(&answers), follow);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(names(&seen), ["start", "stdout", "end"], "nothing lost, nothing twice");
    assert_eq!(asked[0].header("accept"), Some("text/event-stream"));
    assert_eq!(asked[0].body, br#"{"command":"x","on_disconnect":"keep"}"#);
    let events = format!("GET /v1/sandboxes/{SANDBOX}/execs/{}/events HTTP/1.1", ExecId::from_bits(0));
    for again in &asked[1..] {
        assert_eq!((again.line.as_str(), again.header("last-event-id")), (events.as_str(), Some("1")));
    }
}

#[tokio::test]
async fn a_foreground_exec_whose_connection_breaks_is_an_error() {
    let script = Script::new().await;
    let client = script.client();
    for stream in [broken_stream(&format!("{START}{OUTPUT}")), whole_stream(&format!("{START}{OUTPUT}"))] {
        let answers = [stream.as_str()];
        let new = NewExec::shell("x");
        let follow = async { all(client.exec(SANDBOX, &new).await.unwrap()).await };
        let (_, (seen, error)) = tokio::join!(script.play(&answers), follow);
        assert_eq!(names(&seen), ["start", "stdout"]);
        assert!(matches!(error, Some(Error::Broken { .. })), "an end that was not told is no end: {error:?}");
    }
}

#[tokio::test]
async fn an_exec_that_is_gone_meanwhile_is_an_error() {
    let script = Script::new().await;
    let client = script.client();
    let (first, gone) = (broken_stream(OUTPUT), answer("404 Not Found", "", r#"{"code":"not_found"}"#));
    let answers = [first.as_str(), &gone];
    let follow = async { all(client.attach(SANDBOX, ExecId::from_bits(0), Some(0)).await.unwrap()).await };
    let (asked, (seen, error)) = tokio::join!(script.play(&answers), follow);
    assert_eq!(asked[0].header("last-event-id"), Some("0"));
    assert_eq!(names(&seen), ["stdout"]);
    assert_eq!(error.and_then(|error| error.status()), Some(404));
}

#[tokio::test]
async fn events_of_a_sandbox_end_with_it() {
    let script = Script::new().await;
    let client = script.client();
    let event = |seq: u64, name: &str| {
        format!("id: {seq}\ndata: {{\"seq\":{seq},\"at\":\"2026-11-15T12:00:00Z\",\"type\":\"{name}\"}}\n\n")
    };
    // The first server goes away in good order; the next one tells the rest.
    let (first, second) =
        (whole_stream(&event(1, "sandbox:ready")), whole_stream(&event(2, "sandbox:terminated")));
    let answers = [first.as_str(), &second];
    let follow = async {
        let mut events = client.sandbox_events(SANDBOX, Some(0)).await.unwrap();
        let mut seen = Vec::new();
        while let Some(event) = events.next().await {
            seen.push(event.unwrap().seq);
        }
        seen
    };
    let (asked, seen) = tokio::join!(script.play(&answers), follow);
    assert_eq!(seen, [1, 2]);
    assert_eq!(asked[1].header("last-event-id"), Some("1"));
}

#[tokio::test]
async fn a_stream_with_nothing_more_to_tell_ends() {
    let script = Script::new().await;
    let client = script.client();
    let empty = whole_stream(": nothing\n\n");
    let answers = [empty.as_str(), &empty];
    let follow = async { client.sandbox_events(SANDBOX, Some(9)).await.unwrap().next().await.is_none() };
    let (_, ended) = tokio::join!(script.play(&answers), follow);
    assert!(ended);
}

#[tokio::test]
async fn the_failure_of_a_watch_is_told() {
    let script = Script::new().await;
    let client = script.client();
    let change = "event: created\ndata: {\"path\":\"/workspace/a\",\"change\":\"created\"}\n\n";
    let problem = "event: problem\ndata: {\"code\":\"file_system\",\"detail\":\"too many watches\"}\n\n";
    let stream = whole_stream(&format!("{change}{problem}"));
    let answers = [stream.as_str()];
    let follow = async {
        let mut changes = client.watch_files(SANDBOX, &GuestPath::workspace(), true).await.unwrap();
        assert_eq!(changes.next().await.unwrap().unwrap().change, "created");
        let error = changes.next().await.unwrap().unwrap_err();
        assert!(changes.next().await.is_none());
        error
    };
    let (_, error) = tokio::join!(script.play(&answers), follow);
    assert_eq!((error.kind().code(), error.to_string().as_str()), ("file_system", "too many watches"));
}
