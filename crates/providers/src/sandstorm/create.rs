//! Making a sandbox there: once for each id, checked, and taken back when nobody wants it any more.

use std::sync::Arc;
use std::time::Duration;

use sandstorm_client::{Created, NewSandbox, Sandbox as Theirs};
use sandstorm_provider::{CreateOptions, Error, OpContext, Result, Sandbox};
use sandstorm_types::{ErrorKind, Retry, SandboxId, SandboxSpec};
use tokio_util::sync::CancellationToken;

use super::client::Far;
use super::error::{of, senseless};
use super::places::{Making, exists};
use super::view;

/// How long taking back may take when nobody waits for it.
pub(super) const TAKING_BACK: Duration = Duration::from_secs(60);

impl Far {
    pub(super) async fn create(
        self: &Arc<Self>,
        cx: &OpContext,
        spec: &SandboxSpec,
        opts: CreateOptions,
    ) -> Result<Sandbox> {
        cx.check("create").map_err(Error::with_not_started)?;
        self.check_wanted(spec, &opts)?;
        let making = self.places.begin(opts.id)?;
        let (far, spec) = (Arc::clone(self), spec.clone());
        let work = async move |gone| far.make(&spec, &opts, making, &gone).await;
        self.tasks.make(cx, "create", work).await
    }

    /// Refuses what cannot be had there.
    pub(super) fn check_wanted(&self, spec: &SandboxSpec, opts: &CreateOptions) -> Result<()> {
        let mut unmet = self.unmet(spec);
        unmet.extend(opts.unmet_elsewhere());
        if unmet.is_empty() { Ok(()) } else { Err(Error::unmet(unmet)) }
    }

    async fn make(
        self: Arc<Self>,
        spec: &SandboxSpec,
        opts: &CreateOptions,
        making: Making,
        gone: &CancellationToken,
    ) -> Result<Sandbox> {
        let unsure = self.places.is_unsure(&opts.id);
        let template = self.template_there(&spec.template).await?;
        let new = NewSandbox { template: Some(template), ..self.wanted(spec, opts) };
        let created = self.client.create_sandbox_once(&new, &self.key(opts.id)).await;
        match created.map_err(of) {
            // Made by an earlier request of ours whose answer came; it is not this one's.
            Ok(Created { replayed: true, .. }) if !unsure => Err(exists(opts.id)),
            Ok(Created { sandbox, .. }) => self.made(spec, sandbox, making, gone).await,
            Err(error) => {
                if !error.is_not_started() {
                    making.unsure();
                }
                // Another server may allow what this one does not.
                Err(match error.kind() {
                    ErrorKind::InvalidRequest => error.with_retry(Retry::Elsewhere),
                    _ => error,
                })
            }
        }
    }

    /// Takes a new sandbox on, or takes it back.
    pub(super) async fn made(
        &self,
        spec: &SandboxSpec,
        theirs: Theirs,
        making: Making,
        gone: &CancellationToken,
    ) -> Result<Sandbox> {
        let id = making.ours;
        // What does not carry our labels may be anybody's: it is neither taken on nor touched.
        if view::our_id(&self.owner, &theirs) != Some(id) {
            making.unsure();
            return Err(senseless("the new sandbox does not carry our labels"));
        }
        let checked = self.check_made(spec, &theirs).and_then(|()| {
            let place = view::place(id, &theirs)?;
            // A snapshot has another id there.
            let seen = Sandbox { template: spec.template.clone(), ..self.seen(id, &theirs)? };
            Ok((place, seen))
        });
        let error = match checked {
            Ok((place, seen)) if !gone.is_cancelled() => {
                making.made(place);
                return Ok(seen);
            }
            Ok(_) => Error::new(ErrorKind::Cancelled, "the caller gave up"),
            Err(error) => error,
        };
        let back = tokio::time::timeout(TAKING_BACK, self.end(&id, theirs.id)).await;
        if matches!(back, Ok(Ok(()))) {
            // Somebody who listed meanwhile may have seen it.
            self.places.forget(&id);
        } else {
            tracing::warn!(sandbox = %id, theirs = %theirs.id, "a sandbox that nobody wants could not be ended");
            making.unsure();
        }
        Err(error)
    }

    /// What a creation is known by, so that repeating it makes nothing twice.
    pub(super) fn key(&self, id: SandboxId) -> String {
        format!("{}-{id}", self.owner)
    }
}
