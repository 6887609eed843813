//! `port_url`: how a server inside a sandbox is reached.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Hints, Tool};
use crate::answer::Answer;
use crate::call::Call;
use crate::handles;
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct PortUrl;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// The sandbox.
    sandbox_id: String,
    /// The port that a program in it listens on.
    #[schemars(range(min = 1, max = 65535))]
    port: u16,
}

/// Where it is reached.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Url {
    url: String,
    /// Whether whoever opens it has to send the key of this account as `Authorization: Bearer`.
    needs_key: bool,
}

impl Tool for PortUrl {
    const NAME: &'static str = "port_url";
    const TITLE: &'static str = "Address of a port";
    const DESCRIPTION: &'static str = "Gives the address at which a server that runs in a sandbox is reached from outside. Start the server \
        first, with sandbox_exec in the background, listening on the port.";
    const HINTS: Hints = Hints::LOOKS;
    type Input = Input;
    type Output = Url;

    async fn call(call: Call, input: Input) -> Result<Answer<Url>, Refusal> {
        let sandbox = handles::sandbox(&input.sandbox_id)?;
        if input.port == 0 {
            return Err(Refusal::argument("`port` has to be from 1 to 65535"));
        }
        // Refuses what is not theirs, or gone.
        call.control().sandbox(&call.caller, sandbox).await?;
        let (url, needs_key) = match &call.base_url {
            Some(base) => (format!("{base}/v1/sandboxes/{sandbox}/ports/{}/", input.port), true),
            None => (call.shared.doors.open(&call.caller, sandbox, input.port).await?, false),
        };
        let how = if needs_key { " Whoever opens it sends the key of this account." } else { "" };
        let text = format!("Port {} of {sandbox} is at {url}.{how}", input.port);
        Ok(Answer::new(Url { url, needs_key }, text))
    }
}
