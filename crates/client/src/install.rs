//! Packages for a sandbox that lives.

use std::time::Duration;

use sandstorm_types::{Requirement, SandboxId};
use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::{Client, Result};

/// How long it may take: to wait for memory, to resolve and to install.
const INSTALLING: Duration = Duration::from_secs(1800);

/// Packages to install.
#[derive(Debug, Clone, Serialize)]
pub struct NewInstall {
    /// `pip` or `npm`.
    pub manager: String,
    pub packages: Vec<Requirement>,
}

/// What was installed, and where.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Installed {
    pub manager: String,
    pub packages: Vec<String>,
    /// The folder of the sandbox that the packages are in.
    pub place: String,
    /// The folder of their programs, where that is another one.
    #[serde(default)]
    pub programs: Option<String>,
}

impl Client {
    /// Installs packages into a living sandbox, whatever its network.
    pub async fn install(&self, sandbox: SandboxId, new: &NewInstall) -> Result<Installed> {
        let call = Call::post(self.sandbox_url(sandbox, &["install"])).json(new).once();
        self.ask(call.within(INSTALLING)).await
    }
}
