//! A fleet over providers in memory, some of which have bad days.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod elsewhere;
mod late;
mod learned;
mod moody;
mod placing;
mod whole;
mod work;
