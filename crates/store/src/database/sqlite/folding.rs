//! Folding the log into the file, beside the work.
//!
//! SQLite would do it within the commit that makes the log long enough, and force both files to the disk meanwhile: one
//! caller in a hundred would wait for it. Nobody has to, since a log may grow while it is folded.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::Session;
use crate::{Result, StoreError};

/// Commits between two times: a few thousand pages.
const EVERY: u32 = 500;

/// A thread with a connection of its own.
#[derive(Debug)]
pub(super) struct Folding {
    commits: u32,
    /// Whether the next commit may begin the log anew, which SQLite forces to the disk.
    folded: Arc<AtomicBool>,
    nudge: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Folding {
    pub(super) fn start(path: PathBuf) -> Result<Self> {
        let (nudge, nudged) = sync_channel(1);
        let thread = std::thread::Builder::new().name("store-fold".to_owned());
        let folded = Arc::new(AtomicBool::new(true));
        let noted = Arc::clone(&folded);
        let thread = thread
            .spawn(move || fold(&path, &nudged, &noted))
            .map_err(|error| StoreError::Unavailable { source: Box::new(error) })?;
        Ok(Self { commits: 0, folded, nudge: Some(nudge), thread: Some(thread) })
    }

    /// To be called after each commit.
    pub(super) fn committed(&mut self) {
        self.folded.store(false, Ordering::Relaxed);
        self.commits += 1;
        if self.commits >= EVERY
            && let Some(nudge) = &self.nudge
        {
            self.commits = 0;
            // One that is at it, or has been told to, is enough.
            let _ = nudge.try_send(());
        }
    }

    pub(super) fn was_folded(&self) -> bool {
        self.folded.load(Ordering::Relaxed)
    }
}

impl Drop for Folding {
    fn drop(&mut self) {
        // The thread ends when nobody can nudge it any more.
        drop(self.nudge.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that folds the log of the database failed");
        }
    }
}

fn fold(path: &std::path::Path, nudged: &Receiver<()>, folded: &AtomicBool) {
    let mut session = None;
    while nudged.recv().is_ok() {
        let opened = session.take().map_or_else(|| Session::beside(path), Ok);
        match opened.and_then(|opened| opened.fold().map(|()| opened)) {
            Ok(opened) => {
                folded.store(true, Ordering::Relaxed);
                session = Some(opened);
            }
            // Nothing is lost: the log holds it, and the next one tries again.
            Err(error) => tracing::debug!(%error, "the log of the database could not be folded"),
        }
    }
}
