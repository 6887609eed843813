//! Use cases: run, contexts, dependency layers; sees providers only as `dyn Provider`.
//!
//! [`Runner::run`] is the whole way of a one-shot run: find the language, compile where that is needed (in a sandbox of
//! its own, with a cache), make a fresh sandbox, lay out the files, execute, and put everything into the one result
//! shape. Nothing here knows what kind of provider it talks to.

mod artifact;
mod compile;
mod compile_cache;
mod context;
mod execute;
mod expect;
mod layers;
mod outcome;
mod placed;
mod prepare;
mod require;
mod reserve;
mod run;
pub mod server;
mod space;
mod spool;
mod toolchains;
mod warmth;

pub use compile_cache::CompileCache;
pub use context::{Cell, CellStatus, Context, ContextEvent, Interrupter, Nonce, Spoken, StartContext, Told};
pub use layers::{Extract, IndexSource, Layer, Layers, LayersConfig};
pub use outcome::Outcome;
pub use prepare::{Prepared, unindented};
pub use run::{Finished, Phase, RunEvent, RunInput, Runner, Tools};
pub use space::make_room;
pub use spool::{Saved, Whole};
