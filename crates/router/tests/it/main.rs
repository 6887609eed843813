//! The promises of the router, on a trace of real providers.

mod backtest;
