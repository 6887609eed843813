//! The HTTP surface over real sockets: the routes on the provider that lives in memory and a real SQLite file.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod access;
mod costs;
mod documents;
mod execs;
mod forks;
mod hostile;
mod idempotency;
mod listeners;
mod origins;
mod ports;
mod provider;
mod refusals;
mod revoked;
mod smuggling;
mod snapshots;
mod terminals;
mod usage;
mod walk;
mod world;
