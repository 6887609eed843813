//! A figure with where it comes from: without that nobody can tell whether it still holds.

use serde::{Deserialize, Serialize};

use crate::Date;

/// A figure, or a group of them that was found together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dated<T> {
    pub figure: T,
    /// When it was true; `None` where the source does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Date>,
    pub source: String,
    pub confidence: Confidence,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// How far a figure can be trusted, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Nobody has told us.
    Unknown,
    /// Sources conflict, or are not dated.
    Low,
    /// One secondary source.
    Medium,
    /// The provider's own page, or two sources that agree.
    High,
    /// The operator has set it.
    Operator,
}

impl<T> Dated<T> {
    /// What the operator says; it is as old as they say.
    pub fn by_operator(figure: T, as_of: Option<Date>) -> Self {
        Self { figure, as_of, source: "operator".to_owned(), confidence: Confidence::Operator, note: None }
    }
}
