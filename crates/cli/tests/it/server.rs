//! `sandstorm serve`, from outside.

mod boundaries;
mod client;
mod dialects;
mod faults;
mod http;
mod instance;
mod lifecycle;
mod links;
mod postgres;
mod socket;
mod tenants;
mod walk;
