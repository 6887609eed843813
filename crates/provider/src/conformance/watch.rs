//! Changes of files are told to those who watch.

use std::time::Duration;

use futures_util::stream::{BoxStream, TryStreamExt};
use sandstorm_types::{ErrorKind, SandboxId};

use super::trial::{Failure, Trial, Verdict, ensure, fails, path};
use super::{Case, case};
use crate::{ExecRequest, FileChange, FileEvent, FileOp, Result, WatchOptions};

pub(super) const CASES: &[Case] = &[
    case!("watch", changes_are_told, needs [files, files_watch]),
    case!("watch", changes_by_programs_are_told, needs [files, files_watch, exec]),
    case!("watch", depth_is_as_asked_for, needs [files, files_watch]),
    case!("watch", what_is_not_there_cannot_be_watched, needs [files, files_watch]),
    case!("watch", it_ends_with_the_sandbox, needs [files, files_watch]),
];

type Events = BoxStream<'static, Result<FileEvent>>;

async fn watch(t: &Trial<'_>, id: &SandboxId, recursive: bool) -> Result<Events> {
    t.provider.watch(&t.cx, id, &path("."), WatchOptions { recursive }).await
}

/// Waits for an event that fits. Others may come before: one change can be told as several.
async fn told(events: &mut Events, what: &str, fits: impl Fn(&FileEvent) -> bool) -> Verdict {
    let wait = async {
        while let Some(event) = events.try_next().await? {
            if fits(&event) {
                return Ok(());
            }
        }
        Err(Failure::Failed(format!("the watch ended before {what}")))
    };
    let late = |_| Failure::Failed(format!("{what} was not told in 30 s"));
    tokio::time::timeout(Duration::from_secs(30), wait).await.map_err(late)?
}

async fn changes_are_told(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let mut events = watch(t, &id, false).await?;
    t.write(&id, "a", "1").await?;
    told(&mut events, "a new file", |event| event.path == path("a") && event.change != FileChange::Removed)
        .await?;
    t.files(&id, FileOp::Remove { path: path("a"), recursive: false }).await?;
    told(&mut events, "a removed file", |event| {
        event.path == path("a") && event.change == FileChange::Removed
    })
    .await
}

async fn changes_by_programs_are_told(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let mut events = watch(t, &id, false).await?;
    t.output(&id, ExecRequest::shell("echo x > made")).await?;
    told(&mut events, "a program's file", |event| event.path == path("made")).await
}

async fn depth_is_as_asked_for(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    t.files(&id, FileOp::MakeDir { path: path("sub/sub") }).await?;
    let (mut flat, mut deep) = (watch(t, &id, false).await?, watch(t, &id, true).await?);
    t.write(&id, "sub/sub/file", "1").await?;
    t.write(&id, "last", "1").await?;
    told(&mut deep, "a file below", |event| event.path == path("sub/sub/file")).await?;
    let mut strange = None;
    while strange.is_none() {
        match flat.try_next().await? {
            Some(event) if event.path == path("last") => return Ok(()),
            Some(event) if event.path.parent() == Some(path("sub/sub")) => strange = Some(event),
            Some(_) => {}
            None => return Err(Failure::Failed("the watch ended".to_owned())),
        }
    }
    ensure!(false, "a watch of one folder tells {strange:?}");
    Ok(())
}

async fn what_is_not_there_cannot_be_watched(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let watched = t.provider.watch(&t.cx, &id, &path("absent"), WatchOptions::default()).await;
    fails("watching it", watched.map(|_| ()), ErrorKind::NotFound)
}

async fn it_ends_with_the_sandbox(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let mut events = watch(t, &id, true).await?;
    t.provider.destroy(&t.cx, &id).await?;
    // Changes on the way out and an error at the end are both fine; waiting for ever is not.
    let drain = async { while let Ok(Some(_)) = events.try_next().await {} };
    let ended = tokio::time::timeout(Duration::from_secs(30), drain).await;
    ensure!(ended.is_ok(), "the watch outlives its sandbox");
    Ok(())
}
