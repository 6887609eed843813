//! What one tenant may use, and what all of them together may.

use std::time::Duration;

use sandstorm_types::{ByteSize, MilliCpus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::form;

/// What each tenant of a server may use, unless the tenant has quotas of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Quotas {
    /// Sandboxes alive at once, paused ones included.
    pub sandboxes: u32,
    /// Processors of all its sandboxes together.
    #[schemars(with = "form::Cpus")]
    pub cpus: MilliCpus,
    /// Memory of all its sandboxes together.
    #[serde(with = "form::size")]
    #[schemars(with = "form::Size")]
    pub memory: ByteSize,
    /// Runs started in a minute. Not set: 600 for each tenant that an operator makes, no bound for the local tenant.
    #[schemars(example = 600)]
    pub runs_per_minute: Option<u32>,
    /// Requests in a second. Not set: 200 for each tenant that an operator makes, no bound for the local tenant.
    #[schemars(example = 200)]
    pub requests_per_second: Option<u32>,
    /// Streams open at once: events, terminals, watches, connections to ports.
    pub open_streams: u32,
}

impl Default for Quotas {
    fn default() -> Self {
        Quotas {
            // Of sandboxes that do nothing a machine holds many; what all of them may do at once, admission sees to.
            sandboxes: 1_000,
            cpus: MilliCpus::new(1_000_000),
            memory: ByteSize::gib(512),
            // A server with one tenant is bounded by its machine; between tenants, rates keep one from crowding out the others.
            runs_per_minute: None,
            requests_per_second: None,
            open_streams: 1_000,
        }
    }
}

impl Quotas {
    /// Runs in a minute of a tenant that an operator makes.
    pub fn runs_per_minute_of_made(&self) -> u32 {
        self.runs_per_minute.unwrap_or(600)
    }

    /// Requests in a second of a tenant that an operator makes.
    pub fn requests_per_second_of_made(&self) -> u32 {
        self.requests_per_second.unwrap_or(200)
    }
}

/// What this machine takes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Admission {
    /// Memory that all sandboxes and runs of a server together may be promised: their limits while they work, what they use
    /// while they rest or are paused. Not set: the machine's but for a fifth, or for `serve.body_memory` where that is more.
    #[serde(with = "form::optional_size")]
    #[schemars(with = "Option<form::Size>", example = &"16GiB")]
    pub memory: Option<ByteSize>,
    /// How many creations, runs and execs of resting sandboxes may wait for memory; further ones are refused at once.
    pub queue: u32,
    /// How long each of them waits before it is refused.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub wait: Duration,
}

impl Default for Admission {
    fn default() -> Self {
        Admission { memory: None, queue: 1_000, wait: Duration::from_secs(10) }
    }
}

impl Admission {
    /// The memory to promise on a machine that has this much, of which the server needs some for request bodies.
    pub fn memory_on(&self, machine: ByteSize, bodies: ByteSize) -> ByteSize {
        let machine = machine.as_u64();
        let kept_back = (machine / 5).max(bodies.as_u64());
        self.memory.unwrap_or_else(|| ByteSize::bytes(machine.saturating_sub(kept_back)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_machine_is_kept_back() {
        let bodies = ByteSize::gib(2);
        assert_eq!(Admission::default().memory_on(ByteSize::gib(10), bodies), ByteSize::gib(8));
        assert_eq!(Admission::default().memory_on(ByteSize::gib(5), bodies), ByteSize::gib(3));
        let set = Admission { memory: Some(ByteSize::gib(40)), ..Admission::default() };
        assert_eq!(set.memory_on(ByteSize::gib(10), bodies), ByteSize::gib(40));
    }
}
