//! The server's use cases over the provider that lives in memory and a real SQLite file.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod access;
mod contexts;
mod costs;
mod execs;
mod faults;
mod files;
mod fork;
mod install;
mod kernel;
mod leases;
mod lifecycle;
mod once;
mod recovery;
mod rest;
mod run_cache;
mod runs;
mod sandboxes;
mod snapshots;
mod tokens;
mod world;
