//! What the operator decides about the HTTP surface.

use std::time::Duration;

use sandstorm_provider::Closing;
use sandstorm_types::Limits;

/// Settings of the routes. [`Default`] is what a loopback server uses.
#[derive(Debug, Clone)]
pub struct GatewaySettings {
    /// Every caller is the local developer. Only for loopback listeners: `Host` and `Origin` are checked then, because
    /// any web page that the developer opens can reach a loopback port.
    pub dev_no_auth: bool,
    /// Names under which the server may be called, with or without port. Empty: any, unless `dev_no_auth`.
    pub allowed_hosts: Vec<String>,
    /// Web origins (`https://app.example.com`) that may call from a browser.
    pub allowed_origins: Vec<String>,
    /// Whether clients reach it by TLS.
    pub secure: bool,
    /// Whether `/metrics` needs a key.
    pub metrics_auth: bool,
    /// Largest JSON body of the routes that carry code and files; others take less.
    pub json_limit: usize,
    /// Longest pause between two pieces of a request body.
    pub body_pause: Duration,
    /// Longest time for the whole of a JSON body.
    pub body_time: Duration,
    /// A terminal or forwarded connection on which nothing moves for this long is closed.
    pub idle: Duration,
    /// Limits that `/v1/limits` tells.
    pub limits: Limits,
    pub ceiling: Limits,
    pub longest_lifetime: Duration,
    /// Cancelled when the server stops: endless streams end then, work under way goes on.
    pub closing: Closing,
    /// Over when a server that stops waits no longer: whoever has no answer by then is told that there will be none.
    pub giving_up: Closing,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            dev_no_auth: false,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            secure: false,
            metrics_auth: false,
            json_limit: 16 << 20,
            body_pause: Duration::from_secs(30),
            body_time: Duration::from_secs(120),
            idle: Duration::from_secs(30 * 60),
            limits: Limits::default(),
            ceiling: Limits::default(),
            longest_lifetime: Duration::from_secs(24 * 3600),
            closing: Closing::default(),
            giving_up: Closing::default(),
        }
    }
}
