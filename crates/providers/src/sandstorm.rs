//! Another Sandstorm server, reached over its native API (`/v1`).
//!
//! What it can do is read from the server once, when this connects. What the API cannot carry is not offered: trees of
//! this machine, a program's own channel, snapshots, a writable root.
//!
//! The other server gives ids of its own to sandboxes. Each sandbox that is made there carries two labels: whose it is
//! ([`Owner`], the mark of this installation) and what it is called here. So nothing has to be kept on this side: after
//! a restart the sandboxes are found by their labels, and what nobody knows any more is among those with our mark.
//! Programs have the ids that they are given here.
//!
//! A sandbox there lives on a lease that is renewed while this side knows of it: should this side go away for good, the
//! other one tidies up by itself.

mod attach;
mod client;
mod config;
mod create;
mod destroy;
mod error;
mod exec;
mod exec_events;
mod files;
mod fork;
mod input;
mod keeper;
mod list;
mod news;
mod places;
mod provider;
mod snapshots;
mod view;

pub use config::{ApiKey, Config, Owner, OwnerError};
pub use provider::SandstormProvider;
