//! The catalogue of providers: what a sandbox costs there, how large it can be, and how many there may be.
//!
//! Each provider is a file under `data/`. Every group of figures says from when it is, where it was found and how far it
//! can be trusted, because prices change and nobody tells us. The operator can replace each of them
//! ([`Overrides`]). Money is counted in whole picodollars ([`Usd`]), never in floating point.
//!
//! ```
//! use std::time::Duration;
//! use sandstorm_catalog::{Catalog, Demand, Usage};
//! use sandstorm_types::{ByteSize, MilliCpus};
//!
//! let catalog = Catalog::embedded();
//! let entry = catalog.get("e2b").expect("it has a file");
//! let demand = Demand { cpus: MilliCpus::ONE, memory: ByteSize::gib(1), ..Demand::default() };
//! let usage = Usage::of(&demand, Duration::from_secs(100), Duration::from_secs(10));
//! assert_eq!(entry.charge(&usage)?.total().to_string(), "0.00185");
//! # Ok::<(), sandstorm_catalog::ChargeError>(())
//! ```

mod catalog;
mod charge;
mod data;
mod date;
mod dated;
mod entry;
mod estimate;
mod fees;
mod overrides;
mod price;
mod size;
mod stale;
mod terms;

pub use catalog::{Catalog, CatalogError};
pub use charge::{Charge, ChargeError, Usage};
pub use date::{Date, DateError};
pub use dated::{Confidence, Dated};
pub use entry::ProviderEntry;
pub use estimate::{CostEstimate, Span};
pub use fees::{FeeRules, Fees};
pub use overrides::{Overrides, ProviderOverride};
pub use price::{PriceModel, Tier};
pub use sandstorm_types::{Usd, UsdError};
pub use size::{Demand, Size, Sizes};
pub use stale::Stale;
pub use terms::{Billing, Credits, Extras, Quotas, Region};
