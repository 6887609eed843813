//! What goes over the wire between E2B's clients and servers: names, Connect's envelopes and codes, and the messages of the
//! agent inside a sandbox. No input and output, and no rules: the dialect serves it, the provider calls it.
//!
//! Messages are the JSON form of protocol buffers: fields in either spelling, zero values may be left out, unknown fields
//! are nobody's matter.

pub mod code;
pub mod envelope;
pub mod filesystem;
pub mod process;
pub mod signal;

pub use code::Code;

/// Headers that name the sandbox and the port a request is for.
pub const SANDBOX_HEADER: &str = "e2b-sandbox-id";
pub const PORT_HEADER: &str = "e2b-sandbox-port";
/// Carries the token that opens a sandbox's agent.
pub const ACCESS_TOKEN: &str = "x-access-token";
/// Names a creation, so that it is not done twice.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Seconds between two signs of life on a stream.
pub const KEEPALIVE_INTERVAL: &str = "keepalive-ping-interval";
/// How long a call may take, in milliseconds; for a program that is started, how long it may run.
pub const TIMEOUT: &str = "connect-timeout-ms";
/// The next page of a list, among the headers of an answer.
pub const NEXT_TOKEN: &str = "x-next-token";

/// Where the agent inside a sandbox listens.
pub const ENVD_PORT: u16 = 49983;
/// Where the code interpreter listens.
pub const INTERPRETER_PORT: u16 = 49999;

/// Types of the bodies of calls with one answer, and of streams.
pub const UNARY: &str = "application/json";
pub const STREAM: &str = "application/connect+json";

/// Words by which clients know that a sandbox is not there, or sleeps.
pub const NO_SANDBOX: &str = "was not found";
