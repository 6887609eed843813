//! Terminals, over a WebSocket whose other end is played here.

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use sandstorm_client::{Error, Terminal, TerminalOptions, TerminalOutput, TtySize};
use sandstorm_types::{SandboxId, User};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

use crate::script::{Asked, Script, answer};

const SIZE: TtySize = TtySize { rows: 24, cols: 80 };
const END: &str =
    r#"{"exit":{"status":"error","success":false,"exit_code":3,"signal":null,"limits_hit":[],"metrics":{}}}"#;

/// A terminal and the server's end of it.
async fn open(script: &Script, options: &TerminalOptions) -> (Terminal, Asked, WebSocketStream<TcpStream>) {
    let client = script.client();
    let server = async {
        let (mut stream, asked) = script.accept().await;
        let accept = derive_accept_key(asked.header("sec-websocket-key").unwrap().as_bytes());
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-accept: {accept}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        (asked, WebSocketStream::from_raw_socket(stream, Role::Server, None).await)
    };
    let ((asked, socket), terminal) = tokio::join!(server, client.terminal(SandboxId::from_bits(0), options));
    (terminal.unwrap(), asked, socket)
}

#[tokio::test]
async fn keys_go_in_and_the_screen_comes_out() {
    let script = Script::new().await;
    let options = TerminalOptions {
        command: Some("top -b".to_owned()),
        user: Some(User::Root),
        ..TerminalOptions::new(SIZE)
    };
    let (mut terminal, asked, mut socket) = open(&script, &options).await;
    assert!(asked.line.ends_with("/pty?rows=24&cols=80&cmd=top+-b&user=root HTTP/1.1"), "{}", asked.line);
    assert_eq!(asked.header("authorization"), Some("Bearer ss_key"));

    terminal.keyboard.write(Bytes::from_static(b"ls\r")).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::binary(&b"ls\r"[..]));
    terminal.keyboard.resize(TtySize { rows: 50, cols: 100 }).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text(r#"{"resize":{"cols":100,"rows":50}}"#));
    for message in [
        Message::Ping(Bytes::new()),
        Message::binary(&b"\x1b[32mfile"[..]),
        Message::text(r#"{"news":"of the future"}"#),
        Message::text(END),
    ] {
        socket.send(message).await.unwrap();
    }
    let mut seen = Vec::new();
    while let Some(output) = terminal.screen.next().await {
        seen.push(output.unwrap());
    }
    let [TerminalOutput::Bytes(bytes), TerminalOutput::End(end)] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((&bytes[..], end.exit_code), (&b"\x1b[32mfile"[..], Some(3)));
}

#[tokio::test]
async fn a_large_paste_goes_in_pieces() {
    let script = Script::new().await;
    let (mut terminal, _, mut socket) = open(&script, &TerminalOptions::new(SIZE)).await;
    let paste = Bytes::from(vec![b'x'; 100_000]);
    let read = async {
        let mut received = 0;
        while received < 100_000 {
            let piece = socket.next().await.unwrap().unwrap().into_data();
            assert!(piece.len() <= 64 * 1024);
            received += piece.len();
        }
    };
    let (written, ()) = tokio::join!(terminal.keyboard.write(paste), read);
    written.unwrap();
}

#[tokio::test]
async fn why_a_terminal_was_closed_is_told() {
    let script = Script::new().await;
    let (mut terminal, _, mut socket) = open(&script, &TerminalOptions::new(SIZE)).await;
    let frame = CloseFrame { code: CloseCode::Policy, reason: "the key is no longer good".into() };
    socket.send(Message::Close(Some(frame))).await.unwrap();
    let error = terminal.screen.next().await.unwrap().unwrap_err();
    assert!(error.to_string().ends_with("closed the connection: the key is no longer good"), "{error}");
    assert!(terminal.screen.next().await.is_none());

    let (mut terminal, _, socket) = open(&script, &TerminalOptions::new(SIZE)).await;
    drop(socket);
    let error = terminal.screen.next().await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "no exit was told: {error:?}");
}

#[tokio::test]
async fn refusals_and_impostors_are_errors() {
    let script = Script::new().await;
    let client = script.client();
    let options = TerminalOptions::new(SIZE);
    let refused = answer("404 Not Found", "", r#"{"code":"not_found","detail":"there is no such object"}"#);
    let impostor = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: bogus\r\n\r\n";
    let plain = answer("200 OK", "", "hello");
    for (answer, status) in [(refused.as_str(), Some(404)), (impostor, None), (plain.as_str(), None)] {
        let answers = [answer];
        let (_, opened) =
            tokio::join!(script.play(&answers), client.terminal(SandboxId::from_bits(0), &options));
        let error = opened.unwrap_err();
        assert_eq!(error.status(), status, "{error:?}");
        assert!(status.is_some() || matches!(error, Error::Answer { .. }), "{error:?}");
    }
}
