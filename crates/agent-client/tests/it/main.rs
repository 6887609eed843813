//! The real agent, started as it is in a pod.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]
#![expect(clippy::disallowed_methods, reason = "tests start the programs that they are about")]

mod pod;
