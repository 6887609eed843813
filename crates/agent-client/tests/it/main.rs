//! The real agent, started as it is in a pod.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod pod;
