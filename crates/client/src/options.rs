//! How a client behaves towards its server.

use std::time::Duration;

/// What a client waits for, how much it takes, and whether it tries again. [`Default`] suits a person at a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientOptions {
    /// How long a connection may take to be made.
    pub connect: Duration,
    /// How long an ordinary call may take: creating a sandbox may have to wait for memory.
    pub answer: Duration,
    /// How long a stream may be silent. The server sends a comment every 15 s.
    pub silence: Duration,
    /// For how long a broken stream of what is kept is connected anew.
    pub patience: Duration,
    /// Whether harmless calls wait and are repeated when the server says that it is busy. Otherwise that is an error,
    /// for callers who can go elsewhere.
    pub repeats: bool,
    /// Most bytes of an answer that is not a stream.
    pub most_answer: usize,
    /// Most bytes of one event of a stream.
    pub most_event: usize,
    /// One connection for each stream, so that one which is not read holds up no other.
    pub http1_only: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(120),
            silence: Duration::from_secs(60),
            patience: Duration::from_secs(120),
            repeats: true,
            most_answer: 64 << 20,
            most_event: 64 << 20,
            http1_only: false,
        }
    }
}
