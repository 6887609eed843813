//! What can be typed after `sandstorm serve`.

use clap::Args;

/// `sandstorm serve`.
#[derive(Debug, Default, Args)]
#[command(
    after_help = "SIGTERM ends the server and keeps its sandboxes for the next one, as an upgrade needs it. SIGINT \
                  (Ctrl-C) ends both."
)]
pub(crate) struct ServeCommand {
    /// Address to listen on [default: 127.0.0.1:7300]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Address for operators' routes, beside the socket in the state directory
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin_listen: Option<String>,
    /// Ask for no keys; only on loopback addresses
    #[arg(long)]
    pub(crate) dev_no_auth: bool,
    /// Offer what the MCP conformance suite wants to find
    #[arg(long, hide = true)]
    pub(crate) conformance_fixtures: bool,
}
