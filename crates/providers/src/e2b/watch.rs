//! Changes below a folder there.

use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use sandstorm_e2b_wire::filesystem::{EventType, WatchMessage, WatchRequest};
use sandstorm_provider::{FileChange, FileEvent, OpContext, Result, WatchOptions};
use sandstorm_types::GuestPath;

use super::cloud::Cloud;
use super::envd::FILESYSTEM;
use super::error::{Failure, of, of_file, senseless};
use super::places::Place;
use super::rpc_stream::RpcStream;
use super::upload::is_on_its_way;
use crate::bodies::until;

impl Cloud {
    pub(super) async fn watch(
        &self,
        cx: &OpContext,
        place: &Place,
        path: &GuestPath,
        opts: WatchOptions,
    ) -> Result<BoxStream<'static, Result<FileEvent>>> {
        let request =
            WatchRequest { path: path.to_string(), recursive: opts.recursive, ..WatchRequest::default() };
        let begun = async {
            let call = (FILESYSTEM, "WatchDir");
            let mut stream = self.client.stream(place, call, place.user(), None, &request).await?;
            match stream.next::<WatchMessage>().await? {
                Some(WatchMessage { start: Some(_), .. }) => Ok(stream),
                _ => Err(Failure::Senseless("the watch does not begin")),
            }
        };
        let stream = match begun.await {
            Ok(stream) => stream,
            Err(failure) => return Err(self.of_agent(place, failure, of_file).await),
        };
        Ok(until(cx.cancellation().clone(), changes(stream, path.clone())).boxed())
    }
}

fn changes(stream: RpcStream, folder: GuestPath) -> impl Stream<Item = Result<FileEvent>> + Send + 'static {
    stream::unfold(Some((stream, folder)), |state| async move {
        let (mut stream, folder) = state?;
        loop {
            let told = match stream.next::<WatchMessage>().await {
                Ok(Some(message)) => message.filesystem,
                Ok(None) => return None,
                Err(failure) => match failure.refusal() {
                    // It ends with its sandbox.
                    Some(refusal) if refusal.is_without_sandbox() => return None,
                    _ => return Some((Err(of(failure)), None)),
                },
            };
            let Some(told) = told.filter(|told| !is_on_its_way(&told.name)) else { continue };
            let Some(change) = change(told.kind) else { continue };
            return match folder.join(&told.name) {
                Ok(path) => Some((Ok(FileEvent { path, change }), Some((stream, folder)))),
                Err(_) => Some((Err(senseless("a change is at no path")), None)),
            };
        }
    })
}

/// A file that is renamed is told twice: under its old name, and as a new one.
fn change(kind: EventType) -> Option<FileChange> {
    match kind {
        EventType::Create => Some(FileChange::Created),
        EventType::Write => Some(FileChange::Modified),
        EventType::Chmod => Some(FileChange::Attributes),
        EventType::Remove | EventType::Rename => Some(FileChange::Removed),
        EventType::Unspecified => None,
    }
}
