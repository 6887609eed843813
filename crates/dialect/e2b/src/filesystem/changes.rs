//! Changes below a folder, as a stream or kept until they are asked for.

use axum::body::Body;
use axum::response::Response;
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use http::HeaderMap;
use sandstorm_e2b_wire::filesystem::{EventType, FilesystemEvent, WatchRequest};
use sandstorm_provider::{FileChange, FileEvent, Result, WatchOptions};
use sandstorm_types::GuestPath;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::door::Guest;
use crate::paths;
use crate::rpc::{self, Code, RpcError, RpcResult, stream as answers};
use crate::state::Dialect;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WatcherRequest {
    #[serde(alias = "watcherId")]
    watcher_id: String,
}

impl Dialect {
    pub(super) async fn watch_stream(
        &self,
        guest: &Guest,
        headers: &HeaderMap,
        content: Body,
    ) -> RpcResult<Response> {
        let mut room = self.control.body_room(&guest.caller);
        let asked = rpc::first_message(headers, content, &mut room).await?;
        let changes = self.watch(guest, asked).await?;
        let messages = stream::iter([Ok(json!({"start": {}}))])
            .chain(changes.map(|change| change.map(|event| json!({"filesystem": event}))));
        let course = answers::Course::new(headers, json!({"keepalive": {}}), rpc::timeout(headers));
        Ok(answers::answer(self, guest, messages, course))
    }

    pub(super) async fn watcher_operation(
        &self,
        guest: &Guest,
        method: &str,
        headers: &HeaderMap,
        content: Body,
    ) -> RpcResult<Value> {
        let mut room = self.control.body_room(&guest.caller);
        if method == "CreateWatcher" {
            let asked = rpc::message(headers, content, &mut room).await?;
            let changes = self.watch(guest, asked).await?;
            let id = self.watchers.add(guest.sandbox, changes, &self.tasks)?;
            return Ok(json!({"watcherId": id}));
        }
        let WatcherRequest { watcher_id } = rpc::message(headers, content, &mut room).await?;
        let shown: String = watcher_id.chars().take(64).collect();
        let missing = || RpcError::new(Code::NotFound, format!("watcher with id {shown} not found"));
        match method {
            "GetWatcherEvents" => {
                let events = self.watchers.take(guest.sandbox, &watcher_id).ok_or_else(missing)?;
                Ok(json!({"events": events}))
            }
            _ => self.watchers.remove(guest.sandbox, &watcher_id).then(|| json!({})).ok_or_else(missing),
        }
    }

    async fn watch(
        &self,
        guest: &Guest,
        asked: WatchRequest,
    ) -> RpcResult<BoxStream<'static, RpcResult<Value>>> {
        let path = paths::resolve(&asked.path)?;
        if !self.entry(guest, &path).await?.is_folder() {
            return Err(RpcError::invalid(format!("path {path} is not a directory")));
        }
        let options = WatchOptions { recursive: asked.recursive };
        let changes = self.control.watch(&guest.caller, guest.sandbox, &path, options).await?;
        Ok(told(changes, path).boxed())
    }
}

fn told(
    changes: BoxStream<'static, Result<FileEvent>>,
    folder: GuestPath,
) -> impl Stream<Item = RpcResult<Value>> + Send {
    changes.flat_map(move |change| {
        let events = match change {
            Ok(change) => events(&folder, &change).into_iter().map(Ok).collect(),
            Err(error) => vec![Err(RpcError::from(error))],
        };
        stream::iter(events)
    })
}

/// A renamed file is one that went and one that came, as E2B's clients know it.
fn events(folder: &GuestPath, change: &FileEvent) -> Vec<Value> {
    let event = |path: &GuestPath, kind| {
        let name = path.relative_to(folder).unwrap_or(path.as_str()).to_owned();
        json!(FilesystemEvent { name, kind })
    };
    let path = &change.path;
    match &change.change {
        FileChange::Created => vec![event(path, EventType::Create)],
        FileChange::Modified => vec![event(path, EventType::Write)],
        FileChange::Removed => vec![event(path, EventType::Remove)],
        FileChange::MovedFrom(from) => {
            vec![event(from, EventType::Rename), event(path, EventType::Create)]
        }
        FileChange::Lost => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_relative_and_a_rename_is_two_events() {
        let folder: GuestPath = "/home/user/d".parse().unwrap();
        let at = |name: &str| folder.join(name).unwrap();
        let created = FileEvent { path: at("a/b"), change: FileChange::Created };
        assert_eq!(events(&folder, &created), [json!({"name": "a/b", "type": "EVENT_TYPE_CREATE"})]);
        let moved = FileEvent { path: at("new"), change: FileChange::MovedFrom(at("old")) };
        let told = events(&folder, &moved);
        assert_eq!((&told[0]["name"], &told[0]["type"]), (&json!("old"), &json!("EVENT_TYPE_RENAME")));
        assert_eq!((&told[1]["name"], &told[1]["type"]), (&json!("new"), &json!("EVENT_TYPE_CREATE")));
    }
}
