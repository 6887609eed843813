//! Lists that come in pages.

use serde::{Deserialize, Serialize};

/// A page of a list, newest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// For the next page; none on the last.
    #[serde(default)]
    pub next_cursor: Option<String>,
}
