//! A sandbox goes on in another one.

use sandstorm_types::{ErrorKind, ExecId, SandboxId, State, Transition};

use super::trial::{Failure, Trial, Verdict, ensure, fails, same, same_bytes};
use super::{Case, case};
use crate::{CreateOptions, ExecRequest, ForkOptions, Forked, Result};

pub(super) const CASES: &[Case] = &[
    case!("live_fork", files_are_there_and_each_one_its_own, needs [live_fork, files]),
    case!("live_fork", what_cannot_be_carried_is_refused_or_named, needs [live_fork, exec, exec_channel]),
    case!("live_fork", the_source_has_to_be_there_and_ready, needs [live_fork, pause]),
];

fn options(t: &Trial<'_>, execs: Vec<(ExecId, ExecId)>, partial: bool) -> ForkOptions {
    let create = CreateOptions { id: t.id(), ..CreateOptions::default() };
    ForkOptions { spec: t.spec(), create, execs, partial }
}

async fn fork(t: &Trial<'_>, id: &SandboxId) -> Result<Forked> {
    t.provider.fork(&t.cx, id, options(t, Vec::new(), false)).await
}

async fn files_are_there_and_each_one_its_own(t: &Trial<'_>) -> Verdict {
    let source = t.sandbox().await?;
    t.write(&source, "kept", "then").await?;
    t.write(&source, "/tmp/deep/er", "too").await?;
    let (one, other) = (fork(t, &source).await?.sandbox, fork(t, &source).await?.sandbox);
    same("the state of a fork", &one.state, &State::Ready)?;
    t.write(&one.id, "kept", "changed").await?;
    t.write(&source, "kept", "now").await?;
    same_bytes("the file of the other fork", t.read(&other.id, "kept").await?, b"then")?;
    same_bytes("the file in another place", t.read(&other.id, "/tmp/deep/er").await?, b"too")?;
    t.provider.destroy(&t.cx, &source).await?;
    same_bytes("the file of a fork whose source is gone", t.read(&one.id, "kept").await?, b"changed")
}

async fn what_cannot_be_carried_is_refused_or_named(t: &Trial<'_>) -> Verdict {
    let source = t.sandbox().await?;
    // A shell is no interpreter that could be carried.
    let mut request = ExecRequest::shell("cat <&3 >&3");
    request.channel = true;
    let running = t.provider.exec(&t.cx, &source, request).await?;
    let (from, to) = (running.id, ExecId::random());
    let strict = options(t, vec![(from, to)], false);
    let refused = strict.create.id;
    fails("carrying it", t.provider.fork(&t.cx, &source, strict).await, ErrorKind::Conflict)?;
    fails("looking for what was refused", t.provider.get(&t.cx, &refused).await, ErrorKind::NotFound)?;
    let forked = t.provider.fork(&t.cx, &source, options(t, vec![(from, to)], true)).await?;
    ensure!(forked.carried.is_empty(), "it says that it carried {:?}", forked.carried);
    let named = forked.not_carried.iter().any(|left| left.what.contains(&from.to_string()));
    ensure!(named, "it names only {:?}", forked.not_carried);
    let ghost = t.provider.attach(&t.cx, &to, crate::AttachFrom::START).await;
    fails("attaching to what was not carried", ghost.map(drop), ErrorKind::NotFound)?;
    drop(running);
    let unknown = options(t, vec![(ExecId::random(), ExecId::random())], false);
    match t.provider.fork(&t.cx, &source, unknown).await {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Conflict) => Ok(()),
        other => Err(Failure::Failed(format!("carrying an unknown exec gives {other:?}"))),
    }
}

async fn the_source_has_to_be_there_and_ready(t: &Trial<'_>) -> Verdict {
    fails("forking nothing", fork(t, &SandboxId::random()).await, ErrorKind::NotFound)?;
    let source = t.sandbox().await?;
    let mut taken = options(t, Vec::new(), false);
    taken.create.id = source;
    fails(
        "forking to an id that is taken",
        t.provider.fork(&t.cx, &source, taken).await,
        ErrorKind::Conflict,
    )?;
    t.provider.transition(&t.cx, &source, Transition::Pause).await?;
    fails("forking a paused one", fork(t, &source).await, ErrorKind::Conflict)?;
    t.provider.transition(&t.cx, &source, Transition::Resume).await?;
    same("the state of a fork", fork(t, &source).await?.sandbox.state, State::Ready)
}
