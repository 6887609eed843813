//! The HTTP surface over real sockets: the routes on the provider that lives in memory and a real SQLite file.

mod access;
mod documents;
mod hostile;
mod idempotency;
mod origins;
mod ports;
mod provider;
mod smuggling;
mod terminals;
mod walk;
mod world;
