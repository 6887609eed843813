//! Spending: a fuse before and during a run, and free credits before money. Pure arithmetic; whoever keeps the ledger calls it.

mod credit;
mod fuse;

pub use credit::{Credit, Paid};
pub use fuse::{AtLimit, Blown, During, Reservation, SpendFuse};
