//! The way to the other server: one client, what it can do, and which of its sandboxes are ours.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use sandstorm_client::{Client, Exec as TheirExec, Sandbox as Theirs, SandboxQuery, ServerLimits};
use sandstorm_provider::{Error, Events, ExecInput, ProviderInfo, Result, Tasks, UnderWay};
use sandstorm_types::{Capabilities, ErrorKind, ExecId, SandboxId, SnapshotId};

use super::config::{ApiKey, Config, Owner};
use super::error::{no_sandbox, of};
use super::places::{Place, Places, Running};
use super::{input, view};

/// Sandboxes that are asked for a program at the same time.
const AT_ONCE: usize = 8;
/// More pages than this are no list.
pub(super) const MOST_PAGES: usize = 1000;

/// What every operation has in common.
#[derive(Debug)]
pub(super) struct Far {
    pub(super) client: Client,
    pub(super) info: ProviderInfo,
    pub(super) owner: Owner,
    pub(super) can: Capabilities,
    pub(super) limits: ServerLimits,
    pub(super) lease: Duration,
    pub(super) places: Arc<Places>,
    pub(super) events: Events,
    pub(super) tasks: Tasks,
    /// Snapshots that they were asked for and have not answered.
    pub(super) saving: UnderWay<SnapshotId>,
}

impl Far {
    /// Reads what the server can do.
    pub(super) async fn meet(config: Config) -> Result<Self> {
        let key = config.key.as_ref().map(ApiKey::expose_secret);
        let client = Client::with_options(&config.url, key, config.client_options()).map_err(of)?;
        let (can, limits) = tokio::try_join!(client.capabilities(), client.server_limits()).map_err(of)?;
        if !can.exec && !can.files {
            return Err(Error::new(
                ErrorKind::Provider,
                "the server does not tell what it can do: it is too old",
            ));
        }
        let info =
            ProviderInfo { name: config.name, kind: "sandstorm".to_owned(), region: config.region.clone() };
        Ok(Self {
            client,
            info,
            owner: config.owner,
            can: offered(can, &limits),
            lease: config.lease.min(limits.lifetime_max),
            limits,
            places: Arc::default(),
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
        let theirs = found.first().ok_or_else(|| no_sandbox(ours))?;
        Ok(self.places.add(view::place(*ours, theirs)?))
    }

    /// Living sandboxes there that carry this id of ours: one, unless something went wrong.
    pub(super) async fn find(&self, ours: &SandboxId) -> Result<Vec<Theirs>> {
        let found = self.with_id(ours, self.all()).await?;
        Ok(found.into_iter().filter(|theirs| !view::is_gone(theirs.state)).collect())
    }

    /// The same with those that ended.
    pub(super) async fn find_all(&self, ours: &SandboxId) -> Result<Vec<Theirs>> {
        self.with_id(ours, SandboxQuery { include_ended: true, ..self.all() }).await
    }

    async fn with_id(&self, ours: &SandboxId, mut query: SandboxQuery) -> Result<Vec<Theirs>> {
        query.labels.insert(self.owner.id_key(), ours.to_string());
        let page = self.client.sandboxes(&query).await.map_err(of)?;
        let ours = |theirs: &Theirs| view::our_id(&self.owner, theirs) == Some(*ours);
        Ok(page.items.into_iter().filter(ours).collect())
    }

    /// Asks for everything that has our mark.
    pub(super) fn all(&self) -> SandboxQuery {
        let labels = [self.owner.label()].into();
        SandboxQuery { labels, limit: Some(200), ..SandboxQuery::default() }
    }

    /// One of our programs, looked for in our sandboxes if it is not remembered.
    pub(super) async fn running(self: &Arc<Self>, exec: &ExecId) -> Result<Arc<Running>> {
        if let Some(running) = self.places.exec(exec) {
            return Ok(running);
        }
        self.learn_all().await?;
        let asked = stream::iter(self.places.all()).map(|place| async move {
            let view = self.client.exec_view(place.theirs(), *exec).await;
            (place, view)
        });
        let mut asked = asked.buffer_unordered(AT_ONCE);
        let mut failure = None;
        while let Some((place, view)) = asked.next().await {
            match view {
                Ok(view) if view.id == *exec => return Ok(self.found(*exec, place, &view)),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => failure = Some(of(error)),
            }
        }
        // Where somebody could not be asked, nobody knows that it is not there.
        Err(failure.unwrap_or_else(|| {
            Error::new(ErrorKind::NotFound, "there is no such program").with("exec", exec)
        }))
    }

    /// A program that an earlier one of us started. Whether it takes input only writing to it tells.
    fn found(self: &Arc<Self>, exec: ExecId, place: Place, view: &TheirExec) -> Arc<Running> {
        let output = view.replay.then(|| place.output());
        let (input, frames) = ExecInput::channel(input::WAITING);
        let running = Arc::new(Running::new(exec, place, Some(input), output));
        match view.running {
            true => self
                .tasks
                .start("feed a program", input::feed(Arc::clone(self), Arc::clone(&running), frames)),
            false => running.over.cancel(),
        }
        self.places.add_exec(Arc::clone(&running));
        running
    }

    /// Learns of every sandbox that has our mark.
    async fn learn_all(&self) -> Result<()> {
        let mut query = self.all();
        for _ in 0..MOST_PAGES {
            let page = self.client.sandboxes(&query).await.map_err(of)?;
            for theirs in &page.items {
                if let Some(ours) = view::our_id(&self.owner, theirs) {
                    self.places.add(view::place(ours, theirs)?);
                }
            }
            match page.next_cursor {
                Some(cursor) => query.cursor = Some(cursor),
                None => return Ok(()),
            }
        }
        Err(super::error::senseless("its list of sandboxes has no end"))
    }
}

/// What can be carried of what the server can do.
fn offered(can: Capabilities, limits: &ServerLimits) -> Capabilities {
    let ceiling = limits.ceiling;
    Capabilities {
        exec_channel: false,
        exec_code: true,
        host_trees: false,
        snapshot_memory: false,
        writable_root: false,
        // Sandboxes there live on our lease, so that their lifetime is whoever's asked us.
        lifetime: false,
        max_lifetime_seconds: None,
        max_memory: Some(ceiling.memory),
        max_milli_cpus: Some(ceiling.cpus.milli()),
        max_disk: Some(ceiling.disk),
        ..can
    }
}
