//! The server's use cases over the provider that lives in memory and a real SQLite file.

mod access;
mod contexts;
mod execs;
mod faults;
mod files;
mod kernel;
mod lifecycle;
mod recovery;
mod runs;
mod sandboxes;
mod world;
