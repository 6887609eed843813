//! Leave to begin: what has to be true before a program is executed.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use sandstorm_types::ErrorKind;
use tokio::sync::Mutex;

use crate::{Error, Result};

/// Leave to begin a program, such as: the intent is on record. It is sought when it is first asked for, in the task of
/// who asks, and only once. A program is prepared while it is sought, and never begins without it.
#[derive(Clone)]
pub struct Permit(Arc<Mutex<Leave>>);

enum Leave {
    Sought(BoxFuture<'static, Result<()>>),
    Given,
    Refused,
}

impl Permit {
    /// Given when `seeking` succeeds. Nothing happens before somebody asks.
    pub fn new(seeking: impl Future<Output = Result<()>> + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Leave::Sought(Box::pin(seeking)))))
    }

    /// Waits until it is given or refused. Dropping the future loses nothing: whoever asks next goes on.
    pub async fn obtain(&self) -> Result<()> {
        let mut leave = self.0.lock().await;
        match &mut *leave {
            Leave::Given => Ok(()),
            Leave::Refused => Err(Error::new(ErrorKind::Conflict, "the program was not permitted to begin")),
            Leave::Sought(seeking) => {
                let answer = seeking.await;
                *leave = if answer.is_ok() { Leave::Given } else { Leave::Refused };
                answer
            }
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn it_is_sought_once_and_stays_as_it_is() {
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let permit = Permit::new(async move {
            tokio::task::yield_now().await;
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert!(permit.obtain().now_or_never().is_none(), "who asked first went away");
        permit.obtain().await.unwrap();
        permit.clone().obtain().await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn what_was_refused_stays_refused() {
        let permit = Permit::new(async { Err(Error::new(ErrorKind::Capacity, "the disk is full")) });
        assert_eq!(permit.obtain().await.unwrap_err().kind(), ErrorKind::Capacity);
        assert_eq!(permit.obtain().await.unwrap_err().kind(), ErrorKind::Conflict);
    }
}
