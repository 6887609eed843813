//! The protocol over a WebSocket: one message in each frame of text.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use futures_util::{SinkExt, StreamExt, future};
use http::HeaderMap;
use rmcp::ServiceExt;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use sandstorm_control::server::Caller;

use crate::server::{Server, base_url};
use crate::sessions::too_many_streams;

/// How long a client may take to begin.
const BEGIN: Duration = Duration::from_secs(60);

/// Takes over a connection that asks for it.
pub(crate) async fn upgrade(
    State(server): State<Server>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    socket: WebSocketUpgrade,
) -> Response {
    let Ok(seat) = server.0.control.open_stream(&caller) else { return too_many_streams() };
    let base = base_url(&server.0.settings, &headers);
    let most = server.0.settings.largest_message;
    let socket = socket.protocols(["mcp"]).max_message_size(most).max_frame_size(most);
    socket.on_upgrade(move |socket| async move {
        Box::pin(serve(server, caller, base, socket)).await;
        drop(seat);
    })
}

async fn serve(server: Server, caller: Caller, base: Option<String>, socket: WebSocket) {
    let client = server.client_of(caller.clone(), base);
    // The library cancels it when the client leaves.
    let connection = server.0.settings.closing.child_token();
    let (outgoing, incoming) = socket.split();
    // Sent frames are text; what cannot be written down cannot be sent.
    let outgoing = outgoing.with(|message: ServerJsonRpcMessage| {
        let text = serde_json::to_string(&message).map_err(axum::Error::new);
        future::ready(text.map(|text| Message::Text(text.into())))
    });
    let incoming = incoming
        .take_while(|frame| future::ready(matches!(frame, Ok(frame) if !matches!(frame, Message::Close(_)))))
        .filter_map(|frame| future::ready(frame.ok().and_then(|frame| read(&frame))));
    let transport = (Box::pin(outgoing), Box::pin(incoming));
    let serving = async {
        let begun = client.clone().serve_with_ct(transport, connection.clone());
        match tokio::time::timeout(BEGIN, begun).await {
            Ok(Ok(running)) => {
                let _ = running.waiting().await;
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "a client at a WebSocket did not begin as the protocol says");
            }
            Err(_) => tracing::debug!("a client at a WebSocket did not begin in time"),
        }
    };
    tokio::pin!(serving);
    tokio::select! {
        () = &mut serving => {}
        () = server.0.control.clone().revoked(caller) => {
            connection.cancel();
            serving.await;
        }
    }
    client.leave().await;
}

/// A message; anything else is passed over, as a line that is none is on standard input.
fn read(frame: &Message) -> Option<ClientJsonRpcMessage> {
    match frame {
        Message::Text(text) => serde_json::from_str(text.as_str()).ok(),
        Message::Binary(bytes) => serde_json::from_slice(bytes).ok(),
        _ => None,
    }
}
