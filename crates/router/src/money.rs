//! Spending: a fuse before and during a run, and free credits before money. Pure arithmetic; whoever keeps the ledger calls it.

mod fuse;

pub use sandstorm_catalog::{Credit, Paid};

pub use fuse::{AtLimit, Blown, During, Reservation, SpendFuse};
