//! The provider against a real API server, whose pods the tests play, and against a real node (`make test-k8s`).

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]
#![expect(clippy::disallowed_methods, reason = "tests start the programs that they are about")]

mod api;
mod claims;
mod keeper;
mod lists;
mod node;
mod restart;
mod world;
