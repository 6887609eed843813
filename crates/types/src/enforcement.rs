//! What to do about a limit or wall that the chosen place cannot enforce.

use serde::{Deserialize, Serialize};

/// Whether an unenforceable limit refuses the work or is only reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// Refuse what cannot be enforced; the default of a server.
    #[default]
    Strict,
    /// Run anyway and say in the result what was missing; the default of the command line.
    BestEffort,
}
