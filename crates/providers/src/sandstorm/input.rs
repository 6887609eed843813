//! A program's input on its way there: what is written here is handed over in its order, one request after the other.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sandstorm_client::Error as ClientError;
use sandstorm_provider::{Delivery, InputFrame};
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
        let mut waiting = None;
        while let Some(frame) = next(&mut waiting, &mut frames).await {
            let frame = match frame {
                InputFrame::Deliver(delivery) => {
                    deliver(&far, &running, delivery).await;
                    continue;
                }
                frame => frame,
            };
            let (bytes, close) = gather(frame, &mut frames, &mut waiting);
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

/// The frame that was taken too early, or the next one.
async fn next(
    waiting: &mut Option<InputFrame>,
    frames: &mut mpsc::Receiver<InputFrame>,
) -> Option<InputFrame> {
    match waiting.take() {
        Some(frame) => Some(frame),
        None => frames.recv().await,
    }
}

/// Hands over what its writer wants to be sure of. What went wrong the writer hears, and nobody else has to.
async fn deliver(far: &Far, running: &Running, delivery: Delivery) {
    let Delivery { bytes, at, close, receipt } = delivery;
    let (sandbox, exec) = (running.place.theirs(), running.id);
    let work = async {
        // The end alone needs no request before it; neither bytes nor an end ask for the count.
        let count = match bytes.is_empty() && at.is_none() && close {
            true => None,
            false => far.client.write_stdin_at(sandbox, exec, bytes, at).await?,
        };
        if close {
            far.client.close_stdin(sandbox, exec).await?;
        }
        Ok(count)
    };
    receipt.give(work.await.map_err(super::error::of));
}

/// The frame and those that wait behind it: their bytes, and whether the input ends with them. A delivery goes alone.
fn gather(
    first: InputFrame,
    frames: &mut mpsc::Receiver<InputFrame>,
    waiting: &mut Option<InputFrame>,
) -> (Bytes, bool) {
    let InputFrame::Data(first) = first else { return (Bytes::new(), true) };
    let mut all: Option<BytesMut> = None;
    loop {
        let length = all.as_ref().map_or(first.len(), |all| all.len());
        match if length < TOGETHER { frames.try_recv().ok() } else { None } {
            Some(InputFrame::Data(more)) => {
                all.get_or_insert_with(|| BytesMut::from(&first[..])).extend_from_slice(&more);
            }
            Some(InputFrame::Close) => return (all.map_or(first, BytesMut::freeze), true),
            Some(delivery) => {
                *waiting = Some(delivery);
                return (all.map_or(first, BytesMut::freeze), false);
            }
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
    use sandstorm_provider::ExecInput;

    use super::*;

    #[tokio::test]
    async fn frames_that_wait_go_together_in_their_order() {
        let (sender, mut frames) = mpsc::channel(8);
        let data = |text: &'static str| InputFrame::Data(Bytes::from_static(text.as_bytes()));
        for frame in [data("b"), data("c"), InputFrame::Close] {
            sender.send(frame).await.unwrap();
        }
        assert_eq!(gather(data("a"), &mut frames, &mut None), (Bytes::from_static(b"abc"), true));
        assert_eq!(gather(data("d"), &mut frames, &mut None), (Bytes::from_static(b"d"), false));
        sender.send(data("x")).await.unwrap();
        let large = InputFrame::Data(Bytes::from(vec![0; TOGETHER]));
        assert_eq!(gather(large, &mut frames, &mut None).0.len(), TOGETHER, "one that is large goes alone");
        assert_eq!(gather(InputFrame::Close, &mut frames, &mut None), (Bytes::new(), true));
    }

    #[tokio::test]
    async fn a_delivery_goes_alone_behind_what_waited() {
        let (input, mut frames) = ExecInput::channel(8);
        input.write("b").await.unwrap();
        let delivering = tokio::time::timeout(std::time::Duration::from_millis(1), input.deliver("c", None));
        assert!(delivering.await.is_err(), "nobody took it yet");
        let (mut waiting, first) = (None, InputFrame::Data(Bytes::from_static(b"a")));
        assert_eq!(gather(first, &mut frames, &mut waiting), (Bytes::from_static(b"ab"), false));
        let came = next(&mut waiting, &mut frames).await;
        assert!(matches!(came, Some(InputFrame::Deliver(delivery)) if delivery.bytes == "c"));
    }
}
