//! Ports of sandboxes on this machine's own loopback, for clients that reach this process by a pipe only.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use sandstorm_control::server::{Caller, Control};
use sandstorm_provider::{Error, Result, Tasks};
use sandstorm_types::{ErrorKind, SandboxId};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

/// Doors that one process keeps open.
const MOST: usize = 64;

#[derive(Debug)]
pub(crate) struct Doors {
    control: Control,
    tasks: Tasks,
    open: Mutex<HashMap<(SandboxId, u16), u16>>,
}

impl Doors {
    pub(crate) fn new(control: Control, tasks: Tasks) -> Self {
        Self { control, tasks, open: Mutex::default() }
    }

    /// An address of this machine that leads to a port of a sandbox. It stays until this process ends.
    pub(crate) async fn open(&self, caller: &Caller, sandbox: SandboxId, port: u16) -> Result<String> {
        let mut open = self.open.lock().await;
        let here = match open.get(&(sandbox, port)) {
            Some(here) => *here,
            None if open.len() >= MOST => {
                return Err(Error::new(ErrorKind::Quota, "too many ports are open").with("allowed", MOST));
            }
            None => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(unopened)?;
                let here = listener.local_addr().map_err(unopened)?.port();
                let (control, caller, tasks) = (self.control.clone(), caller.clone(), self.tasks.clone());
                self.tasks.start("door to a port", async move {
                    while let Ok((visitor, _)) = listener.accept().await {
                        tasks.start(
                            "visitor of a port",
                            carry(control.clone(), caller.clone(), sandbox, port, visitor),
                        );
                    }
                });
                open.insert((sandbox, port), here);
                here
            }
        };
        Ok(format!("http://127.0.0.1:{here}/"))
    }
}

async fn carry(control: Control, caller: Caller, sandbox: SandboxId, port: u16, mut visitor: TcpStream) {
    match control.connect(&caller, sandbox, port).await {
        Ok(mut inside) => {
            // However it ends, both sides see it.
            let _ = tokio::io::copy_bidirectional(&mut visitor, &mut inside).await;
        }
        Err(error) => tracing::debug!(%sandbox, port, %error, "a visitor found nobody"),
    }
}

fn unopened(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Internal, "no port of this machine could be opened").with_source(error)
}
