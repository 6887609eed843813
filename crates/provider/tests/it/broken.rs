//! Backends that break one promise each: the suite has to find every one, by the right case.

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use sandstorm_provider::conformance;
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_provider::{
    AttachFrom, ByteStream, CreateOptions, Duplex, EndCause, Exec, ExecEvent, ExecRequest, ExecSignal,
    ExecStatus, FileEvent, FileOp, FileReply, ForkOptions, Forked, ListFilter, Metered, OpContext, Provider,
    ProviderEvent, ProviderInfo, ReadRange, Refusals, Result, Sandbox, Snapshot, SnapshotOptions, Usage,
    WatchOptions, WriteOptions,
};
use sandstorm_types::{
    Capabilities, ExecId, GuestPath, NetworkPolicy, SandboxId, SandboxSpec, SnapshotId, State, Stream,
    Transition, Unmet, User,
};

/// A promise to break.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// Claims other capabilities than it has.
    Claims(Capabilities),
    LosesStderr,
    ShiftsOffsets,
    HidesExitCodes,
    BlamesProgramsForLimits,
    TellsNoEnd,
    ForgetsInput,
    IgnoresSignals,
    KeepsDestroyed,
    FailsSecondDestroy,
    IgnoresCancellation,
    IgnoresTimeouts,
    UnpacksAnything,
    KeepsOldContent,
    ForgetsMetadata,
    WritesAsAnybody,
    ListsEverything,
    SharesFiles,
    NeverTellsChanges,
    PausesInName,
    AttachesFromTheStart,
    KeepsForegroundAlive,
    ReadsWholeFiles,
    SwapsChannelAndOutput,
    RemembersEverything,
    CountsFromZero,
    ForksWithoutFiles,
    ForksInSilence,
}

#[derive(Debug)]
pub(crate) struct Broken {
    inner: MemoryProvider,
    fault: Fault,
}

impl Broken {
    pub(crate) fn new(fault: Fault) -> Self {
        Self { inner: MemoryProvider::default(), fault }
    }

    /// What becomes of an event on its way to the listener; `None` loses it.
    fn bend(fault: Fault, event: ExecEvent) -> Option<ExecEvent> {
        match (fault, event) {
            (Fault::LosesStderr, ExecEvent::Output { stream: Stream::Stderr, .. }) => None,
            (Fault::TellsNoEnd, ExecEvent::Exited(_)) => None,
            (Fault::ShiftsOffsets, ExecEvent::Output { stream, offset, bytes }) => {
                Some(ExecEvent::Output { stream, offset: offset + 1, bytes })
            }
            (Fault::HidesExitCodes, ExecEvent::Exited(mut end)) => {
                end.status = ExecStatus::Code(0);
                Some(ExecEvent::Exited(end))
            }
            (Fault::BlamesProgramsForLimits, ExecEvent::Exited(mut end)) => {
                if matches!(end.cause, EndCause::Limit(_)) {
                    end.cause = EndCause::Program;
                }
                Some(ExecEvent::Exited(end))
            }
            (Fault::SwapsChannelAndOutput, ExecEvent::Channel { offset, bytes }) => {
                Some(ExecEvent::Output { stream: Stream::Stdout, offset, bytes })
            }
            (_, event) => Some(event),
        }
    }

    fn bent(&self, exec: Exec) -> Exec {
        let fault = self.fault;
        let events = exec
            .events
            .filter_map(move |event| async move { event.map(|event| Self::bend(fault, event)).transpose() });
        Exec { events: events.boxed(), ..exec }
    }
}

/// The whole of the inner provider with one promise broken.
#[async_trait]
impl Provider for Broken {
    fn info(&self) -> &ProviderInfo {
        self.inner.info()
    }

    fn capabilities(&self) -> Capabilities {
        match self.fault {
            Fault::Claims(claimed) => claimed,
            _ => self.inner.capabilities(),
        }
    }

    fn admits(&self, spec: &SandboxSpec) -> Result<(), Vec<Unmet>> {
        self.inner.admits(spec)
    }

    async fn create(&self, cx: &OpContext, spec: &SandboxSpec, opts: CreateOptions) -> Result<Sandbox> {
        let unbound = OpContext::new(cx.tenant());
        let cx = if matches!(self.fault, Fault::IgnoresCancellation) { &unbound } else { cx };
        self.inner.create(cx, spec, opts).await
    }

    async fn get(&self, cx: &OpContext, id: &SandboxId) -> Result<Sandbox> {
        self.inner.get(cx, id).await
    }

