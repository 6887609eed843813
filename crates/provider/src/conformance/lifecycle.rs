//! Sandboxes come, are found and go.

use futures_util::stream::TryStreamExt;
use sandstorm_types::{ErrorKind, Isolation, Labels, SandboxId, State};

use super::trial::{Trial, Verdict, ensure, fails, path, same};
use super::{Case, case};
use crate::{CreateOptions, ExecRequest, FileOp, ListFilter};

pub(super) const CASES: &[Case] = &[
    case!("lifecycle", comes_and_goes, needs []),
    case!("lifecycle", ids_are_given_once, needs []),
    case!("lifecycle", unknown_ones_are_not_found, needs []),
    case!("lifecycle", labels_find_sandboxes, needs []),
    case!("lifecycle", refuses_what_it_does_not_admit, needs []),
    case!("lifecycle", sandboxes_do_not_share_files, needs[files]),
    case!("lifecycle", usage_follows_files, needs [usage, files]),
    case!("lifecycle", is_healthy, needs []),
];

async fn comes_and_goes(t: &Trial<'_>) -> Verdict {
    let (id, spec) = (t.id(), t.spec());
    let made = t.provider.create(&t.cx, &spec, CreateOptions { id, ..CreateOptions::default() }).await?;
    same("the new sandbox's id", made.id, id)?;
    same("the new sandbox's state", made.state, State::Ready)?;
    let seen = t.provider.get(&t.cx, &id).await?;
    same("the state that get shows", seen.state, State::Ready)?;
    same("the limits that get shows", seen.limits, spec.limits)?;
    let listed: Vec<_> = t.provider.list(&t.cx, ListFilter::default()).try_collect().await?;
    ensure!(listed.iter().any(|sandbox| sandbox.id == id), "list does not show the sandbox");
    t.provider.destroy(&t.cx, &id).await?;
    fails("get after destroy", t.provider.get(&t.cx, &id).await, ErrorKind::NotFound)?;
    let listed: Vec<_> = t.provider.list(&t.cx, ListFilter::default()).try_collect().await?;
    ensure!(listed.iter().all(|sandbox| sandbox.id != id), "list shows a destroyed sandbox");
    Ok(())
}

async fn ids_are_given_once(t: &Trial<'_>) -> Verdict {
    let opts = CreateOptions { id: t.id(), ..CreateOptions::default() };
    t.provider.create(&t.cx, &t.spec(), opts.clone()).await?;
    fails("creating the same id again", t.provider.create(&t.cx, &t.spec(), opts).await, ErrorKind::Conflict)
}

async fn unknown_ones_are_not_found(t: &Trial<'_>) -> Verdict {
    let id = SandboxId::random();
    let can = t.provider.capabilities();
    fails("get", t.provider.get(&t.cx, &id).await, ErrorKind::NotFound)?;
    if can.exec {
        let exec = t.provider.exec(&t.cx, &id, ExecRequest::program(["/bin/true"])).await;
        fails("exec", exec, ErrorKind::NotFound)?;
    }
    if can.files {
        fails("read_file", t.read(&id, "a").await, ErrorKind::NotFound)?;
        fails("files", t.files(&id, FileOp::Stat { path: path("a") }).await, ErrorKind::NotFound)?;
    }
    Ok(())
}

async fn labels_find_sandboxes(t: &Trial<'_>) -> Verdict {
    let labels: Labels = [("conformance".to_owned(), SandboxId::random().bare())]
        .into_iter()
        .collect::<std::collections::BTreeMap<_, _>>()
        .try_into()
        .expect("the label is a label");
    let mut spec = t.spec();
    spec.labels = labels.clone();
    let (with, without) = (t.sandbox_of(&spec).await?, t.sandbox().await?);
    same("the labels that get shows", t.provider.get(&t.cx, &with).await?.labels, labels.clone())?;
    let listed: Vec<_> = t.provider.list(&t.cx, ListFilter { labels }).try_collect().await?;
    let ids: Vec<_> = listed.into_iter().map(|sandbox| sandbox.id).collect();
    ensure!(ids == [with], "the label finds {ids:?}, not only {with} (and not {without})");
    Ok(())
}

async fn refuses_what_it_does_not_admit(t: &Trial<'_>) -> Verdict {
    let mut spec = t.spec();
    ensure!(
        t.provider.admits(&spec).is_ok(),
        "the suite's own sandbox is not admitted: {:?}",
        t.provider.admits(&spec)
    );
    let beyond = match t.provider.capabilities().isolation {
        Isolation::Process => Isolation::Container,
        Isolation::Container => Isolation::UserKernel,
        Isolation::UserKernel => Isolation::MicroVm,
        Isolation::MicroVm => return Err(super::trial::Failure::Skipped("nothing isolates more".to_owned())),
    };
    spec.isolation = beyond;
    let unmet = t.provider.admits(&spec).err().unwrap_or_default();
    ensure!(unmet.iter().any(|unmet| unmet.feature == "isolation"), "weak isolation is not among {unmet:?}");
    let made =
        t.provider.create(&t.cx, &spec, CreateOptions { id: t.id(), ..CreateOptions::default() }).await;
    ensure!(made.is_err(), "a sandbox was made that is isolated less than asked for");
    Ok(())
}

async fn sandboxes_do_not_share_files(t: &Trial<'_>) -> Verdict {
    let (one, other) = (t.sandbox().await?, t.sandbox().await?);
    for folder in ["/workspace", "/tmp", "/home/user"] {
        let file = format!("{folder}/private");
        t.write(&one, &file, "secret").await?;
        fails("reading another sandbox's file", t.read(&other, &file).await, ErrorKind::NotFound)?;
    }
    Ok(())
}

async fn usage_follows_files(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let before = t.provider.usage(&t.cx, &id).await?;
    t.write(&id, "ballast", vec![1; 1 << 20]).await?;
    let after = t.provider.usage(&t.cx, &id).await?;
    let grown = after.disk.as_u64().saturating_sub(before.disk.as_u64());
    ensure!((1 << 20..2 << 20).contains(&grown), "a file of 1 MiB makes the disk {grown} bytes fuller");
    Ok(())
}

async fn is_healthy(t: &Trial<'_>) -> Verdict {
    Ok(t.provider.health(&t.cx).await?)
}
