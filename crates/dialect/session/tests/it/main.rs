//! The session API on a whole control with sandboxes in memory: routes, shapes and walls. What needs real programs is in
//! `tests/dialects/session.py`, which walks the same routes on a running server.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod document;
mod executions;
mod files;
mod handlers;
mod sessions;
mod tenants;
mod world;
