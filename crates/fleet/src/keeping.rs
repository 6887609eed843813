//! What the router learned is kept in a file, so that a server that begins knows what the last one knew.
//!
//! It is written from time to time and at the end, never while somebody waits. A file that cannot be read, or is of another
//! version, is left behind with a word in the log: everything in it can be learned again.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sandstorm_router::NotResumed;
use serde_json::{Value, json};

use crate::fleet::Fleet;
use crate::member::Member;

const EVERY: Duration = Duration::from_secs(60);
/// A file that is larger is not ours.
const LARGEST: u64 = 16 << 20;
/// What is older says nothing any more; a clock that jumped ahead makes nothing older than that either.
const OLDEST: Duration = Duration::from_secs(30 * 86_400);

impl Fleet {
    /// Takes up what the file has, and keeps what is learned there until the fleet's tasks end. To be called before anything
    /// is asked of the fleet.
    pub fn keep_in(self: &Arc<Self>, file: PathBuf) {
        match read(&file) {
            Ok(Some((saved, away))) => match self.resume(saved, away) {
                Ok(()) => tracing::info!(file = %file.display(), "took up what was learned about providers"),
                Err(error) => {
                    tracing::warn!(file = %file.display(), %error, "what was learned about providers is dropped");
                }
            },
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "what was learned about providers is dropped");
            }
        }
        let (fleet, stopping) = (Arc::clone(self), self.tasks.stopping().clone());
        self.tasks.finish("keep what was learned", async move {
            let mut kept = Value::Null;
            let mut over = false;
            while !over {
                tokio::select! {
                    () = tokio::time::sleep(EVERY) => {}
                    () = stopping.cancelled() => over = true,
                }
                let learned = fleet.learned();
                if learned != kept {
                    let (to, text) = (file.clone(), written(&learned));
                    let writing = tokio::task::spawn_blocking(move || write(&to, &text)).await;
                    match writing {
                        Ok(Ok(())) => kept = learned,
                        Ok(Err(error)) => {
                            tracing::warn!(file = %file.display(), %error, "what was learned about providers is not kept");
                        }
                        Err(_) => {}
                    }
                }
            }
        });
    }

    /// What the router learned so far.
    pub fn learned(&self) -> Value {
        self.router().save()
    }

    /// Goes on from what another fleet learned, so long ago.
    pub fn resume(&self, learned: Value, away: Duration) -> Result<(), NotResumed> {
        let known = |provider: &str| self.members.iter().map(Member::name).any(|name| name == provider);
        let mut router = self.router();
        *router = router.clone().resume(learned, away, known)?;
        Ok(())
    }
}

/// With the time, by which the next one knows how long ago it was.
fn written(learned: &Value) -> String {
    let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    json!({ "saved_at_ms": at.as_millis() as u64, "learned": learned }).to_string()
}

/// What a file has, and how long ago it was written; `None`: there is none.
fn read(file: &Path) -> std::io::Result<Option<(Value, Duration)>> {
    let opened = match std::fs::File::open(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    opened.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(std::io::Error::other("it is too large"));
    }
    let mut whole: Value = serde_json::from_slice(&bytes)?;
    let at = whole["saved_at_ms"].as_u64().ok_or_else(|| std::io::Error::other("it does not say when"))?;
    let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(at)).unwrap_or(SystemTime::UNIX_EPOCH);
    // A clock that went back meanwhile makes it as if no time went by.
    let away = SystemTime::now().duration_since(at).unwrap_or_default().min(OLDEST);
    Ok(Some((whole["learned"].take(), away)))
}

/// Whole or not at all.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    let draft = file.with_extension("draft");
    let mut opened = std::fs::File::create(&draft)?;
    opened.write_all(text.as_bytes())?;
    opened.sync_all()?;
    std::fs::rename(&draft, file)
}
