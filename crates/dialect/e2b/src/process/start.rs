//! Programs started, and listened to again.

use axum::body::Body;
use axum::response::Response;
use http::HeaderMap;
use sandstorm_control::server::{ExecWork, NewExec};
use sandstorm_e2b_wire::process::{Config, EventMessage, Selected, StartRequest};
use sandstorm_provider::{Command, FileOp};
use sandstorm_types::{EnvMap, ErrorKind, GuestPath};

use super::known::Known;
use super::{events, known, wire};
use crate::door::Guest;
use crate::paths;
use crate::rpc::{self, RpcError, RpcResult, stream};
use crate::sandboxes::create::variables;
use crate::state::Dialect;

impl Dialect {
    pub(super) async fn start(
        &self,
        guest: &Guest,
        headers: &HeaderMap,
        content: Body,
    ) -> RpcResult<Response> {
        let user = rpc::user(headers)?;
        let guest = &guest.acting_as(user);
        let mut room = self.control.body_room(&guest.caller);
        let asked: StartRequest = rpc::first_message(headers, content, &mut room).await?;
        let config = asked.process.ok_or_else(|| RpcError::invalid("process is missing"))?;
        if config.cmd.is_empty() {
            return Err(RpcError::invalid("process.cmd is missing"));
        }
        let tty = asked.pty.map(wire::size).transpose()?;
        let longest = self.settings.longest_lifetime;
        let new = NewExec {
            env: self.variables(guest, &config)?,
            cwd: Some(self.folder(guest, config.cwd.as_deref()).await?),
            user,
            tty,
            // Clients of old say nothing and mean that there is one.
            stdin_stream: tty.is_some() || asked.stdin.unwrap_or(true),
            timeout: Some(rpc::timeout(headers).unwrap_or(longest).min(longest)),
            // It ends by itself, by a signal, or by its time, never with who listens.
            keep_on_disconnect: true,
            ..NewExec::of(ExecWork::Command(command(&config)))
        };
        // What such a program says is an answer to somebody: what is lost of it has to be told.
        let most = match asked.stdin == Some(true) && tty.is_none() {
            true => {
                let sandbox = self.control.sandbox(&guest.caller, guest.sandbox).await?;
                Some(sandbox.spec.limits.output)
            }
            false => None,
        };
        let attached = self.control.exec(&guest.caller, guest.sandbox, new).await?;
        let known = Known::new(attached.view.id, config, asked.tag, tty.is_some());
        self.processes.add(guest.sandbox, known.clone());
        // The program has its own clock; the stream tells of it.
        let course = stream::Course::new(headers, keepalive(), None);
        let messages = events::messages(self, guest, &known, attached.events, most);
        Ok(stream::answer(self, guest, messages, course))
    }

    /// What comes from now on; with what nobody has heard yet.
    pub(super) async fn connect(
        &self,
        guest: &Guest,
        headers: &HeaderMap,
        content: Body,
    ) -> RpcResult<Response> {
        let mut room = self.control.body_room(&guest.caller);
        let asked: Selected = rpc::first_message(headers, content, &mut room).await?;
        let known = self.meant(guest, asked.process.as_ref()).await?;
        let attached =
            self.control.attach(&guest.caller, guest.sandbox, known.exec, known.heard).await.map_err(
                |error| match error.kind() {
                    ErrorKind::NotFound | ErrorKind::Conflict => super::not_found(known::pid_of(known.exec)),
                    _ => error.into(),
                },
            )?;
        let course = stream::Course::new(headers, keepalive(), rpc::timeout(headers));
        let messages = events::messages(self, guest, &known, attached.events, None);
        Ok(stream::answer(self, guest, messages, course))
    }

    fn variables(&self, guest: &Guest, config: &Config) -> RpcResult<EnvMap> {
        let id = ("E2B_SANDBOX_ID".to_owned(), guest.sandbox.bare());
        Ok(variables([id].into_iter().chain(config.envs.clone()))?)
    }

    /// Where a program starts.
    async fn folder(&self, guest: &Guest, asked: Option<&str>) -> RpcResult<GuestPath> {
        let Some(asked) = asked.filter(|path| !path.is_empty()) else {
            return Ok(paths::home_of(guest.caller.user()));
        };
        let path = guest.resolve(asked)?;
        let looked =
            self.control.files(&guest.caller, guest.sandbox, FileOp::Stat { path: path.clone() }).await;
        match looked.map_err(RpcError::from) {
            Ok(_) => Ok(path),
            Err(error) if error.code == rpc::Code::NotFound => {
                let shown: String = asked.chars().take(200).collect();
                Err(RpcError::invalid(format!("cwd '{shown}' does not exist")))
            }
            Err(error) => Err(error),
        }
    }
}

fn command(config: &Config) -> Command {
    Command::Program([config.cmd.clone()].into_iter().chain(config.args.clone()).collect())
}

fn keepalive() -> serde_json::Value {
    events::value(&EventMessage::keepalive())
}
