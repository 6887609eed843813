//! Terminals over WebSocket.
//!
//! Binary messages are bytes of the terminal, both ways. Text messages are JSON: the client sends
//! `{"resize": {"rows": 40, "cols": 120}}`, the server ends with `{"exit": {…}}`. Everything that can be refused is
//! refused before the upgrade, as an ordinary answer.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Extension, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{BoxStream, SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use sandstorm_control::server::{Caller, Control, ExecWork, NewExec};
use sandstorm_provider::{Command, ExecSignal};
use sandstorm_types::{EnvMap, Event, EventBody, ExecId, GuestPath, SandboxId, User};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use crate::app::App;
use crate::ids::Id;
use crate::json;
use crate::problem::{ApiError, ApiResult};
use crate::query::Query;
use crate::wire::Tty;

const MAX_MESSAGE: usize = 64 << 10;
/// Messages of a client within one second: nobody types or pastes faster, and each costs work of its own.
const MAX_MESSAGES: u32 = 2000;
const PING: Duration = Duration::from_secs(15);

/// Opens a terminal; the upgrade to WebSocket needs a key as every request does.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/pty", tag = "terminals", operation_id = "open_pty",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("rows" = Option<u16>, Query, description = "Height in characters", minimum = 1, maximum = 1000),
        ("cols" = Option<u16>, Query, description = "Width in characters", minimum = 1, maximum = 1000),
        ("cmd" = Option<String>, Query, description = "A line for the shell; an interactive shell unless given"),
        ("cwd" = Option<String>, Query, description = "Where it starts"),
        ("user" = Option<String>, Query, description = "`user` or `root`")),
    responses(
        (status = 101, description = "A WebSocket: binary messages are bytes, text messages are JSON control"),
        (status = 426, description = "The request asks for no upgrade")))]
pub(crate) async fn open(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(sandbox): Id<SandboxId>,
    mut query: Query,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    let new = wanted(&mut query, app.settings.longest_lifetime)?;
    query.finish()?;
    let upgrade = upgrade.map_err(|_| {
        ApiError::invalid("a terminal needs a WebSocket").status(http::StatusCode::UPGRADE_REQUIRED)
    })?;
    let seat = app.control.open_stream(&caller)?;
    let attached = app.control.exec(&caller, sandbox, new).await?;
    let terminal = Terminal {
        control: app.control.clone(),
        caller,
        sandbox,
        exec: attached.view.id,
        idle: app.settings.idle,
    };
    let closing = app.settings.closing.clone();
    Ok(upgrade
        .max_message_size(MAX_MESSAGE)
        .max_frame_size(MAX_MESSAGE)
        .max_write_buffer_size(1 << 20)
        .on_upgrade(move |socket| async move {
            terminal.serve(socket, attached.events, closing.cancelled()).await;
            drop(seat);
        }))
}

/// A terminal lives as long as its sandbox and its user want it to; `longest` is the most that may be asked for.
fn wanted(query: &mut Query, longest: Duration) -> ApiResult<NewExec> {
    let rows = query.number("rows", 1, 1000)?.unwrap_or(24) as u16;
    let cols = query.number("cols", 1, 1000)?.unwrap_or(80) as u16;
    let command = match query.text("cmd")? {
        Some(line) if line.is_empty() || line.contains('\0') || line.len() > 64 << 10 => {
            return Err(ApiError::field("cmd", "must be 1 byte to 64 KiB without NUL"));
        }
        Some(line) => Command::Shell(line),
        // The best shell that is there. Its streams must stay the terminal's, or it would not be interactive.
        None => Command::Shell(
            "if command -v bash >/dev/null 2>&1; then exec bash -l; else exec sh -i; fi".to_owned(),
        ),
    };
    let user = match query.text("user")?.as_deref() {
        None => None,
        Some("user") => Some(User::User),
        Some("root") => Some(User::Root),
        Some(_) => return Err(ApiError::field("user", "must be user or root")),
    };
    let mut env = EnvMap::new();
    let name = "TERM".parse().expect("a plain name");
    env.insert(name, "xterm-256color".to_owned()).expect("one short variable fits");
    Ok(NewExec {
        env,
        cwd: query.read::<GuestPath>("cwd")?,
        user,
        tty: Some(Tty { rows, cols }.size()?),
        stdin_stream: true,
        timeout: Some(longest),
        ..NewExec::of(ExecWork::Command(command))
    })
}

