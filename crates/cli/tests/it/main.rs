//! The shipped binary, from outside: what it runs, what it refuses, what it leaves behind.

#![expect(clippy::disallowed_methods, reason = "tests start the binary and read what CI sets")]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]
#![expect(unreachable_pub, reason = "what the modules of one test share is as public as that gets")]

mod support;

mod bench;
mod command_line;
mod dependencies;
mod disk_space;
mod doctor;
mod endings;
mod escape;
mod faults;
mod input;
mod languages;
mod leaks;
mod mcp;
mod network;
mod provider;
mod server;
mod walls;
