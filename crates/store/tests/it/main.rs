//! The store's behaviour, the same on SQLite and on a PostgreSQL that the tests start themselves.

#![expect(clippy::disallowed_methods, reason = "tests start processes and read what CI sets")]
#![expect(clippy::print_stderr, reason = "a skipped case says why")]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod audit;
mod backups;
mod batches;
mod callers;
mod concurrency;
mod contexts;
mod density;
mod execs;
mod faults;
mod idempotency;
mod intents;
mod keys;
mod leases;
mod ledger;
mod migrations;
mod names;
mod redaction;
mod retention;
mod runs;
mod sandboxes;
mod settling;
mod snapshots;
mod support;
mod tampering;
mod tracking;
