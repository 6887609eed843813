//! The provider in memory with one program more, an interpreter that speaks as kernels do, and with faults on demand.
//!
//! Its language has one statement on a line: `print <text>`, `set <name> <text>`, `get <name>`, `sleep <milliseconds>`,
//! `wait` (until the test opens the gate), `stuck <milliseconds>` (which no interrupt ends), `thread` (with which it cannot be forked), `raise`, `die`. Like a real
//! interpreter it outlives the server.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use sandstorm_provider::altered::{Alteration, Altered};
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_provider::{
    AttachFrom, ChannelInput, CreateOptions, EndCause, Error, Events, Exec, ExecEnd, ExecInput, ExecLog,
    ExecRequest, ExecSignal, ExecStatus, ForkOptions, Forked, InputFrame, Keep, NotCarried, OpContext,
    Provider, ProviderEvent, Result, Sandbox, Usage,
};
use sandstorm_types::{
    Capabilities, ErrorKind, ExecId, LimitSet, PerStream, SandboxId, SandboxSpec, Stream, Transition,
};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

pub(crate) type KernelProvider = Altered<Kernels>;

#[derive(Debug, Default)]
pub(crate) struct Kernels {
    memory: MemoryProvider,
    kernels: Mutex<HashMap<ExecId, Kernel>>,
    tasks: Mutex<JoinSet<()>>,
    told: Events,
    gate: watch::Sender<bool>,
    pub(crate) faults: Faults,
}

/// What fails for as long as it is set.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) create: AtomicBool,
    pub(crate) destroy: AtomicBool,
    pub(crate) transition: AtomicBool,
    /// Of each sandbox asked for: whether one that waited will do.
    pub(crate) pooled: Mutex<Vec<bool>>,
    /// So many sandboxes are lost before their program; whether that is proven.
    pub(crate) lost: Mutex<(u32, bool)>,
    /// The next program's sandbox is lost when it has begun, and nothing of it is left before anybody follows it. Who
    /// removes it is held up until the gate opens.
    pub(crate) vanish: AtomicBool,
    /// This many forks from now on succeed, later ones fail.
    pub(crate) forks: Mutex<Option<u32>>,
    pub(crate) unable: AtomicBool,
}

fn unless(fault: &AtomicBool) -> Result<()> {
    match fault.load(Ordering::SeqCst) {
        true => Err(Error::new(ErrorKind::Provider, "a fault was asked for")),
        false => Ok(()),
    }
}

#[derive(Debug, Clone)]
struct Kernel {
    log: ExecLog,
    channel: ChannelInput,
    input: ExecInput,
    interrupt: Arc<Notify>,
    gate: watch::Receiver<bool>,
    memory: Arc<Mutex<Memory>>,
}

/// What a fork has too.
#[derive(Debug, Clone, Default)]
struct Memory {
    variables: BTreeMap<String, String>,
    count: u64,
    threads: u32,
    ready: bool,
}

impl Kernels {
    pub(crate) fn lose(&self, id: &SandboxId, reason: &str) {
        self.memory.lose(id, reason).unwrap();
    }

    pub(crate) fn tell(&self, event: ProviderEvent) {
        self.told.tell(event);
    }

    /// Lets everybody go on who waits, or will.
    pub(crate) fn open_gate(&self) {
        self.gate.send_replace(true);
    }

    /// Kills every interpreter, as the kernel of the host might.
    pub(crate) fn kill_kernels(&self) {
        for kernel in self.kernels.lock().unwrap().values() {
            kernel.end(ExecStatus::Signal(9), EndCause::Program);
        }
    }

    /// A kernel with this in its memory, which lives from here on.
    fn begin(&self, id: ExecId, memory: Memory) -> Kernel {
        let (channel, messages) = ChannelInput::channel(16);
        let (input, _) = ExecInput::channel(1);
        let log = ExecLog::new(Keep::UntilForgotten);
        let (interrupt, memory) = (Arc::default(), Arc::new(Mutex::new(memory)));
        let gate = self.gate.subscribe();
        let kernel = Kernel { log, channel, input, interrupt, gate, memory };
        self.kernels.lock().unwrap().insert(id, kernel.clone());
        self.tasks.lock().unwrap().spawn(kernel.clone().live(messages));
        kernel
    }

