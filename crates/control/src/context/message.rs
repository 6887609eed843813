//! What is said between us and a kernel.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ToKernel<'a> {
    Execute {
        id: CellId<'a>,
        code: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        silent: bool,
        /// Its `start` may come with what follows: nobody here waits for it.
        late_start: bool,
    },
    Shutdown,
}

/// Cells have numbers; what is only asked to find out how far the kernel is has a text, so that the two never mix.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(untagged)]
pub(crate) enum CellId<'a> {
    Cell(u64),
    Probe(&'a str),
}

/// Fields that are not ours to use are ignored: a kernel may know more than we do.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum FromKernel {
    Ready {
        protocol: u32,
    },
    Start {
        id: Value,
    },
    Display {
        id: Value,
        data: BTreeMap<String, Value>,
        #[serde(default)]
        metadata: BTreeMap<String, Value>,
    },
    Result {
        id: Value,
        data: BTreeMap<String, Value>,
        #[serde(default)]
        metadata: BTreeMap<String, Value>,
    },
    Error {
        id: Value,
        name: String,
        #[serde(default)]
        value: String,
        #[serde(default)]
        traceback: Vec<String>,
    },
    Done {
        id: Value,
        status: Ended,
        #[serde(default)]
        execution_count: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ended {
    Ok,
    Error,
    Interrupted,
}
