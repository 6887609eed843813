//! What the operator decides about sessions. Older systems took the same from `SANDBOX_…` variables.

use std::time::Duration;

use sandstorm_types::ByteSize;

/// Limits and surroundings of sessions and handlers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSettings {
    /// Processor time of each process of an execution, in whole seconds (rounded up); `None` is no limit of its own. It
    /// does not bind the interpreter of a persistent session, which lives from one execution to the next.
    pub cpu_time: Option<Duration>,
    /// Memory of the programs. Files live in memory too, so that a session is promised this and its size.
    pub memory: ByteSize,
    /// Whether each process of a session is held to `cpu_time` and `memory` by itself too, by the shell's `ulimit`. A
    /// program that wants too much then fails alone; the limit of the sandbox ends the session and its files.
    pub process_limits: bool,
    /// Whether the public internet can be reached.
    pub network: bool,
    /// Time by the clock of an execution, and of a handler that asks for none.
    pub timeout: Duration,
    /// Processes and threads alive at once.
    pub processes: u32,
    /// How long a session lives; it is deleted then, with its files.
    pub expiration: Duration,
    /// The Python of the sandbox: a path, or a name that is looked up there.
    pub python: String,
    /// The shell of the sandbox, likewise.
    pub shell: String,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            cpu_time: Some(Duration::from_secs(300)),
            memory: ByteSize::mib(512),
            process_limits: true,
            network: false,
            timeout: Duration::from_secs(300),
            processes: 100,
            expiration: Duration::from_secs(86_400),
            python: "python3".to_owned(),
            shell: "bash".to_owned(),
        }
    }
}
