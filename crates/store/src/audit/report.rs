//! What a look at the audit can find.

use thiserror::Error;

/// What was found out about the audit of one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditReport {
    pub node: String,
    pub records: u64,
    /// Number of the first record that is kept; 0 when there is none.
    pub first: u64,
    pub last: u64,
    pub checkpoints: u64,
    /// Records after the last anchored one: their loss would not be seen.
    pub unanchored: u64,
    /// Other nodes that write to the same database; they are verified where their keys are.
    pub other_nodes: Vec<String>,
    pub tampering: Vec<Tampering>,
}

impl AuditReport {
    pub fn is_sound(&self) -> bool {
        self.tampering.is_empty()
    }
}

/// One thing that somebody did to the audit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Tampering {
    #[error("record {seq} was modified")]
    Modified { seq: u64 },
    #[error("records {from} to {to} were deleted")]
    Deleted { from: u64, to: u64 },
    #[error("record {seq} was inserted")]
    Inserted { seq: u64 },
    #[error("record {seq} was moved there from place {original}")]
    Reordered { seq: u64, original: u64 },
    #[error("the records after {last} were cut off; there were {expected} or more")]
    TruncatedTail { last: u64, expected: u64 },
    #[error("records after {after} were cut off and others were written in their place")]
    TruncatedAndContinued { after: u64 },
    #[error("the chain was written anew from its beginning")]
    Rewritten,
    #[error("two histories were signed for record {seq}")]
    Forked { seq: u64 },
    #[error("the records of node {node} do not belong here")]
    ForeignChain { node: String },
    #[error("the checkpoint at record {seq} does not bear this node's signature or fits no record")]
    BadCheckpoint { seq: u64 },
    #[error("line {line} of the anchor file is not ours or not in its place")]
    BadAnchor { line: u64 },
    #[error("the anchor file is missing or empty")]
    AnchorMissing,
}
