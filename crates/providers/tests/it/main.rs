//! Hosted providers against the real thing: a gateway over the provider in memory, on a loopback port, and a proxy in
//! between that can do everything that networks and servers do on a bad day.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod answers;
mod bad_days;
mod conformance;
mod contexts;
mod e2b;
mod hosted;
mod ledger;
mod outages;
mod ports;
mod programs;
mod proxy;
mod restart;
mod streams;
mod three;
mod world;
