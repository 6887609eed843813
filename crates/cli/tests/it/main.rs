//! The shipped binary, from outside: what it runs, what it refuses, what it leaves behind.

#![expect(clippy::disallowed_methods, reason = "tests start the binary and read what CI sets")]

mod support;

mod command_line;
mod dependencies;
mod doctor;
mod endings;
mod escape;
mod faults;
mod input;
mod languages;
mod leaks;
mod network;
mod provider;
mod walls;
