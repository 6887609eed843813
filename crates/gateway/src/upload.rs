//! Uploads that are refused on the way.
//!
//! Who is refused before all of a body was read is still sending it, and a connection that is closed then takes the answer
//! with it. So the rest is read and dropped before the refusal is told, as far as that is little and soon there.

use std::time::Duration;

use axum::body::Body;
use futures_util::stream;
use http_body_util::BodyExt;
use sandstorm_provider::ByteStream;
use tokio::sync::oneshot;

use crate::body;

/// What is read of the rest at most, and for how long. Whoever sends more finds the connection closed.
const MOST: usize = 256 << 20;
const LONGEST: Duration = Duration::from_secs(5);

/// What was not read of an upload comes back here.
#[derive(Debug)]
pub(crate) struct Rest(oneshot::Receiver<Body>);

/// A body that is lent to whoever takes it, and comes back when that lets go of it.
struct Lent {
    body: Option<Body>,
    back: Option<oneshot::Sender<Body>>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(body), Some(back)) = (self.body.take(), self.back.take()) {
            let _ = back.send(body);
        }
    }
}

/// A body as the provider takes it, and what it leaves of it.
pub(crate) fn of(body: Body) -> (ByteStream, Rest) {
    let (back, rest) = oneshot::channel();
    let lent = Lent { body: Some(body), back: Some(back) };
    let pieces = stream::unfold(lent, |mut lent| async move {
        loop {
            let frame = lent.body.as_mut()?.frame().await;
            match frame {
                None => return None,
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => return Some((Ok(data), lent)),
                    Err(_) => continue,
                },
                Some(Err(error)) => {
                    // There is nothing more to be had from it.
                    lent.body = None;
                    return Some((Err(body::broken_off(&error)), lent));
                }
            }
        }
    });
    (ByteStream::new(pieces), Rest(rest))
}

impl Rest {
    /// Reads on to the end, within bounds.
    pub(crate) async fn read_on(self) {
        let reading = async {
            let Ok(mut body) = self.0.await else { return };
            let mut read = 0;
            while let Some(Ok(frame)) = body.frame().await {
                read += frame.data_ref().map_or(0, bytes::Bytes::len);
                if read > MOST {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(LONGEST, reading).await;
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use futures_util::StreamExt;

    use super::*;

    /// A body of so many pieces of a mebibyte, and how many of them were read.
    fn mebibytes(count: usize) -> (Body, Arc<AtomicUsize>) {
        let read = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&read);
        let pieces = stream::iter(0..count).map(move |_| {
            seen.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(Bytes::from(vec![0; 1 << 20]))
        });
        (Body::from_stream(pieces), read)
    }

    #[tokio::test]
    async fn the_rest_is_read_to_its_end_or_to_the_bound() {
        for (count, expected) in [(4, 4), (1000, 257)] {
            let (body, read) = mebibytes(count);
            let (mut pieces, rest) = of(body);
            assert_eq!(pieces.next().await.unwrap().unwrap().len(), 1 << 20);
            drop(pieces);
            rest.read_on().await;
            assert!(read.load(Ordering::Relaxed) <= expected + 1, "{count}");
            assert!(read.load(Ordering::Relaxed) >= expected, "{count}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever_for_a_body_that_does_not_come_or_come_back() {
        let (pieces, rest) = of(Body::from_stream(stream::pending::<Result<Bytes, Infallible>>()));
        drop(pieces);
        rest.read_on().await;
        let (_kept, rest) = of(Body::empty());
        rest.read_on().await;
    }
}