    fn list(&self, cx: &OpContext, filter: ListFilter) -> BoxStream<'static, Result<Sandbox>> {
        let filter =
            if matches!(self.fault, Fault::ListsEverything) { ListFilter::default() } else { filter };
        self.inner.list(cx, filter)
    }

    fn events(&self) -> BoxStream<'static, ProviderEvent> {
        self.inner.events()
    }

    fn refusals(&self, id: &SandboxId) -> Option<Box<dyn Refusals>> {
        self.inner.refusals(id)
    }

    async fn exec(&self, cx: &OpContext, id: &SandboxId, mut req: ExecRequest) -> Result<Exec> {
        match self.fault {
            Fault::ForgetsInput => req.stdin = Default::default(),
            Fault::IgnoresTimeouts => req.timeout = Some(std::time::Duration::from_secs(45)),
            Fault::KeepsForegroundAlive => req.background = true,
            _ => {}
        }
        Ok(self.bent(self.inner.exec(cx, id, req).await?))
    }

    async fn attach(&self, cx: &OpContext, exec: &ExecId, from: AttachFrom) -> Result<Exec> {
        let from = if matches!(self.fault, Fault::AttachesFromTheStart) { AttachFrom::START } else { from };
        let mut attached = self.bent(self.inner.attach(cx, exec, from).await?);
        if matches!(self.fault, Fault::CountsFromZero) {
            attached.first = 0;
        }
        Ok(attached)
    }

    async fn signal(&self, cx: &OpContext, exec: &ExecId, signal: ExecSignal) -> Result<()> {
        match self.fault {
            Fault::IgnoresSignals => Ok(()),
            Fault::RemembersEverything if matches!(signal, ExecSignal::Forget { .. }) => Ok(()),
            _ => self.inner.signal(cx, exec, signal).await,
        }
    }

    async fn read_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        range: ReadRange,
    ) -> Result<ByteStream> {
        let whole = matches!(self.fault, Fault::ReadsWholeFiles);
        let range = if whole { ReadRange::default() } else { range };
        if matches!(self.fault, Fault::SharesFiles) {
            return Ok(ByteStream::from(Bytes::from_static(b"secret")));
        }
        self.inner.read_file(cx, id, path, range).await
    }

    async fn write_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        opts: WriteOptions,
        body: ByteStream,
    ) -> Result<()> {
        if matches!(self.fault, Fault::KeepsOldContent)
            && self.inner.read_file(cx, id, path, ReadRange::default()).await.is_ok()
        {
            return Ok(());
        }
        let opts = match self.fault {
            Fault::ForgetsMetadata => WriteOptions::default(),
            _ => opts,
        };
        let cx = match self.fault {
            Fault::WritesAsAnybody => &cx.clone().acting_as(User::Root),
            _ => cx,
        };
        self.inner.write_file(cx, id, path, opts, body).await
    }

    async fn files(&self, cx: &OpContext, id: &SandboxId, op: FileOp) -> Result<FileReply> {
        let unpacking = matches!(op, FileOp::Unpack { .. });
        match self.inner.files(cx, id, op).await {
            Err(_) if unpacking && matches!(self.fault, Fault::UnpacksAnything) => Ok(FileReply::Done),
            other => other,
        }
    }

    async fn watch(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        opts: WatchOptions,
    ) -> Result<BoxStream<'static, Result<FileEvent>>> {
        let events = self.inner.watch(cx, id, path, opts).await?;
        match self.fault {
            Fault::NeverTellsChanges => Ok(stream::empty().boxed()),
            _ => Ok(events),
        }
    }

    async fn connect(&self, cx: &OpContext, id: &SandboxId, port: u16) -> Result<Duplex> {
        self.inner.connect(cx, id, port).await
    }

    async fn usage(&self, cx: &OpContext, id: &SandboxId) -> Result<Usage> {
        self.inner.usage(cx, id).await
    }

    async fn transition(&self, cx: &OpContext, id: &SandboxId, to: Transition) -> Result<Sandbox> {
        if !matches!(self.fault, Fault::PausesInName) {
            return self.inner.transition(cx, id, to).await;
        }
        let state = if to == Transition::Pause { State::Paused } else { State::Ready };
        Ok(Sandbox { state, ..self.inner.get(cx, id).await? })
    }

    async fn set_network(&self, cx: &OpContext, id: &SandboxId, policy: NetworkPolicy) -> Result<()> {
        self.inner.set_network(cx, id, policy).await
    }

    async fn snapshot(&self, cx: &OpContext, id: &SandboxId, opts: SnapshotOptions) -> Result<Snapshot> {
        self.inner.snapshot(cx, id, opts).await
    }

    async fn delete_snapshot(&self, cx: &OpContext, id: &SnapshotId) -> Result<()> {
        self.inner.delete_snapshot(cx, id).await
    }

    async fn fork(&self, cx: &OpContext, id: &SandboxId, opts: ForkOptions) -> Result<Forked> {
        let lets_go = matches!(self.fault, Fault::ForksInSilence);
        let opts = if lets_go { ForkOptions { partial: true, ..opts } } else { opts };
        let mut forked = self.inner.fork(cx, id, opts).await?;
        match self.fault {
            Fault::ForksInSilence => forked.not_carried.clear(),
            Fault::ForksWithoutFiles => {
                let path = "kept".parse().expect("it is a path");
                let op = FileOp::Remove { path, recursive: false };
                let _ = self.inner.files(cx, &forked.sandbox.id, op).await;
            }
            _ => {}
        }
        Ok(forked)
    }

    async fn destroy(&self, cx: &OpContext, id: &SandboxId) -> Result<()> {
        match self.fault {
            Fault::KeepsDestroyed => Ok(()),
            Fault::FailsSecondDestroy => {
                self.inner.get(cx, id).await?;
                self.inner.destroy(cx, id).await
            }
            _ => self.inner.destroy(cx, id).await,
        }
    }

    async fn metered(&self, cx: &OpContext, id: &SandboxId) -> Result<Option<Vec<Metered>>> {
        self.inner.metered(cx, id).await
    }

    async fn health(&self, cx: &OpContext) -> Result<()> {
        self.inner.health(cx).await
    }
}

