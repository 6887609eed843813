//! What a run requires, in place before it is compiled or started.

use async_trait::async_trait;
use sandstorm_fleet::Trees;
use sandstorm_provider::{Error, HostMount, OpContext, Result};
use sandstorm_types::{Enforcement, ErrorKind, RunSpec};
use tokio::sync::{Mutex, mpsc};

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
        let layer = self.layer(cx, spec, prepared, events).await?;
        if let Some(layer) = &layer {
            prepared.show(layer);
        }
        Ok(layer)
    }

    /// The layer of a run that requires packages, made unless it is there.
    async fn layer(
        &self,
        cx: &OpContext,
        spec: &RunSpec,
        prepared: &Prepared,
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
        let site = Site {
            provider: &*self.workshop,
            roots: &self.toolchains.roots,
            cx,
            events,
            room: prepared.reserve.as_ref().map(|reserve| reserve.build),
        };
        layers.provide(site, wanted).await.map(Some)
    }
}

impl Prepared {
    /// Its compile and its run see this layer.
    pub(crate) fn show(&mut self, layer: &Layer) {
        self.layers.push(layer.mount.clone());
        if let Some(compile) = &mut self.compile {
            compile.plan.env.insert(LAYER_VARIABLE.to_owned(), layer.key.clone());
        }
    }
}

/// The layer of a run that may go elsewhere, where it would be made for nothing.
pub(crate) struct LateLayer<'a> {
    pub(crate) runner: &'a Runner,
    pub(crate) spec: &'a RunSpec,
    pub(crate) prepared: &'a Prepared,
    pub(crate) events: Option<&'a mpsc::Sender<RunEvent>>,
    pub(crate) made: Mutex<Option<Layer>>,
}

#[async_trait]
impl Trees for LateLayer<'_> {
    async fn make(&self, cx: &OpContext) -> Result<Vec<HostMount>> {
        let mut made = self.made.lock().await;
        if made.is_none() {
            *made = self.runner.layer(cx, self.spec, self.prepared, self.events).await?;
        }
        Ok(made.iter().map(|layer| layer.mount.clone()).collect())
    }
}
