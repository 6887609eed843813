//! Assistants as clients: `sandstorm mcp` over pipes, and `/mcp` of a server.

mod conversation;
pub mod http;
mod modern;
mod pipe;
mod socket;
