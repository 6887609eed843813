//! One call of a tool: who calls, for which client, and what it may use.

use std::sync::Arc;
use std::time::Duration;

use sandstorm_control::server::{Caller, Control};

use crate::home::Home;
use crate::progress::{Progress, told};
use crate::refusal::Refusal;
use crate::server::Shared;

/// The longest that a call may ask to wait.
const LONGEST: f64 = 3600.0;

#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) shared: Arc<Shared>,
    pub(crate) caller: Caller,
    /// The client's own sandbox, where it can have one.
    pub(crate) home: Option<Arc<Home>>,
    pub(crate) progress: Option<Progress>,
    /// Where this server is reached, as the client sees it; `None` over pipes.
    pub(crate) base_url: Option<String>,
}

impl Call {
    pub(crate) fn control(&self) -> &Control {
        &self.shared.control
    }

    /// Waits for something that may take long, and says so meanwhile.
    pub(crate) async fn wait<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        told(self.progress.as_ref(), what, work).await
    }
}

/// Seconds as an argument.
pub(crate) fn seconds(name: &str, value: f64) -> Result<Duration, Refusal> {
    if value > 0.0 && value <= LONGEST {
        return Ok(Duration::from_secs_f64(value));
    }
    Err(Refusal::argument(format!(
        "`{name}` has to be more than 0 and at most {LONGEST} seconds, not {value}"
    )))
}
