//! Operations with one answer.

use axum::body::Body;
use http::HeaderMap;
use sandstorm_e2b_wire::filesystem::{MoveRequest, PathRequest};
use sandstorm_provider::{FileOp, FileReply};
use sandstorm_types::GuestPath;
use serde_json::{Value, json};

use crate::door::Guest;
use crate::rpc::{self, Code, RpcError, RpcResult};
use crate::state::Dialect;

/// Most entries of one listing.
const ENTRIES: usize = 10_000;
const DEEPEST: u32 = 32;

impl Dialect {
    pub(super) async fn file_operation(
        &self,
        guest: &Guest,
        method: &str,
        headers: &HeaderMap,
        content: Body,
    ) -> RpcResult<Value> {
        let guest = &guest.acting_as(rpc::user(headers)?);
        let mut room = self.control.body_room(&guest.caller);
        if method == "Move" {
            return self.rename(guest, rpc::message(headers, content, &mut room).await?).await;
        }
        let PathRequest { path, depth } = rpc::message(headers, content, &mut room).await?;
        let path = guest.resolve(&path)?;
        match method {
            "Stat" => Ok(json!({"entry": self.entry(guest, &path).await?.json()})),
            "MakeDir" => self.make_folder(guest, path).await,
            "ListDir" => self.list_folder(guest, path, depth).await,
            _ => self.remove(guest, path).await,
        }
    }

    async fn make_folder(&self, guest: &Guest, path: GuestPath) -> RpcResult<Value> {
        match self.entry(guest, &path).await {
            Ok(there) if there.is_folder() => {
                return Err(RpcError::new(Code::AlreadyExists, format!("directory already exists: {path}")));
            }
            Ok(_) => {
                return Err(RpcError::invalid(format!(
                    "path already exists but it is not a directory: {path}"
                )));
            }
            Err(error) if error.code == Code::NotFound => {}
            Err(error) => return Err(error),
        }
        let make = FileOp::MakeDir { path: path.clone() };
        self.control.files(&guest.caller, guest.sandbox, make).await?;
        Ok(json!({"entry": self.entry(guest, &path).await?.json()}))
    }

    async fn rename(&self, guest: &Guest, asked: MoveRequest) -> RpcResult<Value> {
        let (from, to) = (guest.resolve(&asked.source)?, guest.resolve(&asked.destination)?);
        self.stat(guest, &from).await?;
        let rename = FileOp::Move { from, to: to.clone() };
        self.control.files(&guest.caller, guest.sandbox, rename).await?;
        Ok(json!({"entry": self.entry(guest, &to).await?.json()}))
    }

    /// Entries below a folder; what is behind a link is shown where the link is.
    async fn list_folder(&self, guest: &Guest, path: GuestPath, depth: u32) -> RpcResult<Value> {
        let folder = self.entry(guest, &path).await?;
        let real = match folder.target.as_ref().filter(|_| folder.is_folder()) {
            Some(target) => target.path.clone(),
            None => return Err(RpcError::invalid(format!("path is not a directory: {path}"))),
        };
        let depth = depth.clamp(1, DEEPEST);
        let list = FileOp::List { path: real.clone(), depth, limit: ENTRIES };
        let FileReply::List { entries, more } =
            self.control.files(&guest.caller, guest.sandbox, list).await?
        else {
            return Err(RpcError::new(Code::Internal, "a listing gave something else"));
        };
        if more {
            let message = format!("there are more than {ENTRIES} entries below {path}");
            return Err(RpcError::new(Code::ResourceExhausted, message));
        }
        let mut shown = Vec::with_capacity(entries.len());
        for info in entries {
            let below = info.path.relative_to(&real).map(str::to_owned);
            let mut entry = self.followed(guest, info).await?;
            if let Some(below) = below.and_then(|below| path.join(&below).ok()) {
                entry.info.path = below;
            }
            shown.push(entry.json());
        }
        Ok(json!({"entries": shown}))
    }

    /// A path that is not there is as good as removed.
    async fn remove(&self, guest: &Guest, path: GuestPath) -> RpcResult<Value> {
        let remove = FileOp::Remove { path, recursive: true };
        let removed = self.control.files(&guest.caller, guest.sandbox, remove).await;
        match removed.map_err(RpcError::from) {
            Ok(_) => Ok(json!({})),
            Err(error) if error.code == Code::NotFound => Ok(json!({})),
            Err(error) => Err(error),
        }
    }
}