    fn kernel(&self, exec: &ExecId) -> Option<Kernel> {
        self.kernels.lock().unwrap().get(exec).cloned()
    }
}

impl Kernel {
    fn end(&self, status: ExecStatus, cause: EndCause) {
        let end = ExecEnd {
            status,
            cause,
            limits_hit: LimitSet::EMPTY,
            denied: Vec::new(),
            written: PerStream::default(),
            truncated: PerStream::default(),
            usage: Usage::default(),
        };
        self.log.end(end).unwrap();
    }

    fn say(&self, message: Value) {
        let payload = serde_json::to_vec(&message).unwrap();
        let mut frame = (payload.len() as u32).to_le_bytes().to_vec();
        frame.extend(payload);
        self.log.write_channel(frame.into()).unwrap();
    }

    async fn live(self, mut messages: mpsc::Receiver<InputFrame>) {
        // One that was forked has said so long ago.
        if !std::mem::replace(&mut self.memory.lock().unwrap().ready, true) {
            self.say(json!({ "type": "ready", "protocol": 1 }));
        }
        while let Some(InputFrame::Data(frame)) = messages.recv().await {
            let message: Value = serde_json::from_slice(&frame[4..]).unwrap();
            if message["type"] == "shutdown" {
                break;
            }
            if self.log.has_ended() {
                return;
            }
            let id = &message["id"];
            self.say(json!({ "type": "start", "id": id }));
            let mut status = "ok";
            // What is silent comes from the server itself and is in Python.
            let code = if message["silent"] == true { "" } else { message["code"].as_str().unwrap() };
            for line in code.lines() {
                match self.statement(line, id).await {
                    "ok" => {}
                    "die" => return self.end(ExecStatus::Code(7), EndCause::Program),
                    other => {
                        status = other;
                        break;
                    }
                }
            }
            let count = {
                let mut memory = self.memory.lock().unwrap();
                memory.count += u64::from(message["silent"] != true);
                memory.count
            };
            self.say(json!({ "type": "done", "id": id, "status": status, "execution_count": count }));
        }
        self.end(ExecStatus::Code(0), EndCause::Program);
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.memory.lock().unwrap().variables.get(name).cloned()
    }

    async fn statement(&self, line: &str, id: &Value) -> &'static str {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let span = || Duration::from_millis(rest.parse().unwrap());
        match verb {
            "print" => self.log.write(Stream::Stdout, Bytes::from(format!("{rest}\n"))).unwrap(),
            "set" => {
                let (name, value) = rest.split_once(' ').unwrap();
                self.memory.lock().unwrap().variables.insert(name.to_owned(), value.to_owned());
            }
            "thread" => self.memory.lock().unwrap().threads += 1,
            "get" => match self.variable(rest) {
                Some(value) => {
                    self.say(json!({ "type": "result", "id": id, "data": { "text/plain": value } }));
                }
                None => {
                    self.say(json!({ "type": "error", "id": id, "name": "NameError", "value": rest }));
                    return "error";
                }
            },
            "sleep" => {
                tokio::select! {
                    () = tokio::time::sleep(span()) => {}
                    () = self.interrupt.notified() => return "interrupted",
                }
            }
            "wait" => drop(self.gate.clone().wait_for(|open| *open).await.unwrap()),
            "stuck" => tokio::time::sleep(span()).await,
            "raise" => {
                self.say(
                    json!({ "type": "error", "id": id, "name": "Oops", "value": "no", "traceback": ["1"] }),
                );
                return "error";
            }
            "die" => return "die",
            other => panic!("{other}?"),
        }
        "ok"
    }
}

#[async_trait]
impl Alteration for Kernels {
    fn original(&self) -> &dyn Provider {
        &self.memory
    }

    fn capabilities(&self) -> Capabilities {
        let live_fork = !self.faults.unable.load(Ordering::SeqCst);
        Capabilities { live_fork, ..self.memory.capabilities() }
    }

