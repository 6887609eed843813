//! `sandstorm serve`, from outside.

mod boundaries;
mod client;
mod clock;
mod cluster;
mod custody;
mod dialects;
mod disk;
mod faults;
mod foreign;
mod fork;
mod fronts;
pub mod http;
pub mod instance;
mod lifecycle;
mod links;
mod memory;
mod pool;
mod postgres;
mod providers;
mod routing;
pub mod socket;
mod starting;
pub mod tenants;
mod together;
mod upstream;
mod walk;
