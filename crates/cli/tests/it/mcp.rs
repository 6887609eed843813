//! Assistants as clients: `sandstorm mcp` over pipes, and `/mcp` of a server.

mod conversation;
mod http;
mod modern;
mod pipe;
mod socket;
