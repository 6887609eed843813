//! Changes below a folder, as a stream or kept until they are asked for.

use std::time::Duration;

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
use crate::rpc::{self, Code, RpcError, RpcResult, stream as answers};
use crate::state::Dialect;

/// A change is on its way from the sandbox for a moment, and who made it asks for it at once. So a watcher answers when nothing
/// came for this long and for as long as the sandbox takes to answer anything, and after so many of them at the latest.
const MOMENT: Duration = Duration::from_millis(25);
const MOMENTS: u32 = 10;

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
        let guest = &guest.acting_as(rpc::user(headers)?);
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
            let guest = &guest.acting_as(rpc::user(headers)?);
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
                self.settle(guest, &watcher_id).await;
                let events = self.watchers.take(guest.sandbox, &watcher_id).ok_or_else(missing)?;
                Ok(json!({"events": events}))
            }
            _ => self.watchers.remove(guest.sandbox, &watcher_id).then(|| json!({})).ok_or_else(missing),
        }
    }

    /// Waits until a watcher saw what has happened.
    async fn settle(&self, guest: &Guest, id: &str) {
        let mut before = self.watchers.count(guest.sandbox, id);
        let root = GuestPath::root();
        for _ in 0..MOMENTS {
            // What the sandbox said before this answer was said by then.
            let answer = self.stat(guest, &root);
            let ((), _) = tokio::join!(tokio::time::sleep(MOMENT), answer);
            let now = self.watchers.count(guest.sandbox, id);
            if now == before {
                return;
            }
            before = now;
        }
    }

    /// Changes below a folder. No file system of a sandbox is changed by another machine, so all may be watched.
    async fn watch(
        &self,
        guest: &Guest,
        asked: WatchRequest,
    ) -> RpcResult<BoxStream<'static, RpcResult<Value>>> {
        let path = guest.resolve(&asked.path)?;
        if !self.entry(guest, &path).await?.is_folder() {
            return Err(RpcError::invalid(format!("path {path} is not a directory")));
        }
        let options = WatchOptions { recursive: asked.recursive };
        let changes = self.control.watch(&guest.caller, guest.sandbox, &path, options).await?;
        let told = told(changes, path);
        if !asked.include_entry {
            return Ok(told.map(|event| event.map(|(event, _)| json!(event))).boxed());
        }
        let (dialect, guest) = (self.clone(), guest.clone());
        let complete = move |event: RpcResult<(FilesystemEvent, GuestPath)>| {
            let (dialect, guest) = (dialect.clone(), guest.clone());
            async move {
                let (mut event, path) = event?;
                let stays = matches!(event.kind, EventType::Create | EventType::Write | EventType::Chmod);
                if stays {
                    // One that is gone by now has none.
                    event.entry = dialect.entry(&guest, &path).await.ok().map(|entry| entry.info());
                }
                Ok(json!(event))
            }
        };
        Ok(told.then(complete).boxed())
    }
}

/// Changes as events, each with the path that it is about.
fn told(
    changes: BoxStream<'static, Result<FileEvent>>,
    folder: GuestPath,
) -> impl Stream<Item = RpcResult<(FilesystemEvent, GuestPath)>> + Send {
    changes.flat_map(move |change| {
        let events = match change {
            Ok(change) => events(&folder, &change).into_iter().map(Ok).collect(),
            Err(error) => vec![Err(RpcError::from(error))],
        };
        stream::iter(events)
    })
}

/// A renamed file is one that went and one that came, as E2B's clients know it.
fn events(folder: &GuestPath, change: &FileEvent) -> Vec<(FilesystemEvent, GuestPath)> {
    let event = |path: &GuestPath, kind| {
        let name = path.relative_to(folder).unwrap_or(path.as_str()).to_owned();
        (FilesystemEvent { name, kind, entry: None }, path.clone())
    };
    let path = &change.path;
    match &change.change {
        FileChange::Created => vec![event(path, EventType::Create)],
        FileChange::Modified => vec![event(path, EventType::Write)],
        FileChange::Attributes => vec![event(path, EventType::Chmod)],
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
        let told =
            |change| events(&folder, change).into_iter().map(|(event, _)| json!(event)).collect::<Vec<_>>();
        assert_eq!(told(&created), [json!({"name": "a/b", "type": "EVENT_TYPE_CREATE"})]);
        let moved = FileEvent { path: at("new"), change: FileChange::MovedFrom(at("old")) };
        let told = told(&moved);
        assert_eq!((&told[0]["name"], &told[0]["type"]), (&json!("old"), &json!("EVENT_TYPE_RENAME")));
        assert_eq!((&told[1]["name"], &told[1]["type"]), (&json!("new"), &json!("EVENT_TYPE_CREATE")));
    }
}
