//! A program's input on its way there: what is written here is handed over in its order, one request after the other.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sandstorm_client::Error as ClientError;
use sandstorm_provider::InputFrame;
use sandstorm_types::ErrorKind;
use tokio::sync::mpsc;

use super::client::Far;
use super::places::Running;

/// Frames that may wait here.
pub(super) const WAITING: usize = 4;
/// Bytes of frames that waited which go in one request.
const TOGETHER: usize = 256 << 10;

/// Hands input over until the program takes no more. What could not be handed over makes the program's events fail:
/// what it says afterwards would be about input that it never got.
pub(super) async fn feed(far: Arc<Far>, running: Arc<Running>, mut frames: mpsc::Receiver<InputFrame>) {
    let work = async {
        while let Some(frame) = frames.recv().await {
            let (bytes, close) = gather(frame, &mut frames);
            if let Err(error) = hand_over(&far, &running, bytes, close).await {
                match error.kind() {
                    // The program takes no more, or is gone.
                    ErrorKind::Conflict | ErrorKind::NotFound => {}
                    _ => running.fail(super::error::of(error).to_string()),
                }
                return;
            }
            if close {
                return;
            }
        }
    };
    tokio::select! {
        () = work => {}
        () = running.over.cancelled() => {}
        () = running.place.ended().cancelled() => {}
    }
}

/// The frame and those that wait behind it: their bytes, and whether the input ends with them.
fn gather(first: InputFrame, frames: &mut mpsc::Receiver<InputFrame>) -> (Bytes, bool) {
    let InputFrame::Data(first) = first else { return (Bytes::new(), true) };
    let mut all: Option<BytesMut> = None;
    loop {
        let length = all.as_ref().map_or(first.len(), |all| all.len());
        match if length < TOGETHER { frames.try_recv().ok() } else { None } {
            Some(InputFrame::Data(more)) => {
                all.get_or_insert_with(|| BytesMut::from(&first[..])).extend_from_slice(&more);
            }
            Some(InputFrame::Close) => return (all.map_or(first, BytesMut::freeze), true),
            None => return (all.map_or(first, BytesMut::freeze), false),
        }
    }
}

async fn hand_over(far: &Far, running: &Running, bytes: Bytes, close: bool) -> Result<(), ClientError> {
    let (sandbox, exec) = (running.place.theirs(), running.id);
    if !bytes.is_empty() {
        far.client.write_stdin(sandbox, exec, bytes).await?;
    }
    if close {
        far.client.close_stdin(sandbox, exec).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_that_wait_go_together_in_their_order() {
        let (sender, mut frames) = mpsc::channel(8);
        let data = |text: &'static str| InputFrame::Data(Bytes::from_static(text.as_bytes()));
        for frame in [data("b"), data("c"), InputFrame::Close] {
            sender.send(frame).await.unwrap();
        }
        assert_eq!(gather(data("a"), &mut frames), (Bytes::from_static(b"abc"), true));
        assert_eq!(gather(data("d"), &mut frames), (Bytes::from_static(b"d"), false));
        sender.send(data("x")).await.unwrap();
        let large = InputFrame::Data(Bytes::from(vec![0; TOGETHER]));
        assert_eq!(gather(large, &mut frames).0.len(), TOGETHER, "one that is large goes alone");
        assert_eq!(gather(InputFrame::Close, &mut frames), (Bytes::new(), true));
    }
}
