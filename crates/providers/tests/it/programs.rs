//! The provider in memory with real interpreters: kernels of contexts are processes of this machine, without any walls.
//! What they need of files is copied from the sandbox's tree.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use sandstorm_provider::altered::Alteration;
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_provider::{
    AttachFrom, EndCause, Exec, ExecEnd, ExecInput, ExecLog, ExecRequest, ExecSignal, ExecStatus, InputFrame,
    Keep, OpContext, Provider, ProviderExt, Result, Usage,
};
use sandstorm_types::{Capabilities, ExecId, GuestPath, LimitName, LimitSet, PerStream, SandboxId, Stream};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// Where our own support files lie inside a sandbox.
const SUPPORT: &str = "/tmp/support/";

#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) memory: Arc<MemoryProvider>,
    /// Where its programs look for others.
    path: &'static str,
    running: Mutex<HashMap<ExecId, Program>>,
    dir: tempfile::TempDir,
}

#[derive(Debug, Clone)]
struct Program {
    sandbox: SandboxId,
    log: ExecLog,
    input: ExecInput,
    child: Arc<Mutex<Child>>,
}

impl Programs {
    pub(crate) fn new() -> Self {
        Self::with_path("/usr/bin:/bin")
    }

    pub(crate) fn with_path(path: &'static str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { memory: Arc::default(), path, running: Mutex::default(), dir }
    }

    pub(crate) fn count(&self) -> usize {
        self.running.lock().unwrap().values().filter(|program| !program.log.has_ended()).count()
    }

    fn get(&self, exec: &ExecId) -> Option<Program> {
        self.running.lock().unwrap().get(exec).cloned()
    }

    async fn start(&self, cx: &OpContext, id: &SandboxId, req: ExecRequest) -> Result<Exec> {
        let mut argv = req.argv();
        for (path, content) in &req.files {
            self.memory.write_bytes(cx, id, path, content.clone()).await?;
        }
        for word in &mut argv {
            let Some(name) = word.strip_prefix(SUPPORT) else { continue };
            let path: GuestPath = word.parse().unwrap();
            let content = self.memory.read_bytes(cx, id, &path, 1 << 20).await?;
            let copy = self.dir.path().join(name);
            std::fs::write(&copy, content).unwrap();
            *word = copy.to_str().unwrap().to_owned();
        }
        let keep = match (req.replay, req.lasting) {
            (true, _) => Keep::UpTo(self.memory.get(cx, id).await?.limits.output),
            (false, false) => Keep::UntilTaken,
            (false, true) => Keep::UntilForgotten,
        };
        let program = self.spawn(*id, &argv, &req, ExecLog::new(keep));
        self.running.lock().unwrap().insert(req.id, program.clone());
        let (first, events) = program.log.events(AttachFrom::START);
        Ok(Exec { id: req.id, first, events, input: program.input, channel: None })
    }

    #[expect(clippy::disallowed_methods, reason = "a test without walls")]
    fn spawn(&self, sandbox: SandboxId, argv: &[String], req: &ExecRequest, log: ExecLog) -> Program {
        let mut child = Command::new("/usr/bin/env")
            .args(&argv[1..])
            .env_clear()
            .env("PATH", self.path)
            .envs(req.env.iter())
            .current_dir(self.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, frames) = ExecInput::channel(4);
        let mut stdin = child.stdin.take().unwrap();
        std::thread::spawn(move || feed(frames, &mut stdin));
        let out = hear(child.stdout.take().unwrap(), Stream::Stdout, log.clone());
        let err = hear(child.stderr.take().unwrap(), Stream::Stderr, log.clone());
        let child = Arc::new(Mutex::new(child));
        let (whole, last) = (Arc::clone(&child), log.clone());
        std::thread::spawn(move || {
            let _ = (out.join(), err.join());
            let status = whole.lock().unwrap().wait().unwrap();
            let (status, cause) = match (status.signal(), last.flooded().is_cancelled()) {
                (_, true) => (ExecStatus::Signal(9), EndCause::Limit(LimitName::Output)),
                (Some(signal), _) => (ExecStatus::Signal(signal), EndCause::Caller),
                (None, _) => (ExecStatus::Code(status.code().unwrap()), EndCause::Program),
            };
            let (written, truncated) = (PerStream::default(), PerStream::default());
            let (limits_hit, usage) = (LimitSet::EMPTY, Usage::default());
            let _ = last.end(ExecEnd {
                status,
                cause,
                limits_hit,
                denied: Vec::new(),
                written,
                truncated,
                usage,
            });
        });
        Program { sandbox, log, input, child }
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        for program in self.running.lock().unwrap().values() {
            let _ = program.child.lock().unwrap().kill();
        }
    }
}

fn feed(mut frames: mpsc::Receiver<InputFrame>, stdin: &mut impl Write) {
    let mut had = 0;
    while let Some(frame) = frames.blocking_recv() {
        let (bytes, close, receipt) = match frame {
            InputFrame::Data(bytes) => (bytes, false, None),
            InputFrame::Close => return,
            InputFrame::Deliver(mut delivery) => match delivery.cut(had) {
                Ok(()) => (delivery.bytes, delivery.close, Some(delivery.receipt)),
                Err(gap) => {
                    delivery.receipt.give(Err(gap));
                    continue;
                }
            },
        };
        if stdin.write_all(&bytes).and_then(|()| stdin.flush()).is_err() {
            return;
        }
        had += bytes.len() as u64;
        if let Some(receipt) = receipt {
            receipt.give(Ok(Some(had)));
        }
        if close {
            return;
        }
    }
}

fn hear(mut from: impl Read + Send + 'static, stream: Stream, log: ExecLog) -> std::thread::JoinHandle<()> {
    let handle = Handle::current();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        loop {
            handle.block_on(log.pace());
            match from.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(size) => log.write(stream, Bytes::copy_from_slice(&buffer[..size])).unwrap(),
            }
        }
    })
}

#[async_trait]
impl Alteration for Programs {
    fn original(&self) -> &dyn Provider {
        &*self.memory
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { exec_channel: false, live_fork: true, ..self.memory.capabilities() }
    }

    async fn exec(&self, cx: &OpContext, id: &SandboxId, req: ExecRequest) -> Result<Exec> {
        match req.argv().first().map(String::as_str) {
            Some("env") => self.start(cx, id, req).await,
            _ => self.memory.exec(cx, id, req).await,
        }
    }

    async fn attach(&self, cx: &OpContext, exec: &ExecId, from: AttachFrom) -> Result<Exec> {
        let Some(program) = self.get(exec) else { return self.memory.attach(cx, exec, from).await };
        let (first, events) = program.log.events(from);
        Ok(Exec { id: *exec, first, events, input: program.input, channel: None })
    }

    async fn signal(&self, cx: &OpContext, exec: &ExecId, signal: ExecSignal) -> Result<()> {
        let Some(program) = self.get(exec) else { return self.memory.signal(cx, exec, signal).await };
        match signal {
            ExecSignal::Kill => program.child.lock().unwrap().kill().unwrap(),
            ExecSignal::Forget { before } => program.log.forget(before).unwrap(),
            ExecSignal::CloseStdin => program.input.close().await?,
            other => panic!("{other:?}?"),
        }
        Ok(())
    }

    async fn destroy(&self, cx: &OpContext, id: &SandboxId) -> Result<()> {
        for program in self.running.lock().unwrap().values().filter(|program| program.sandbox == *id) {
            let _ = program.child.lock().unwrap().kill();
        }
        self.memory.destroy(cx, id).await
    }
}
