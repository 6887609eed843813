//! The fleet as a provider: what is asked of a sandbox goes to whoever holds it.

use std::time::Instant;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::{self, BoxStream, FuturesUnordered};
use sandstorm_provider::{
    AttachFrom, ByteStream, CreateOptions, Duplex, Error, Exec, ExecRequest, ExecSignal, FileEvent, FileOp,
    FileReply, ForkOptions, Forked, ListFilter, Metered, OpContext, Placement, Provider, ProviderEvent,
    ProviderInfo, ReadRange, Refusals, Result, Sandbox, Snapshot, SnapshotOptions, Usage, WatchOptions,
    WriteOptions,
};
use sandstorm_types::{
    Capabilities, ErrorKind, ExecId, GuestPath, NetworkPolicy, SandboxId, SandboxSpec, SnapshotId,
    Transition, Unmet, Usd,
};

use crate::capabilities::either;
use crate::fleet::Fleet;
use crate::portable;

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Provider for Fleet {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> Capabilities {
        let all = self.members.iter().map(|member| member.provider.capabilities());
        all.reduce(either).unwrap_or_default()
    }

    /// One member that could is enough; otherwise the reasons of all, each with its name.
    fn admits(&self, spec: &SandboxSpec) -> Result<(), Vec<Unmet>> {
        let mut all = Vec::new();
        for member in &self.members {
            match member.provider.admits(spec) {
                Ok(()) => return Ok(()),
                Err(unmet) => all.extend(
                    unmet
                        .into_iter()
                        .map(|unmet| Unmet { why: format!("{}: {}", member.name(), unmet.why), ..unmet }),
                ),
            }
        }
        Err(all)
    }

    async fn create(&self, cx: &OpContext, spec: &SandboxSpec, opts: CreateOptions) -> Result<Sandbox> {
        let request = self.request(spec, opts.routing.as_deref());
        self.place(cx, spec, &opts, &request).await
    }

    async fn get(&self, cx: &OpContext, id: &SandboxId) -> Result<Sandbox> {
        self.holder(cx, id).await?.1.get(cx, id).await
    }

    /// One member that does not answer is an error among the others' sandboxes, not the end of the list.
    fn list(&self, cx: &OpContext, filter: ListFilter) -> BoxStream<'static, Result<Sandbox>> {
        let lists = self.members.iter().map(|member| {
            let info = member.provider.info().clone();
            let elsewhere = !member.provider.capabilities().host_trees;
            let listed = member.provider.list(cx, filter.clone());
            let placed = move |item: Result<Sandbox>| match item {
                Ok(sandbox) => Ok(Sandbox { placement: Some(found(&info, elsewhere)), ..sandbox }),
                Err(error) => Err(error.with_provider(&info.name)),
            };
            listed.map(placed).boxed()
        });
        stream::select_all(lists.collect::<Vec<_>>()).boxed()
    }

    fn events(&self) -> BoxStream<'static, ProviderEvent> {
        let homes = self.homes.clone();
        let all = self.members.iter().map(|member| member.provider.events());
        let noted = move |event: &ProviderEvent| {
            if let ProviderEvent::Ended { sandbox, .. } = event {
                homes.ended_itself(sandbox);
            }
        };
        stream::select_all(all.collect::<Vec<_>>()).inspect(noted).boxed()
    }

    fn refusals(&self, id: &SandboxId) -> Option<Box<dyn Refusals>> {
        self.homes.of(id).and_then(|place| self.members[place].provider.refusals(id))
    }

    async fn exec(&self, cx: &OpContext, id: &SandboxId, req: ExecRequest) -> Result<Exec> {
        let (place, provider) = self.holder(cx, id).await?;
        let exec = req.id;
        let req = portable::exec(provider.capabilities(), req)?;
        let began = Instant::now();
        match provider.exec(cx, id, req).await {
            Ok(begun) => {
                self.homes.note_exec(exec, *id, place);
                Ok(self.witnessed(place, *id, began, begun))
            }
            Err(error) => {
                self.blame(cx, place, id, began, &error).await;
                Err(error)
            }
        }
    }

    async fn attach(&self, cx: &OpContext, exec: &ExecId, from: AttachFrom) -> Result<Exec> {
        if let Some(provider) = self.runner(exec) {
            return provider.attach(cx, exec, from).await;
        }
        let mut last = no_exec(exec);
        for member in &self.members {
            match member.provider.attach(cx, exec, from).await {
                Ok(attached) => return Ok(attached),
                Err(error) if is_elsewhere(&error) => {}
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn signal(&self, cx: &OpContext, exec: &ExecId, signal: ExecSignal) -> Result<()> {
        if let Some(provider) = self.runner(exec) {
            return provider.signal(cx, exec, signal).await;
        }
        let mut last = no_exec(exec);
        for member in &self.members {
            match member.provider.signal(cx, exec, signal).await {
                Ok(()) => return Ok(()),
                Err(error) if is_elsewhere(&error) => {}
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn read_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        range: ReadRange,
    ) -> Result<ByteStream> {
        self.holder(cx, id).await?.1.read_file(cx, id, path, range).await
    }

    async fn write_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        opts: WriteOptions,
        body: ByteStream,
    ) -> Result<()> {
        self.holder(cx, id).await?.1.write_file(cx, id, path, opts, body).await
    }

    async fn files(&self, cx: &OpContext, id: &SandboxId, op: FileOp) -> Result<FileReply> {
        self.holder(cx, id).await?.1.files(cx, id, op).await
    }

    async fn watch(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        opts: WatchOptions,
    ) -> Result<BoxStream<'static, Result<FileEvent>>> {
        self.holder(cx, id).await?.1.watch(cx, id, path, opts).await
    }

    async fn connect(&self, cx: &OpContext, id: &SandboxId, port: u16) -> Result<Duplex> {
        self.holder(cx, id).await?.1.connect(cx, id, port).await
    }

    async fn usage(&self, cx: &OpContext, id: &SandboxId) -> Result<Usage> {
        self.holder(cx, id).await?.1.usage(cx, id).await
    }

    async fn transition(&self, cx: &OpContext, id: &SandboxId, to: Transition) -> Result<Sandbox> {
        self.holder(cx, id).await?.1.transition(cx, id, to).await
    }

    async fn set_network(&self, cx: &OpContext, id: &SandboxId, policy: NetworkPolicy) -> Result<()> {
        self.holder(cx, id).await?.1.set_network(cx, id, policy).await
    }

    async fn snapshot(&self, cx: &OpContext, id: &SandboxId, opts: SnapshotOptions) -> Result<Snapshot> {
        self.holder(cx, id).await?.1.snapshot(cx, id, opts).await
    }

    /// Wherever it may be: whoever does not have it has nothing to do.
    async fn delete_snapshot(&self, cx: &OpContext, id: &SnapshotId) -> Result<()> {
        let keeps = |can: Capabilities| can.snapshot_files || can.snapshot_memory;
        let all = self.members.iter().filter(|member| keeps(member.provider.capabilities()));
        let ends = join_all(all.map(|member| member.provider.delete_snapshot(cx, id))).await;
        ends.into_iter().find(Result::is_err).unwrap_or(Ok(()))
    }

    /// A fork is where its source is.
    async fn fork(&self, cx: &OpContext, id: &SandboxId, opts: ForkOptions) -> Result<Forked> {
        let (place, provider) = self.holder(cx, id).await?;
        let (new, can) = (opts.create.id, provider.capabilities());
        let spec = portable::spec(can, &opts.spec, &opts.create).into_owned();
        let create = portable::options(can, &opts.create);
        self.homes.trying(new, place);
        let mut forked = provider.fork(cx, id, ForkOptions { spec, create, ..opts }).await?;
        forked.sandbox.placement = Some(found(provider.info(), !can.host_trees));
        self.homes.settle(new, place);
        for exec in &forked.carried {
            self.homes.note_exec(*exec, new, place);
        }
        Ok(forked)
    }

    /// Everywhere that something of it may be. Of one that nobody here knows of, that is everywhere.
    async fn destroy(&self, cx: &OpContext, id: &SandboxId) -> Result<()> {
        self.homes.ends(id);
        let known = self.homes.all_of(id);
        let places = if known.is_empty() { (0..self.members.len()).collect() } else { known };
        let ends = places.iter().map(|place| self.members[*place].provider.destroy(cx, id));
        let mut failure = None;
        for (place, ended) in places.iter().zip(join_all(ends).await) {
            match ended {
                Ok(()) => self.homes.clean(*id, *place),
                Err(error) => {
                    // Whoever asked may not come again.
                    self.sweep(cx.tenant(), *id, *place);
                    failure = Some(error);
                }
            }
        }
        match failure {
            Some(error) => Err(error),
            None => {
                if let Some(place) = self.homes.forget(id) {
                    self.router().attempt_ends(self.members[place].name());
                }
                Ok(())
            }
        }
    }

    /// By all members that tell. Whoever wants to know it of one asks for that one.
    async fn metered(&self, cx: &OpContext, id: &SandboxId) -> Result<Option<Vec<Metered>>> {
        let mut all: Option<Vec<Metered>> = None;
        for told in join_all(self.members.iter().map(|member| member.provider.metered(cx, id))).await {
            if let Some(told) = told? {
                all.get_or_insert_default().extend(told);
            }
        }
        Ok(all)
    }

    /// One that is well is enough, and nobody waits for the others.
    async fn health(&self, cx: &OpContext) -> Result<()> {
        let mut all: FuturesUnordered<_> =
            self.members.iter().map(|member| member.provider.health(cx)).collect();
        let mut last = Error::new(ErrorKind::Capacity, "there are no providers");
        while let Some(answer) = all.next().await {
            match answer {
                Ok(()) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// A sandbox that was found where it is.
fn found(info: &ProviderInfo, elsewhere: bool) -> Placement {
    let (info, reason) = (info.clone(), "where the sandbox is".to_owned());
    Placement { info, reason, attempts: Vec::new(), elsewhere, cost: Usd::ZERO }
}

/// Whether another member may know it.
fn is_elsewhere(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound || !error.reasons().is_empty()
}

fn no_exec(exec: &ExecId) -> Error {
    Error::new(ErrorKind::NotFound, "there is no such exec").with("exec", exec)
}
