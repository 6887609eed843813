//! Where a run goes.
