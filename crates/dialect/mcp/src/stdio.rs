//! One client, over standard input and output.

use rmcp::ServiceExt;
use sandstorm_control::server::Caller;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::server::Server;

/// Why the conversation could not be held.
#[derive(Debug, thiserror::Error)]
#[error("the client did not begin as the protocol says: {0}")]
pub struct StdioError(String);

/// Serves the one client until it closes its end, or the server is told to go; then everything of it goes.
pub async fn serve_stdio(
    server: &Server,
    caller: Caller,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(), StdioError> {
    let client = server.client_of(caller, None);
    let closing = server.0.settings.closing.clone();
    let served = client.clone().serve_with_ct((input, output), closing.child_token()).await;
    let done = match served {
        Ok(running) => {
            let _ = running.waiting().await;
            Ok(())
        }
        // A client that only looks whether somebody is there has nothing to say.
        Err(_) if closing.is_cancelled() => Ok(()),
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => Err(StdioError(error.to_string())),
    };
    client.leave().await;
    done
}
