//! `sandstorm serve`, from outside.

mod client;
mod faults;
mod http;
mod instance;
mod postgres;
mod socket;
mod tenants;
mod walk;
