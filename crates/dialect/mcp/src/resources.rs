//! Files of sandboxes and output of programs as resources, and notices when they change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use data_encoding::BASE64;
use futures_util::stream::{self, BoxStream, StreamExt};
use rmcp::model::{
    ListResourcesResult, ReadResourceResult, Resource, ResourceContents, ResourceTemplate,
    ResourceUpdatedNotificationParam, SubscriptionFilter,
};
use rmcp::service::{Peer, SubscriptionContext};
use rmcp::{ErrorData, RoleServer};
use sandstorm_control::server::SandboxQuery;
use sandstorm_provider::{FileKind, FileOp, FileReply, ReadRange, Result, WatchOptions};
use sandstorm_types::{EventBody, ExecId, GuestPath, RunId, SandboxId, Stream};
use tokio_util::sync::CancellationToken;

use crate::call::Call;
use crate::server::protocol_error;
use crate::text::plain;
use crate::tools::picture_kind;
use crate::uri::{Place, TEMPLATES};

/// Sandboxes of one page.
const PAGE: u32 = 100;
/// Resources that one client may watch.
const WATCHED: usize = 64;
/// Notices about one resource come no faster.
const QUIET: Duration = Duration::from_millis(200);

pub(crate) fn templates() -> Vec<ResourceTemplate> {
    let template = |(uri, name, description): &(&str, &str, &str)| {
        ResourceTemplate::new(*uri, *name).with_description(*description)
    };
    TEMPLATES.iter().map(template).collect()
}

/// The working folder of each living sandbox.
pub(crate) async fn list(call: &Call, cursor: Option<String>) -> Result<ListResourcesResult, ErrorData> {
    let query = SandboxQuery { limit: Some(PAGE), cursor, ..SandboxQuery::default() };
    let page = call.control().sandboxes(&call.caller, query).await.map_err(protocol_error)?;
    let resource = |sandbox: SandboxId| {
        let place = Place::File { sandbox, path: GuestPath::workspace() };
        Resource::new(place.to_string(), format!("files of {sandbox}"))
            .with_description("What is in the working folder of this sandbox")
            .with_mime_type("application/json")
    };
    let mut result =
        ListResourcesResult::with_all_items(page.items.iter().map(|view| resource(view.id)).collect());
    result.next_cursor = page.next_cursor;
    Ok(result)
}

pub(crate) async fn read(call: &Call, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let place = Place::parse(uri).ok_or_else(|| nothing_at(uri))?;
    let contents = match place {
        Place::File { sandbox, path } => file(call, uri, sandbox, path).await,
        Place::Exec { sandbox, exec, stream } => {
            exec_output(call, sandbox, exec, stream).await.map(|bytes| contents_of(bytes, uri, "text/plain"))
        }
        Place::Run { run, stream } => {
            run_output(call, run, stream).await.map(|bytes| contents_of(bytes, uri, "text/plain"))
        }
    };
    let mut result = ReadResourceResult::new(vec![contents.map_err(protocol_error)?]);
    // Files and output change whenever somebody writes.
    result.ttl_ms = Some(0);
    Ok(result)
}

fn nothing_at(uri: &str) -> ErrorData {
    let uri: String = uri.chars().take(200).collect();
    ErrorData::resource_not_found("there is no such resource", Some(serde_json::json!({ "uri": uri })))
}

async fn file(call: &Call, uri: &str, sandbox: SandboxId, path: GuestPath) -> Result<ResourceContents> {
    let control = call.control();
    let stat = control.files(&call.caller, sandbox, FileOp::Stat { path: path.clone() }).await?;
    if matches!(&stat, FileReply::Info(info) if info.kind == FileKind::Directory) {
        let op = FileOp::List { path, depth: 1, limit: 1000 };
        let FileReply::List { entries, more } = control.files(&call.caller, sandbox, op).await? else {
            return Ok(ResourceContents::text("[]", uri));
        };
        let entry = |info: &sandstorm_provider::FileInfo| {
            let place = Place::File { sandbox, path: info.path.clone() };
            serde_json::json!({ "path": plain(info.path.as_str()), "size": info.size.as_u64(), "uri": place.to_string(),
                "directory": info.kind == FileKind::Directory })
        };
        let entries: Vec<_> = entries.iter().map(entry).collect();
        let listing = serde_json::json!({ "entries": entries, "more": more }).to_string();
        return Ok(ResourceContents::text(listing, uri).with_mime_type("application/json"));
    }
    let (_, content) = control.read_file(&call.caller, sandbox, &path, ReadRange::default()).await?;
    let bytes = content.collect(call.shared.settings.largest_file()).await?;
    let kind = picture_kind(path.as_str()).unwrap_or("text/plain");
    Ok(contents_of(bytes.to_vec(), uri, kind))
}

/// Text where it is text, bytes where it is not. A resource is given as it is: it was asked for.
fn contents_of(bytes: Vec<u8>, uri: &str, kind: &str) -> ResourceContents {
    match String::from_utf8(bytes) {
        Ok(text) => ResourceContents::text(text, uri).with_mime_type(kind),
        Err(error) => {
            let kind = if kind == "text/plain" { "application/octet-stream" } else { kind };
            ResourceContents::blob(BASE64.encode(error.as_bytes()), uri).with_mime_type(kind)
        }
    }
}

