//! What a run requires, in place before it is compiled or started.

use sandstorm_provider::{Error, OpContext, Result};
use sandstorm_types::{Enforcement, ErrorKind, RunSpec};
use tokio::sync::mpsc;

use crate::layers::{Layer, Site, Wanted};
use crate::prepare::Prepared;
use crate::run::{RunEvent, Runner};

/// Makes compiles with different layers different compiles: the compile cache looks at a plan's variables.
const LAYER_VARIABLE: &str = "LAYER_KEY";

impl Runner {
    /// Gets the layer of a run that requires packages and shows it to its compile and its run.
    pub(crate) async fn require(
        &self,
        cx: &OpContext,
        spec: &RunSpec,
        prepared: &mut Prepared,
        events: Option<&mpsc::Sender<RunEvent>>,
    ) -> Result<Option<Layer>> {
        let Some(recipe) = prepared.recipe else { return Ok(None) };
        let layers = self.layers.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::InvalidRequest, "packages cannot be installed without a state directory")
        })?;
        let wanted = Wanted {
            recipe,
            toolchain: &prepared.toolchain,
            requirements: &spec.requirements,
            enforcement: spec.enforcement.unwrap_or(Enforcement::Strict),
        };
        let site = Site { provider: &*self.workshop, roots: &self.toolchains.roots, cx, events };
        let layer = layers.provide(site, wanted).await?;
        prepared.layers.push(layer.mount.clone());
        if let Some(compile) = &mut prepared.compile {
            compile.plan.env.insert(LAYER_VARIABLE.to_owned(), layer.key.clone());
        }
        Ok(Some(layer))
    }
}
