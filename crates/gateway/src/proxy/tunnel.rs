//! An upgraded connection, carried byte by byte.

use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::routes::pty::quiet;

const PIECE: usize = 16 << 10;

/// Carries bytes both ways until a side ends, nothing moves for `idle`, or `stop` resolves.
pub(crate) async fn carry<P: AsyncRead + AsyncWrite>(
    client: OnUpgrade,
    program: impl Future<Output = Option<P>>,
    idle: Duration,
    stop: impl Future<Output = ()>,
) {
    let (Ok(client), Some(program)) = tokio::join!(client, program) else { return };
    let (from_client, to_client) = split(TokioIo::new(client));
    let (from_program, to_program) = split(program);
    let moved = watch::Sender::new(Instant::now());
    let both = async {
        tokio::join!(copy(from_client, to_program, &moved), copy(from_program, to_client, &moved));
    };
    tokio::select! {
        () = both => {}
        () = quiet(&moved, idle) => {}
        () = stop => {}
    }
}

/// One direction. Its end is passed on, so that the other side can still say what it has to say.
async fn copy<A: AsyncRead, B: AsyncWrite>(
    mut from: ReadHalf<A>,
    mut to: WriteHalf<B>,
    moved: &watch::Sender<Instant>,
) {
    let mut piece = vec![0; PIECE];
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        moved.send_replace(Instant::now());
        if to.write_all(&piece[..length]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}
