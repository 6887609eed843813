//! `sandbox_install`: packages for a sandbox that lives.

use sandstorm_control::server::NewInstall;
use sandstorm_types::Requirement;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Hints, Tool};
use crate::answer::Answer;
use crate::call::Call;
use crate::handles;
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Install;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// The sandbox to install into.
    sandbox_id: String,
    /// The package manager: `pip` for Python, `npm` for JavaScript.
    manager: String,
    /// Packages as the package manager spells them, such as `requests==2.32.3`.
    #[schemars(length(min = 1, max = 100))]
    packages: Vec<String>,
}

/// What was installed, and where.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    packages: Vec<String>,
    /// The folder of the sandbox that the packages are in.
    place: String,
}

impl Tool for Install {
    const NAME: &'static str = "sandbox_install";
    const TITLE: &'static str = "Install packages into a sandbox";
    const DESCRIPTION: &'static str = "Installs packages into a living sandbox, also one without a network. Programs and Python or \
        JavaScript code that run there can use them at once. Python packages come as wheels; install scripts do not run.";
    const HINTS: Hints = Hints::REPLACES;
    type Input = Input;
    type Output = Output;

    async fn call(call: Call, input: Input) -> Result<Answer<Output>, Refusal> {
        let sandbox = handles::sandbox(&input.sandbox_id)?;
        let package = |text: &String| {
            text.parse::<Requirement>().map_err(|error| Refusal::argument(format!("packages: {error}")))
        };
        let packages = input.packages.iter().map(package).collect::<Result<_, _>>()?;
        let new = NewInstall { manager: input.manager, packages };
        let installing = Box::pin(call.control().install(&call.caller, sandbox, new));
        let installed = call.wait("installing", installing).await?;
        let packages: Vec<String> = installed.packages.iter().map(ToString::to_string).collect();
        let text = format!("{} installed into {}", packages.join(", "), installed.place);
        Ok(Answer::new(Output { packages, place: installed.place }, text))
    }
}
