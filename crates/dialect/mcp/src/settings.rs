//! What the operator decides about the protocol.

use std::collections::BTreeSet;
use std::time::Duration;

use sandstorm_provider::Closing;

/// Tools that are switched on together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Toolset {
    /// Code, sandboxes, commands, files, ports: always there.
    Core,
    /// Deleting, moving, uploading and downloading files.
    Files,
    /// Living sandboxes that go on in copies.
    Forks,
    /// Which languages there are and how packages are had, and packages for a living sandbox.
    Packages,
    /// The tools of SandboxRunner, under their own names.
    SandboxRunner,
}

impl Toolset {
    pub const ALL: [Self; 5] = [Self::Core, Self::Files, Self::Forks, Self::Packages, Self::SandboxRunner];

    pub fn name(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Files => "files",
            Self::Forks => "forks",
            Self::Packages => "packages",
            Self::SandboxRunner => "sandboxrunner",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.name() == name)
    }
}

/// Which tools there are, and how much of anything.
#[derive(Debug, Clone)]
pub struct McpSettings {
    /// Beside [`Toolset::Core`].
    pub toolsets: BTreeSet<Toolset>,
    /// Tools that are left out, by name.
    pub disabled: BTreeSet<String>,
    /// Bytes of one stream, or of a file, that an answer shows; a link leads to the rest.
    pub shown: usize,
    /// Bytes of one message.
    pub largest_message: usize,
    /// Calls of one client at the same time.
    pub calls_at_once: usize,
    /// How long the sandbox of a client lives at most, and after its last call.
    pub home_lifetime: Duration,
    pub home_idle: Duration,
    /// When a call becomes a task, for clients that know tasks.
    pub task_after: Duration,
    /// How long the result of a task is kept.
    pub task_kept: Duration,
    /// Also offers what the official conformance suite wants to find. Never for users.
    pub conformance_fixtures: bool,
    /// Web origins that may call from a browser.
    pub allowed_origins: Vec<String>,
    /// Whether clients reach it by TLS.
    pub secure: bool,
    /// A client of a session that has nothing open for so long is gone, and its calls end. Before that it may come back for
    /// the rest of an answer that broke off.
    pub gone_after: Duration,
    /// Where clients reach this server, if it is not where they say that they do.
    pub public_url: Option<String>,
    /// The server is going: streams end.
    pub closing: Closing,
}

impl Default for McpSettings {
    fn default() -> Self {
        Self {
            toolsets: BTreeSet::new(),
            disabled: BTreeSet::new(),
            shown: 32 * 1024,
            largest_message: 16 << 20,
            calls_at_once: 32,
            home_lifetime: Duration::from_secs(24 * 3600),
            home_idle: Duration::from_secs(30 * 60),
            task_after: Duration::from_secs(5),
            task_kept: Duration::from_secs(3600),
            conformance_fixtures: false,
            allowed_origins: Vec::new(),
            secure: false,
            gone_after: Duration::from_secs(30),
            public_url: None,
            closing: Closing::default(),
        }
    }
}

impl McpSettings {
    /// Bytes of a file that go into one message: in base64 they are a third more, and the message has more to say.
    pub(crate) fn largest_file(&self) -> usize {
        self.largest_message / 2
    }
}
