use proptest::prelude::*;

use super::*;

const GOOD: &str = "GET /a HTTP/1.1\r\nHost: a.test\r\n\r\n";
const EVIL: &str = "GET /stolen HTTP/1.1\r\nHost: evil.test\r\n\r\n";
const SOCKET: &str = "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

fn name() -> HostName {
    "a.test".parse().unwrap()
}

/// What passes of a stream that comes in pieces of one size.
fn pass(stream: &str, size: usize) -> Checked<String> {
    let name = name();
    let mut requests = Requests::new(&name, 80);
    let mut passed = Vec::new();
    for piece in stream.as_bytes().chunks(size) {
        passed.extend(requests.take(piece)?);
    }
    Ok(String::from_utf8(passed).unwrap())
}

#[test]
fn every_request_is_looked_at() {
    let post = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello";
    let chunked = "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
    for size in [1, 3, 1000] {
        for first in [GOOD, post, chunked] {
            let whole = format!("{first}{GOOD}{chunked}{GOOD}");
            assert_eq!(pass(&whole, size).as_deref(), Ok(&whole[..]));
            assert_eq!(pass(&format!("{first}{EVIL}"), size), Err(Refusal::OtherHost), "{first}");
        }
    }
}

#[test]
fn a_request_inside_a_body_is_only_a_body() {
    let length = EVIL.len();
    let stream = format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n{EVIL}{GOOD}");
    assert_eq!(pass(&stream, 7).as_deref(), Ok(&stream[..]));
}

#[test]
fn smuggled_requests_do_not_pass() {
    for head in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding : chunked",
        "Content-Length: 0\r\nContent-Length: 60",
        "Content-Length: 0",
        "Transfer-Encoding: \tchunked",
    ] {
        let stream = format!("POST / HTTP/1.1\r\nHost: a.test\r\n{head}\r\n\r\n0\r\n\r\n{EVIL}");
        for size in [1, 1000] {
            assert!(pass(&stream, size).is_err(), "{head}");
        }
    }
}

#[test]
fn bare_line_ends_are_refused_at_once() {
    for stream in ["GET / HTTP/1.1\nHost: evil.test\n\n", "GET / HTTP/1.1\r\nHost: a.test\nX: y", "G\n"] {
        for size in [1, 2, 3, 1000] {
            assert_eq!(pass(stream, size), Err(Refusal::MalformedRequest), "{stream:?} in pieces of {size}");
        }
    }
}

#[test]
fn a_head_is_held_until_it_is_whole_and_has_an_end() {
    let name = name();
    let mut requests = Requests::new(&name, 80);
    assert_eq!(requests.take(&GOOD.as_bytes()[..GOOD.len() - 1]), Ok(vec![]));
    assert!(requests.is_within_head());
    assert_eq!(requests.take(b"\n").as_deref(), Ok(GOOD.as_bytes()));
    assert!(!requests.is_within_head());
    let endless = format!("GET / HTTP/1.1\r\nHost: a.test\r\nX: {}", "x".repeat(MAX_HEAD));
    for size in [1, 100, 100_000] {
        assert_eq!(pass(&endless, size), Err(Refusal::MalformedRequest));
    }
}

#[test]
fn a_web_socket_is_free_once_the_server_agreed() {
    let name = name();
    let agreed = || {
        let mut requests = Requests::new(&name, 80);
        requests.take(SOCKET.as_bytes()).unwrap();
        assert!(requests.waits_for_answer());
        requests
    };
    let mut yes = agreed();
    yes.answered(true).unwrap();
    assert_eq!(yes.take(EVIL.as_bytes()).as_deref(), Ok(EVIL.as_bytes()));
    let mut no = agreed();
    no.answered(false).unwrap();
    assert_eq!(no.take(EVIL.as_bytes()), Err(Refusal::OtherHost));
    assert_eq!(agreed().take(b"x"), Err(Refusal::MalformedRequest));
    // Nor can it be hidden behind another request, whose answer would be taken for its own.
    assert_eq!(pass(&format!("{GOOD}{SOCKET}"), 1000), Err(Refusal::MalformedRequest));
}

#[test]
fn a_switch_to_http2_is_cut_and_a_refused_one_goes_on() {
    let name = name();
    let asked = SOCKET.replace("websocket", "h2c").replace("Upgrade\r", "Upgrade, HTTP2-Settings\r");
    let mut requests = Requests::new(&name, 80);
    requests.take(asked.as_bytes()).unwrap();
    assert_eq!(requests.answered(true), Err(Refusal::PlainHttp2));
    let mut requests = Requests::new(&name, 80);
    requests.take(asked.as_bytes()).unwrap();
    requests.answered(false).unwrap();
    assert!(requests.take(GOOD.as_bytes()).is_ok());
}

/// Some clients ask for HTTP/2 with whatever they send first.
#[test]
fn a_request_with_a_body_can_ask_too() {
    let name = name();
    let mut requests = Requests::new(&name, 80);
    let asked = "POST / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
                 HTTP2-Settings: AAMAAABk\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(requests.take(&asked.as_bytes()[..asked.len() - 1]).unwrap().len(), asked.len() - 1);
    assert!(!requests.waits_for_answer());
    requests.take(b"o").unwrap();
    assert!(requests.waits_for_answer());
    requests.answered(false).unwrap();
    assert_eq!(requests.take(EVIL.as_bytes()), Err(Refusal::OtherHost));
}

#[test]
fn the_first_status_is_read_across_pieces() {
    for (answer, switched) in [
        ("HTTP/1.1 101 Switching Protocols\r\n", Some(true)),
        ("HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 101 ", Some(false)),
        ("HTTP/1.0 101 x", Some(false)),
        ("HTTP/1.1 10", None),
    ] {
        for size in [1, 5, 100] {
            let (mut status, mut told) = FirstStatus::new();
            answer.as_bytes().chunks(size).for_each(|piece| status.see(piece));
            assert_eq!(told.try_recv().ok(), switched, "{answer}");
        }
    }
}

proptest! {
    /// How the bytes were cut on their way makes no difference to what is read.
    #[test]
    fn pieces_do_not_matter(
        parts in prop::collection::vec(prop::sample::select(vec![
            GOOD, EVIL, SOCKET, "POST / HTTP/1.1\r\nHost: a.test\r\n", "Content-Length: 3\r\n", "\r\n", "abc", "\n", "0\r\n\r\n",
            "Transfer-Encoding: chunked\r\n", "3\r\n",
        ]), 0..8),
        size in 1usize..40,
    ) {
        let stream = parts.concat();
        prop_assert_eq!(pass(&stream, size).is_ok(), pass(&stream, 100_000).is_ok());
        if let Ok(passed) = pass(&stream, size) {
            prop_assert_eq!(&passed, &pass(&stream, 100_000).unwrap());
            prop_assert!(stream.starts_with(&passed));
        }
    }

    #[test]
    fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0usize..300) {
        let name = name();
        let mut requests = Requests::new(&name, 80);
        let (front, back) = bytes.split_at(cut.min(bytes.len()));
        if requests.take(front).is_ok() {
            let _ = requests.take(back);
        }
    }
}
