//! Making a sandbox there: once for each id, checked, and taken back when nobody wants it any more.

use std::sync::Arc;
use std::time::Duration;

use sandstorm_e2b_wire::Code;
use sandstorm_provider::{CreateOptions, Error, OpContext, Result, Sandbox};
use sandstorm_types::{ErrorKind, GuestPath, Retry, SandboxId, SandboxSpec};
use tokio_util::sync::CancellationToken;

use super::cloud::Cloud;
use super::error::{Failure, of, senseless};
use super::places::{Making, Place, exists};
use super::view::{Access, Condition, Listed, Marks, TheirId, is_new_enough};

/// How long taking back may take when nobody waits for it.
const TAKING_BACK: Duration = Duration::from_secs(60);
/// How long after its creation a sandbox may be missing in a list.
const LATE: Duration = Duration::from_millis(500);

/// What came of a creation.
enum Inspected {
    New(Box<Listed>),
    /// There is one of this id already, beside this new one.
    Another(TheirId),
}

impl Cloud {
    pub(super) async fn create(
        self: &Arc<Self>,
        cx: &OpContext,
        spec: &SandboxSpec,
        opts: CreateOptions,
    ) -> Result<Sandbox> {
        cx.check("create").map_err(Error::with_not_started)?;
        self.check_wanted(spec, &opts)?;
        let making = self.places.begin(opts.id)?;
        let (cloud, spec) = (Arc::clone(self), spec.clone());
        let work = async move |gone| cloud.make(&spec, &opts, making, &gone).await;
        self.tasks.make(cx, "create", work).await
    }

    /// Refuses what cannot be had there.
    fn check_wanted(&self, spec: &SandboxSpec, opts: &CreateOptions) -> Result<()> {
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
        let earlier = self.places.unsure(&opts.id);
        let attempt = earlier.clone().unwrap_or_else(|| SandboxId::random().bare());
        if earlier.is_some()
            && let Some(found) = self.find(&opts.id).await?.into_iter().next()
        {
            let theirs = self.client.sandbox(&found.id).await.map_err(of)?;
            return self.made(theirs, making, attempt, gone).await;
        }
        let template = self.template_there(&spec.template).await?;
        // By its key an attempt that is repeated makes nothing twice.
        let key = format!("{}-{}-{attempt}", self.owner, opts.id.bare());
        let access = match self.client.create(&self.wanted(spec, opts, &template, &attempt), &key).await {
            Ok(access) => access,
            Err(failure) => {
                let error = refused(failure, opts.id);
                if !error.is_not_started() {
                    making.unsure(attempt);
                }
                return Err(error);
            }
        };
        match self.inspect(&opts.id, access, &attempt).await {
            Ok(Inspected::New(theirs)) => self.made(*theirs, making, attempt, gone).await,
            Ok(Inspected::Another(new)) => {
                self.take_back(&new, making, attempt).await;
                Err(exists(opts.id))
            }
            Err(error) => {
                making.unsure(attempt);
                Err(began(error))
            }
        }
    }

    /// What they made, as their list shows it: the answer to a creation says nothing of whose it is, and only a list tells
    /// whether an earlier one of us made one of this id.
    async fn inspect(&self, id: &SandboxId, access: Access, attempt: &str) -> Result<Inspected> {
        let marks = Marks(&self.owner);
        for wait in [Duration::ZERO, LATE] {
            tokio::time::sleep(wait).await;
            let found = self.find(id).await?;
            let another = found.iter().any(|theirs| marks.attempt_of(theirs) != Some(attempt));
            if let Some(mut theirs) = found.into_iter().find(|theirs| theirs.id == access.id) {
                if another {
                    return Ok(Inspected::Another(access.id));
                }
                (theirs.token, theirs.domain) = (access.token, access.domain);
                return Ok(Inspected::New(Box::new(theirs)));
            }
        }
        // It may be anybody's: it is neither taken on nor touched.
        Err(senseless("the new sandbox does not carry our marks"))
    }

    /// Takes a new sandbox on, or takes it back.
    async fn made(
        &self,
        theirs: Listed,
        making: Making,
        attempt: String,
        gone: &CancellationToken,
    ) -> Result<Sandbox> {
        let (id, marks) = (making.ours, Marks(&self.owner));
        if marks.id(&theirs) != Some(id) || marks.attempt_of(&theirs) != Some(&attempt) {
            return Err(exists(id));
        }
        let error = match self.ready(id, &theirs).await {
            Ok((place, seen)) if !gone.is_cancelled() => {
                making.made(place);
                return Ok(seen);
            }
            Ok(_) => Error::new(ErrorKind::Cancelled, "the caller gave up"),
            Err(error) => began(error),
        };
        self.take_back(&theirs.id, making, attempt).await;
        Err(error)
    }

    /// Ends a sandbox that nobody wants.
    async fn take_back(&self, theirs: &TheirId, making: Making, attempt: String) {
        let back = tokio::time::timeout(TAKING_BACK, self.end(theirs)).await;
        if matches!(back, Ok(Ok(()))) {
            // Somebody who looked meanwhile may have seen it.
            self.places.forget(&making.ours);
        } else {
            tracing::warn!(sandbox = %making.ours, %theirs, "a sandbox that nobody wants could not be ended");
            making.unsure(attempt);
        }
    }

    /// Whether it is one that can be used: it runs, its agent answers, and there is a workspace.
    async fn ready(&self, id: SandboxId, theirs: &Listed) -> Result<(Place, Sandbox)> {
        if theirs.state != Condition::Running {
            return Err(senseless("the new sandbox does not run"));
        }
        if !is_new_enough(&theirs.agent_version) {
            let message = "the template's agent is too old: build the template anew";
            return Err(Error::new(ErrorKind::Provider, message));
        }
        let place = self.place_of(id, theirs)?;
        let seen = self.seen(id, theirs)?;
        match self.make_folder(&place, &GuestPath::workspace()).await {
            Ok(()) => {}
            Err(failure) if failure.has_code(Code::AlreadyExists) => {}
            Err(failure) => return Err(of(failure)),
        }
        Ok((place, seen))
    }
}

/// Why nothing was made. Somebody else may allow what they do not, and may have the template.
fn refused(failure: Failure, id: SandboxId) -> Error {
    let template = failure.is_not_found();
    let error = of(failure).with("sandbox", id);
    match error.kind() {
        ErrorKind::InvalidRequest => error.with_retry(Retry::Elsewhere),
        ErrorKind::NotFound if template => {
            let message = "there is no such template there, for all the configuration says";
            Error::new(ErrorKind::InvalidRequest, message)
                .with_retry(Retry::Elsewhere)
                .with_not_started()
                .with_source(error)
        }
        _ => error,
    }
}

/// The same failure of something that had begun.
fn began(error: Error) -> Error {
    match error.is_not_started() || error.kind() == ErrorKind::NotFound {
        true => {
            Error::new(ErrorKind::Provider, "the sandbox was made, but cannot be used").with_source(error)
        }
        false => error,
    }
}