/// Each fault fails the case that is about it. The clock is paused, so that waiting in vain takes no time.
#[tokio::test(start_paused = true)]
async fn the_suite_finds_every_fault() {
    let memory = MemoryProvider::default().capabilities();
    let connects = Capabilities { connect: true, ..memory };
    let faults = [
        (Fault::LosesStderr, "exec_streams/streams_are_kept_apart"),
        (Fault::ShiftsOffsets, "exec_streams/large_binary_output_is_whole"),
        (Fault::HidesExitCodes, "exec_streams/streams_are_kept_apart"),
        (Fault::TellsNoEnd, "exec_streams/starts_once_and_ends_once"),
        (Fault::ForgetsInput, "exec_stdin/given_input_is_read"),
        (Fault::IgnoresSignals, "exec_stdin/a_signal_closes_input"),
        (Fault::IgnoresSignals, "signals/kill_ends_at_once"),
        (Fault::BlamesProgramsForLimits, "limits/wall_time_ends_a_program"),
        (Fault::BlamesProgramsForLimits, "limits/a_flood_of_output_ends_a_program"),
        (Fault::IgnoresTimeouts, "limits/wall_time_ends_a_program"),
        (Fault::KeepsDestroyed, "lifecycle/comes_and_goes"),
        (Fault::KeepsDestroyed, "destroy_twice/programs_end_with_it"),
        (Fault::FailsSecondDestroy, "destroy_twice/absent_is_success"),
        (Fault::IgnoresCancellation, "cancel_create/cancelled_before_it_starts"),
        (Fault::UnpacksAnything, "archives/hostile_entries_are_refused"),
        (Fault::KeepsOldContent, "files/writing_replaces_all"),
        (Fault::ForgetsMetadata, "files/metadata_goes_with_its_file"),
        (Fault::WritesAsAnybody, "files/root_works_in_its_home_and_in_the_users"),
        (Fault::ListsEverything, "lifecycle/labels_find_sandboxes"),
        (Fault::SharesFiles, "lifecycle/sandboxes_do_not_share_files"),
        (Fault::NeverTellsChanges, "watch/changes_are_told"),
        (Fault::PausesInName, "pause/programs_stand_still"),
        (Fault::PausesInName, "pause/only_files_are_kept"),
        (Fault::AttachesFromTheStart, "background_and_attach/listeners_start_at_their_offset"),
        (Fault::ReadsWholeFiles, "files/a_part_of_a_file_is_read"),
        (Fault::SwapsChannelAndOutput, "exec_channel/it_carries_bytes_apart_from_output"),
        (Fault::RemembersEverything, "exec_channel/what_is_forgotten_is_gone"),
        (Fault::CountsFromZero, "exec_channel/later_listeners_hear_the_same_events"),
        (Fault::ForksWithoutFiles, "live_fork/files_are_there_and_each_one_its_own"),
        (Fault::ForksInSilence, "live_fork/what_cannot_be_carried_is_refused_or_named"),
        (Fault::KeepsForegroundAlive, "background_and_attach/foreground_ends_with_its_listener"),
        (
            Fault::Claims(Capabilities { limits: sandstorm_types::LimitSet::all(), ..memory }),
            "limits/memory_ends_a_program",
        ),
    ];
    // A provider that refuses every connection refuses a closed port rightly, so only this claim holds.
    let honest =
        conformance::run_cases(&Broken::new(Fault::Claims(connects)), "network/a_closed_port_is_refused")
            .await;
    assert!(honest.passed(), "{honest}");
    let found = faults.map(|(fault, case)| async move {
        let report = conformance::run_cases(&Broken::new(fault), case).await;
        (fault, case, report)
    });
    for (fault, case, report) in futures_util::future::join_all(found).await {
        let failed: Vec<_> =
            report.failures().map(|found| format!("{}/{}", found.suite, found.name)).collect();
        assert!(failed.iter().any(|found| found == case), "{fault:?} is not found by {case}:\n{report}");
    }
}
