//! `sandstorm serve`, from outside.

mod boundaries;
mod client;
mod cluster;
mod dialects;
mod faults;
mod fork;
pub mod http;
pub mod instance;
mod lifecycle;
mod links;
mod pool;
mod postgres;
mod providers;
mod routing;
pub mod socket;
pub mod tenants;
mod upstream;
mod walk;
