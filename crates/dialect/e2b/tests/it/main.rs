//! The dialect over sandboxes in memory: what each plane answers, and to whom.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod browsers;
mod files;
mod hostile;
mod processes;
mod sandboxes;
mod snapshots;
mod walls;
mod world;