/// What is kept of it by now.
async fn exec_output(call: &Call, sandbox: SandboxId, exec: ExecId, wanted: Stream) -> Result<Vec<u8>> {
    /// How long the next piece of what is there already may take to come.
    const AT_HAND: Duration = Duration::from_millis(50);
    let mut events = call.control().attach(&call.caller, sandbox, exec, None).await?.events;
    let mut bytes = Vec::new();
    while let Ok(Some(event)) = tokio::time::timeout(AT_HAND, events.next()).await {
        match (event.body, wanted) {
            (EventBody::Stdout(chunk), Stream::Stdout) | (EventBody::Stderr(chunk), Stream::Stderr) => {
                bytes.extend_from_slice(chunk.data.as_bytes());
            }
            (EventBody::End(_), _) => break,
            _ => {}
        }
        if bytes.len() > call.shared.settings.largest_file() {
            break;
        }
    }
    Ok(bytes)
}

async fn run_output(call: &Call, run: RunId, wanted: Stream) -> Result<Vec<u8>> {
    let result = call.control().run_view(&call.caller, run).await?.result;
    let bytes = result.and_then(|result| match wanted {
        Stream::Stdout => result.stdout_bytes(),
        Stream::Stderr => result.stderr_bytes(),
    });
    Ok(bytes.unwrap_or_default())
}

/// Says whenever a resource has changed. Ends with what it is about.
async fn changes(call: &Call, place: Place) -> Result<BoxStream<'static, ()>> {
    match place {
        Place::File { sandbox, path } => {
            // A file may be replaced by another of its name, so its folder is watched.
            let folder = path.parent().unwrap_or_else(|| path.clone());
            let watched = call
                .control()
                .watch(&call.caller, sandbox, &folder, WatchOptions { recursive: false })
                .await?;
            let concerns = move |event: &sandstorm_provider::FileEvent| {
                event.path == path
                    || event.path.parent().as_ref() == Some(&path)
                    || event.change == sandstorm_provider::FileChange::Lost
            };
            Ok(watched
                .filter_map(move |event| {
                    let concerned = event.as_ref().is_ok_and(&concerns);
                    async move { concerned.then_some(()) }
                })
                .boxed())
        }
        Place::Exec { sandbox, exec, .. } => {
            let events = call.control().attach(&call.caller, sandbox, exec, None).await?.events;
            Ok(events.map(drop).boxed())
        }
        // Its output is there when it has ended, and then it does not change.
        Place::Run { .. } => Ok(stream::empty().boxed()),
    }
}

/// What a client of the older revisions watches.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions(Mutex<HashMap<String, CancellationToken>>);

impl Subscriptions {
    pub(crate) async fn add(
        &self,
        call: &Call,
        uri: String,
        peer: Peer<RoleServer>,
    ) -> Result<(), ErrorData> {
        let place = Place::parse(&uri).ok_or_else(|| nothing_at(&uri))?;
        if self.watched().len() >= WATCHED && !self.watched().contains_key(&uri) {
            return Err(ErrorData::invalid_request(
                format!("at most {WATCHED} resources are watched at once"),
                None,
            ));
        }
        let mut changes = changes(call, place).await.map_err(protocol_error)?;
        let end = CancellationToken::new();
        if let Some(before) = self.watched().insert(uri.clone(), end.clone()) {
            before.cancel();
        }
        call.shared.background.start("watch a resource", async move {
            let telling = async {
                while changes.next().await.is_some() {
                    let notice = ResourceUpdatedNotificationParam::new(uri.clone());
                    if peer.notify_resource_updated(notice).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(QUIET).await;
                }
            };
            tokio::select! {
                () = telling => {}
                () = end.cancelled() => {}
            }
        });
        Ok(())
    }

    pub(crate) fn remove(&self, uri: &str) {
        if let Some(end) = self.watched().remove(uri) {
            end.cancel();
        }
    }

    pub(crate) fn end(&self) {
        self.watched().drain().for_each(|(_, end)| end.cancel());
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<String, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        self.end();
    }
}

/// Of what a client of the newest revision wants to hear, what there is.
pub(crate) fn accepted(requested: &SubscriptionFilter) -> SubscriptionFilter {
    let uris = requested.resource_subscriptions.iter().flatten();
    let known: Vec<String> = uris.filter(|uri| Place::parse(uri).is_some()).take(WATCHED).cloned().collect();
    let mut accepted = SubscriptionFilter::new();
    if requested.resource_subscriptions.is_some() {
        accepted.resource_subscriptions = Some(known);
    }
    accepted
}

/// Tells of changes for as long as the client listens.
pub(crate) async fn listen(call: &Call, context: &SubscriptionContext) -> Result<(), ErrorData> {
    let mut all = stream::SelectAll::new();
    for uri in context.accepted().resource_subscriptions.iter().flatten() {
        let Some(place) = Place::parse(uri) else { continue };
        // One that is gone, or not theirs, never changes.
        let Ok(changes) = changes(call, place).await else { continue };
        let uri: Arc<str> = Arc::from(uri.as_str());
        all.push(changes.map(move |()| Arc::clone(&uri)).boxed());
    }
    let telling = async {
        while let Some(uri) = all.next().await {
            if context.sink().notify_resource_updated(&*uri).await.is_err() {
                return;
            }
        }
        // Nothing is left to tell of; the client listens until it closes.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = telling => {}
        () = context.cancelled() => {}
        () = call.shared.settings.closing.cancelled() => {}
    }
    Ok(())
}