    async fn create(&self, cx: &OpContext, spec: &SandboxSpec, opts: CreateOptions) -> Result<Sandbox> {
        unless(&self.faults.create)?;
        self.faults.pooled.lock().unwrap().push(opts.pooled);
        self.memory.create(cx, spec, opts).await
    }

    fn events(&self) -> BoxStream<'static, ProviderEvent> {
        stream::select(self.memory.events(), self.told.listen()).boxed()
    }

    async fn exec(&self, cx: &OpContext, id: &SandboxId, req: ExecRequest) -> Result<Exec> {
        {
            let mut lost = self.faults.lost.lock().unwrap();
            if let Some(left) = lost.0.checked_sub(1) {
                lost.0 = left;
                let error = Error::new(ErrorKind::Provider, "the sandbox is lost");
                return Err(if lost.1 { error.with_not_started() } else { error });
            }
        }
        if self.faults.vanish.load(Ordering::SeqCst) {
            let exec = self.memory.exec(cx, id, req).await?;
            self.lose(id, "Gone");
            while self.memory.attach(cx, &exec.id, AttachFrom::START).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            return Ok(exec);
        }
        if !req.channel {
            return self.memory.exec(cx, id, req).await;
        }
        let kernel = self.begin(req.id, Memory::default());
        let (first, events) = kernel.log.events(AttachFrom::START);
        Ok(Exec { id: req.id, first, events, input: kernel.input, channel: Some(kernel.channel) })
    }

    async fn attach(&self, cx: &OpContext, exec: &ExecId, from: AttachFrom) -> Result<Exec> {
        let Some(kernel) = self.kernel(exec) else { return self.memory.attach(cx, exec, from).await };
        let (first, events) = kernel.log.events(from);
        Ok(Exec { id: *exec, first, events, input: kernel.input, channel: Some(kernel.channel) })
    }

    async fn signal(&self, cx: &OpContext, exec: &ExecId, signal: ExecSignal) -> Result<()> {
        let Some(kernel) = self.kernel(exec) else { return self.memory.signal(cx, exec, signal).await };
        match signal {
            ExecSignal::Interrupt => kernel.interrupt.notify_waiters(),
            ExecSignal::Kill => kernel.end(ExecStatus::Signal(9), EndCause::Caller),
            ExecSignal::Forget { before } => kernel.log.forget(before).unwrap(),
            other => panic!("{other:?}?"),
        }
        Ok(())
    }

    async fn transition(&self, cx: &OpContext, id: &SandboxId, to: Transition) -> Result<Sandbox> {
        unless(&self.faults.transition)?;
        self.memory.transition(cx, id, to).await
    }

    async fn fork(&self, cx: &OpContext, id: &SandboxId, mut opts: ForkOptions) -> Result<Forked> {
        if let Some(left) = &mut *self.faults.forks.lock().unwrap() {
            *left = left.checked_sub(1).ok_or_else(|| Error::new(ErrorKind::Capacity, "there is no room"))?;
        }
        let (mut copies, mut left) = (Vec::new(), Vec::new());
        for (from, to) in std::mem::take(&mut opts.execs) {
            let memory = self.kernel(&from).unwrap().memory.lock().unwrap().clone();
            match memory.threads {
                0 => copies.push((to, memory)),
                threads => {
                    let why = format!("it has {threads} threads");
                    if !opts.partial {
                        return Err(Error::new(ErrorKind::Conflict, why).with("exec", from));
                    }
                    left.push(NotCarried { what: format!("exec {from}"), why });
                }
            }
        }
        let mut forked = self.memory.fork(cx, id, opts).await?;
        for (to, memory) in copies {
            self.begin(to, memory);
            forked.carried.push(to);
        }
        forked.not_carried = left;
        Ok(forked)
    }

    async fn destroy(&self, cx: &OpContext, id: &SandboxId) -> Result<()> {
        unless(&self.faults.destroy)?;
        let destroyed = self.memory.destroy(cx, id).await;
        if self.faults.vanish.load(Ordering::SeqCst) {
            drop(self.gate.subscribe().wait_for(|open| *open).await);
        }
        destroyed
    }
}