struct Terminal {
    control: Control,
    caller: Caller,
    sandbox: SandboxId,
    exec: ExecId,
    idle: Duration,
}

/// Why the server closes a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Exited,
    ClientLeft,
    Revoked,
    Stopping,
    Idle,
    TooFast,
    Malformed,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ControlMessage {
    resize: Tty,
}

impl Terminal {
    /// Runs until one side ends. Dropping `events` then ends the program, if it still runs.
    async fn serve(
        self,
        socket: WebSocket,
        events: BoxStream<'static, Event>,
        stopping: impl Future<Output = ()>,
    ) {
        let (mut to_client, mut from_client) = socket.split();
        let moved = tokio::sync::watch::Sender::new(Instant::now());
        let over = tokio::select! {
            over = self.output(&mut to_client, events, &moved) => over,
            over = self.input(&mut from_client, &moved) => over,
            () = self.control.clone().revoked(self.caller.clone()) => Over::Revoked,
            () = stopping => Over::Stopping,
            () = quiet(&moved, self.idle) => Over::Idle,
        };
        let (code, reason) = match over {
            Over::Exited => (close_code::NORMAL, "the program ended"),
            Over::ClientLeft => return,
            Over::Revoked => (close_code::POLICY, "the key is no longer good"),
            Over::Stopping => (close_code::AWAY, "the server stops"),
            Over::Idle => (close_code::POLICY, "nothing moved for too long"),
            Over::TooFast => (close_code::POLICY, "too many messages"),
            Over::Malformed => (close_code::INVALID, "a text message is not a control message"),
        };
        let farewell = async {
            let frame = CloseFrame { code, reason: reason.into() };
            let _ = to_client.send(Message::Close(Some(frame))).await;
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), farewell).await;
    }

    async fn output(
        &self,
        to_client: &mut SplitSink<WebSocket, Message>,
        mut events: BoxStream<'static, Event>,
        moved: &tokio::sync::watch::Sender<Instant>,
    ) -> Over {
        let mut ping = ticks(PING);
        loop {
            let message = tokio::select! {
                event = events.next() => match event.map(|event| event.body) {
                    Some(EventBody::Stdout(chunk) | EventBody::Stderr(chunk)) => {
                        moved.send_replace(Instant::now());
                        Message::Binary(Bytes::copy_from_slice(chunk.data.as_bytes()))
                    }
                    Some(EventBody::End(end)) => {
                        let text = json!({ "exit": *end }).to_string();
                        let _ = to_client.send(Message::Text(text.into())).await;
                        return Over::Exited;
                    }
                    Some(_) => continue,
                    None => return Over::Exited,
                },
                _ = ping.tick() => Message::Ping(Bytes::new()),
            };
            if to_client.send(message).await.is_err() {
                return Over::ClientLeft;
            }
        }
    }

    /// Waits while the program does not read, so a client that sends without end is held back by its own connection.
    async fn input(
        &self,
        from_client: &mut SplitStream<WebSocket>,
        moved: &tokio::sync::watch::Sender<Instant>,
    ) -> Over {
        let mut second = Instant::now();
        let mut messages = 0;
        while let Some(Ok(message)) = from_client.next().await {
            if second.elapsed() >= Duration::from_secs(1) {
                (second, messages) = (Instant::now(), 0);
            }
            messages += 1;
            if messages > MAX_MESSAGES {
                return Over::TooFast;
            }
            match message {
                Message::Binary(bytes) if !bytes.is_empty() => {
                    moved.send_replace(Instant::now());
                    if self.control.write_stdin(&self.caller, self.sandbox, self.exec, bytes).await.is_err() {
                        // It takes no more input; how it ended comes with its output.
                        std::future::pending::<()>().await;
                    }
                }
                Message::Text(text) => {
                    match json::read::<ControlMessage>(text.as_bytes()).map(|m| m.resize.size()) {
                        Ok(Ok(size)) => {
                            let resize = ExecSignal::Resize(size);
                            let _ = self.control.signal(&self.caller, self.sandbox, self.exec, resize).await;
                        }
                        _ => return Over::Malformed,
                    }
                }
                Message::Close(_) => return Over::ClientLeft,
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => {}
            }
        }
        Over::ClientLeft
    }
}

fn ticks(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Resolves when nothing moved for `idle`.
pub(crate) async fn quiet(moved: &tokio::sync::watch::Sender<Instant>, idle: Duration) {
    loop {
        let until = *moved.borrow() + idle;
        if until <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(until).await;
    }
}
