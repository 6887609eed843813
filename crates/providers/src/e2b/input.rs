//! A program's input on its way there: what is written here is handed over in its order, one request after the other.

use std::sync::Arc;

use bytes::Bytes;
use sandstorm_e2b_wire::process::{Input, InputRequest, Selected};
use sandstorm_provider::InputFrame;
use serde::de::IgnoredAny;
use tokio::sync::mpsc;

use super::cloud::Cloud;
use super::envd::PROCESS;
use super::error::Failure;
use super::execs::Running;

/// Frames that may wait here.
pub(super) const WAITING: usize = 4;
/// Most bytes of one request.
const PIECE: usize = 64 << 10;
/// What a terminal takes for the end of input.
const END_OF_INPUT: &[u8] = &[4];

/// Hands input over until the program takes no more. What could not be handed over makes the program's events fail:
/// what it says afterwards would be about input that it never got.
pub(super) async fn feed(cloud: Arc<Cloud>, running: Arc<Running>, mut frames: mpsc::Receiver<InputFrame>) {
    let work = async {
        while let Some(frame) = frames.recv().await {
            let (bytes, close, receipt) = match frame {
                InputFrame::Data(bytes) => (bytes, false, None),
                InputFrame::Close => (Bytes::new(), true, None),
                InputFrame::Deliver(delivery) => match delivery.check_uncounted() {
                    Ok(()) => (delivery.bytes, delivery.close, Some(delivery.receipt)),
                    Err(error) => {
                        delivery.receipt.give(Err(error));
                        continue;
                    }
                },
            };
            let mut handed = hand_over(&cloud, &running, bytes).await;
            if close && handed.is_ok() {
                handed = end(&cloud, &running).await;
            }
            match handed {
                Ok(()) => {
                    if let Some(receipt) = receipt {
                        receipt.give(Ok(None));
                    }
                }
                // The program is gone, or its sandbox, which whoever listens hears anyway.
                Err(failure) if failure.is_not_found() => return,
                Err(failure) if failure.refusal().is_some_and(|it| it.is_without_sandbox()) => return,
                Err(failure) => {
                    running.fail(format!("the program's input was lost on the way: {failure}"));
                    let _ = cloud.kill(&running).await;
                    return;
                }
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

/// Each piece waits while the program does not read, for as long as that takes.
async fn hand_over(cloud: &Cloud, running: &Running, mut bytes: Bytes) -> Result<(), Failure> {
    while !bytes.is_empty() {
        let piece = bytes.split_to(bytes.len().min(PIECE));
        send(cloud, running, &piece).await?;
    }
    Ok(())
}

async fn send(cloud: &Cloud, running: &Running, piece: &[u8]) -> Result<(), Failure> {
    let input = if running.tty { Input::to_terminal(piece) } else { Input::to_program(piece) };
    let request = InputRequest { process: Some(running.selector()), input: Some(input) };
    cloud.client.patient::<IgnoredAny>(&running.place, PROCESS, "SendInput", &request).await.map(drop)
}

async fn end(cloud: &Cloud, running: &Running) -> Result<(), Failure> {
    if running.tty {
        return send(cloud, running, END_OF_INPUT).await;
    }
    let request = Selected { process: Some(running.selector()) };
    cloud.client.unary::<IgnoredAny>(&running.place, PROCESS, "CloseStdin", &request).await.map(drop)
}
