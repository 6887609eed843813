//! A client of the native API: sandboxes, execs, contexts, files, terminals and runs over HTTP.
//!
//! ```no_run
//! # async fn example() -> Result<(), sandstorm_client::Error> {
//! use sandstorm_client::{Client, NewExec, NewSandbox};
//!
//! let client = Client::new("http://127.0.0.1:7300", Some("ss_…"))?;
//! let sandbox = client.create_sandbox(&NewSandbox::default()).await?;
//! let mut events = client.exec(sandbox.id, &NewExec::shell("echo hello")).await?;
//! while let Some(event) = events.next().await {
//!     let _ = event?;
//! }
//! client.delete_sandbox(sandbox.id).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Calls that may be repeated without harm wait and try again when the server says that it is busy. Streams of what is
//! kept (background execs, events of a sandbox) connect anew after a broken connection and go on where they stopped.

mod activity;
mod address;
mod body;
mod call;
mod certificate;
mod contexts;
mod error;
mod event_stream;
mod exec_events;
mod execs;
mod files;
mod forks;
mod install;
mod options;
mod pace;
mod page;
mod prefix;
mod runs;
mod sandboxes;
mod server;
mod snapshots;
mod sse;
mod terminal;
mod transport;
mod tunnel;

pub use activity::{Activities, Activity};
pub use body::Download;
pub use contexts::{Context, NewContext};
pub use error::{Error, FieldProblem, Refusal, Result};
pub use exec_events::ExecEvents;
pub use execs::{Command, Exec, NewExec, Signal, StdinForm, TtySize};
pub use files::{FileChange, FileChanges, FileInfo, FileKind, FoundPaths, Listing, WrittenFile};
pub use forks::{CarriedContext, Fork, ForkProblem, NewFork, NotCarried};
pub use install::{Installed, NewInstall};
pub use options::ClientOptions;
pub use page::Page;
pub use prefix::{PrefixError, SHORTEST_PREFIX, unique};
pub use runs::{Run, RunEvents, RunQuery};
pub use sandboxes::{Created, NewSandbox, Sample, Sandbox, SandboxQuery};
pub use server::{ServerLimits, UsageQuery, Version};
pub use snapshots::{NewSnapshot, Snapshot, SnapshotQuery};
pub use terminal::{Keyboard, Screen, Terminal, TerminalOptions, TerminalOutput};
pub use transport::Client;
pub use tunnel::Tunnel;
