//! A provider in memory that has bad days.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use sandstorm_catalog::Catalog;
use sandstorm_fleet::{Fleet, FleetSettings, Member};
use sandstorm_provider::altered::{Alteration, Altered};
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_provider::{
    CreateOptions, EndCause, Error, Exec, ExecEnd, ExecEvent, ExecRequest, OpContext, Provider, Result,
    Sandbox, Tasks,
};
use sandstorm_types::{ErrorKind, SandboxId, SandboxSpec};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Fine,
    /// Every creation fails so, and nothing was made.
    Fails(ErrorKind),
    /// Makes the sandbox and then says that it failed.
    Lies,
    /// Makes the sandbox and never says so.
    Hangs,
    /// Every so many-th creation fails.
    FailsEvery(usize),
    /// Makes every sandbox, and fails so when something is to run there.
    RunsNothing(ErrorKind),
    /// Makes every sandbox, and loses it with the program that runs there.
    Loses,
    /// The same for the first so many, and none of the others.
    LosesAtFirst(usize),
    /// Makes every sandbox, begins what is to run there, and says nothing more.
    GoesSilent,
}

#[derive(Debug)]
pub(crate) struct Moody {
    pub(crate) inner: MemoryProvider,
    mood: Mood,
    asked: AtomicUsize,
}

impl Moody {
    /// Creations that it was asked for.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// A fleet of these, and they themselves.
pub(crate) fn fleet(moods: &[(&str, Mood)]) -> (Arc<Fleet>, Vec<Arc<Altered<Moody>>>) {
    let settings = FleetSettings { patience: Duration::from_millis(300), ..FleetSettings::default() };
    fleet_with(settings, moods)
}

pub(crate) fn fleet_with(
    settings: FleetSettings,
    moods: &[(&str, Mood)],
) -> (Arc<Fleet>, Vec<Arc<Altered<Moody>>>) {
    let catalogue = Catalog::embedded();
    let entry = Arc::new(catalogue.get("local").expect("this machine has a page").clone());
    let make = |(name, mood): &(&str, Mood)| {
        let inner = MemoryProvider::named(name);
        Arc::new(Altered(Moody { inner, mood: *mood, asked: AtomicUsize::new(0) }))
    };
    let all: Vec<Arc<Altered<Moody>>> = moods.iter().map(make).collect();
    let members = all.iter().map(|one| Member::new(Arc::clone(one) as Arc<dyn Provider>, Arc::clone(&entry)));
    (Fleet::new(members.collect(), settings, 7, Tasks::default()), all)
}

#[async_trait]
impl Alteration for Moody {
    fn original(&self) -> &dyn Provider {
        &self.inner
    }

    async fn create(&self, cx: &OpContext, spec: &SandboxSpec, opts: CreateOptions) -> Result<Sandbox> {
        let turn = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let bad = |kind| Error::new(kind, "a bad day").with_not_started();
        match self.mood {
            Mood::Fine | Mood::RunsNothing(_) | Mood::Loses | Mood::LosesAtFirst(_) | Mood::GoesSilent => {
                self.inner.create(cx, spec, opts).await
            }
            Mood::Fails(kind) => Err(bad(kind)),
            Mood::FailsEvery(n) if turn.is_multiple_of(n) => Err(bad(ErrorKind::Provider)),
            Mood::FailsEvery(_) => self.inner.create(cx, spec, opts).await,
            Mood::Lies => {
                self.inner.create(cx, spec, opts).await?;
                Err(Error::new(ErrorKind::Provider, "the answer was lost"))
            }
            Mood::Hangs => {
                self.inner.create(cx, spec, opts).await?;
                cx.run("create", std::future::pending()).await
            }
        }
    }

    async fn exec(&self, cx: &OpContext, id: &SandboxId, req: ExecRequest) -> Result<Exec> {
        if let Mood::RunsNothing(kind) = self.mood {
            return Err(Error::new(kind, "it makes no sense"));
        }
        let exec = self.inner.exec(cx, id, req).await?;
        let mood = match self.mood {
            Mood::LosesAtFirst(many) if self.asked() <= many => Mood::Loses,
            mood => mood,
        };
        let altered = exec.events.filter_map(move |event| async move {
            match (mood, event) {
                (Mood::Loses, Ok(ExecEvent::Exited(end))) => {
                    Some(Ok(ExecEvent::Exited(ExecEnd { cause: EndCause::Sandbox, ..end })))
                }
                (Mood::GoesSilent, Ok(ExecEvent::Exited(_))) => None,
                (_, event) => Some(event),
            }
        });
        Ok(Exec { events: altered.boxed(), ..exec })
    }
}
