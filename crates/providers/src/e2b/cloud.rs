//! What every operation has in common: the account, what it can do, and which of its sandboxes are ours.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use sandstorm_provider::{Error, Events, ProviderEvent, ProviderInfo, Result, Tasks, UnderWay};
use sandstorm_types::{Capabilities, ErrorKind, LimitName, LimitSet, SandboxId, SnapshotId};

use super::client::Client;
use super::config::{Config, E2bTemplate, template_named};
use super::error::{Failure, no_sandbox, of, senseless};
use super::execs::Execs;
use super::places::{NewPlace, Place, Places};
use super::view::{Condition, Listed, Marks};
use crate::account::Owner;

/// More pages than this are no list.
pub(super) const MOST_PAGES: usize = 1000;

#[derive(Debug)]
pub(super) struct Cloud {
    pub(super) client: Client,
    pub(super) info: ProviderInfo,
    pub(super) owner: Owner,
    pub(super) can: Capabilities,
    pub(super) templates: BTreeMap<String, E2bTemplate>,
    pub(super) lease: Duration,
    pub(super) poll: Duration,
    pub(super) places: Arc<Places>,
    pub(super) execs: Execs,
    pub(super) events: Events,
    pub(super) tasks: Tasks,
    /// Snapshots that are being made.
    pub(super) saving: UnderWay<SnapshotId>,
}

impl Cloud {
    pub(super) fn new(config: Config) -> Result<Self> {
        let client = Client::new(&config)?;
        let can = offered(&config);
        let info = ProviderInfo { name: config.name, kind: "e2b".to_owned(), region: config.region };
        Ok(Self {
            client,
            info,
            owner: config.owner,
            can,
            templates: config.templates,
            lease: config.lease.min(config.max_lifetime).max(Duration::from_secs(1)),
            poll: config.poll,
            places: Arc::default(),
            execs: Execs::default(),
            events: Events::default(),
            tasks: Tasks::default(),
            saving: UnderWay::default(),
        })
    }

    /// Where one of our sandboxes is.
    pub(super) async fn place(&self, ours: &SandboxId) -> Result<Place> {
        if let Some(place) = self.places.get(ours) {
            return Ok(place);
        }
        let found = self.find(ours).await?;
        let listed = found.first().ok_or_else(|| no_sandbox(ours))?;
        // A list does not say what opens a sandbox.
        let theirs = self.client.sandbox(&listed.id).await.map_err(of)?;
        if Marks(&self.owner).id(&theirs) != Some(*ours) {
            return Err(senseless("it shows another sandbox"));
        }
        Ok(self.places.add(self.place_of(*ours, &theirs)?))
    }

    /// The place of a sandbox that they show with its token.
    pub(super) fn place_of(&self, ours: SandboxId, theirs: &Listed) -> Result<Place> {
        let marks = Marks(&self.owner);
        let token = theirs.token.as_deref();
        Ok(Place::new(NewPlace {
            ours,
            theirs: theirs.id.clone(),
            agent: self.client.agent(&theirs.id, theirs.domain.as_deref()).map_err(of)?,
            token: secret(token)?,
            limits: marks.limits_of(theirs)?,
            user: marks.user_of(theirs),
            paused: theirs.state == Condition::Paused,
        }))
    }

    /// Living sandboxes there that carry this id of ours: one, unless something went wrong.
    pub(super) async fn find(&self, ours: &SandboxId) -> Result<Vec<Listed>> {
        let ((owner, yes), id) = (self.owner.label(), ours.to_string());
        let query = Marks::query([(owner.as_str(), yes.as_str()), (&self.owner.id_key(), &id)]);
        let (page, _) = self.client.page(&query, None).await.map_err(of)?;
        let marks = Marks(&self.owner);
        Ok(page.into_iter().filter(|theirs| marks.id(theirs) == Some(*ours)).collect())
    }

    /// Asks for everything that has our mark.
    pub(super) fn all(&self) -> String {
        let (key, value) = self.owner.label();
        Marks::query([(key.as_str(), value.as_str())])
    }

    /// The failure of a call to a sandbox's agent. That the sandbox cannot be spoken to is looked into.
    pub(super) async fn of_agent(&self, place: &Place, failure: Failure, of: fn(Failure) -> Error) -> Error {
        match failure.refusal() {
            Some(refusal) if refusal.is_without_sandbox() => self.lost(place).await,
            _ => of(failure),
        }
    }

    /// Why a sandbox cannot be spoken to: it ended, it sleeps, or it is there and does not answer.
    pub(super) async fn lost(&self, place: &Place) -> Error {
        match self.look(place).await {
            Ok(None) => no_sandbox(place.ours()),
            Ok(Some(Condition::Paused)) => {
                let message =
                    "the sandbox is paused there and nothing in it runs; resume it before it is used";
                Error::new(ErrorKind::Conflict, message).with("sandbox", place.ours()).with_not_started()
            }
            Ok(Some(Condition::Running)) => {
                Error::new(ErrorKind::Provider, "the sandbox does not answer").with("sandbox", place.ours())
            }
            Err(error) => error,
        }
    }

    /// How a sandbox is; `None` when it is gone, which our listeners are told.
    pub(super) async fn look(&self, place: &Place) -> Result<Option<Condition>> {
        match self.client.sandbox(place.theirs()).await {
            Ok(theirs) => {
                place.seen_paused(theirs.state == Condition::Paused);
                Ok(Some(theirs.state))
            }
            Err(failure) if failure.is_not_found() => {
                self.gone(place, "the service ended it");
                Ok(None)
            }
            Err(failure) => Err(of(failure)),
        }
    }

    /// A sandbox is gone. What we end ourselves is no news.
    pub(super) fn gone(&self, place: &Place, reason: &str) {
        let news = !place.is_ending();
        if self.places.forget(&place.ours()) {
            self.execs.forget_all(&place.ours());
            if news {
                self.events.tell(ProviderEvent::Ended { sandbox: place.ours(), reason: reason.to_owned() });
            }
        }
    }
}

/// What opens a sandbox, for a header that is never shown.
pub(super) fn secret(token: Option<&str>) -> Result<HeaderValue> {
    let mut value = token
        .and_then(|token| HeaderValue::from_str(token).ok())
        .filter(|value| !value.is_empty())
        .ok_or_else(|| senseless("there is nothing that opens the sandbox"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// What can be had there. Sizes are the largest of all templates; each template is looked at by itself.
fn offered(config: &Config) -> Capabilities {
    let templates = || config.templates.values();
    let named = |host: bool| {
        config.templates.keys().any(|name| (template_named(name) == sandstorm_types::Template::Host) == host)
    };
    Capabilities {
        isolation: config.isolation,
        template_host: named(true),
        template_image: named(false),
        template_snapshot: true,
        snapshot_files: true,
        exec: true,
        exec_stdin: true,
        exec_tty: true,
        exec_background: true,
        exec_attach: true,
        exec_root: true,
        files: true,
        files_search: true,
        files_watch: true,
        usage: true,
        pause: true,
        network_none: true,
        network_allow: true,
        network_open: true,
        network_change: true,
        writable_root: true,
        limits: LimitSet::EMPTY.with(LimitName::Wall).with(LimitName::Output),
        max_memory: templates().map(|template| template.memory).max(),
        max_milli_cpus: templates().map(|template| template.cpus.milli()).max(),
        max_disk: templates().map(|template| template.disk).max(),
        max_lifetime_seconds: Some(config.max_lifetime.as_secs()),
        ..Capabilities::default()
    }
}
