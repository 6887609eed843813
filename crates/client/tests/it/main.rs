//! The client against a server that plays a script: broken connections, busy servers, odd answers. What a real server
//! answers is tested with the real one, by the command line's own tests.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod calls;
mod script;
mod streams;
mod terminals;
