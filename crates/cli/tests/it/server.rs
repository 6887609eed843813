//! `sandstorm serve`, from outside.

mod boundaries;
mod client;
mod dialects;
mod faults;
mod http;
mod instance;
mod links;
mod lifecycle;
mod postgres;
mod socket;
mod tenants;
mod walk;
