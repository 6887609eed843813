//! E2B's cloud, and whoever speaks its API.
//!
//! There are two planes. The control plane makes, finds, pauses and ends sandboxes. In each sandbox an agent, `envd`, runs
//! programs and keeps files; it is called at the sandbox's own address with the sandbox's own token.
//!
//! As with every hosted provider, a sandbox is found by its marks: whose it is, what it is called here, and what was asked
//! for (see [`Owner`]). So nothing has to be kept on this side but the output of programs: the agent drops what nobody
//! hears, so each program is followed from its start, and what it writes is kept here for as many listeners as there are.
//! A program whose connection breaks is out of sight, and says so; one that was started before a restart can be signalled,
//! but what it wrote is gone.
//!
//! A sandbox there lives on a lease that is renewed while this side knows of it. That it ended is found out by looking.
//!
//! Sizes are those of the template. Time and output are limited from here; nothing else that a spec limits is.

mod client;
mod cloud;
mod config;
mod create;
mod destroy;
mod entries;
mod envd;
mod error;
mod exec;
mod exec_start;
mod execs;
mod files;
mod follow;
mod input;
mod keeper;
mod list;
mod network;
mod pause;
mod places;
mod provider;
mod rpc_stream;
mod snapshots;
mod upload;
mod view;
mod watch;

pub use config::{Config, E2bTemplate};
pub use provider::E2bProvider;

pub use crate::account::{ApiKey, Owner, OwnerError};
