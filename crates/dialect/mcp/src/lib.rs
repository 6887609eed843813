//! The Model Context Protocol, over control: sandboxes as tools for any assistant.
//!
//! One handler serves every transport: standard input and output, streamable HTTP (with sessions on the older revisions,
//! without on the newest) and WebSocket. What is written here is the protocol's side: tools with their arguments and
//! answers, resources, prompts, completions. Every rule about what is allowed lives in `control`.
//!
//! State is by handle: a tool's answer names the sandbox and the context that it used. A client that has a session, or a
//! pipe of its own, also has a sandbox of its own ([`home`]), which is used where no handle is given and goes with it.

mod answer;
mod bodies;
mod call;
mod completion;
mod doors;
mod fixtures;
mod handles;
mod home;
mod http;
#[cfg(test)]
mod leaving_tests;
mod progress;
mod prompts;
mod refusal;
mod resources;
mod rest_tools;
mod server;
mod sessions;
mod settings;
mod stdio;
mod tasks;
mod text;
mod tools;
mod uri;
mod websocket;

pub use http::{METADATA, open_router, router};
pub use server::Server;
pub use settings::{McpSettings, Toolset};
pub use stdio::{StdioError, serve_stdio};
