//! The end of a sandbox is the end of everything in it, and can be asked for again.

use std::time::Duration;

use sandstorm_types::{ErrorKind, SandboxId};

use super::trial::{Failure, Trial, Verdict, fails, same};
use super::{Case, case};
use crate::{EndCause, ExecRequest};

pub(super) const CASES: &[Case] = &[
    case!("destroy_twice", absent_is_success, needs []),
    case!("destroy_twice", programs_end_with_it, needs[exec]),
    case!("destroy_twice", nothing_works_afterwards, needs [exec, files]),
];

async fn absent_is_success(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    t.provider.destroy(&t.cx, &id).await?;
    t.provider.destroy(&t.cx, &id).await?;
    Ok(t.provider.destroy(&t.cx, &SandboxId::random()).await?)
}

async fn programs_end_with_it(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let mut req = ExecRequest::program(["/bin/sleep", "60"]);
    req.background = t.provider.capabilities().exec_background;
    let exec = t.provider.exec(&t.cx, &id, req).await?;
    t.provider.destroy(&t.cx, &id).await?;
    let late = |_| Failure::Failed("a program's events outlive its sandbox".to_owned());
    // An end and an error are both honest; silence is not.
    match tokio::time::timeout(Duration::from_secs(25), exec.collect()).await.map_err(late)? {
        Ok(done) => same("the cause", done.end.cause, EndCause::Sandbox),
        Err(_) => Ok(()),
    }
}

async fn nothing_works_afterwards(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    t.write(&id, "a", "x").await?;
    t.provider.destroy(&t.cx, &id).await?;
    let exec = t.provider.exec(&t.cx, &id, ExecRequest::program(["/bin/true"])).await;
    fails("running a program", exec, ErrorKind::NotFound)?;
    fails("reading a file", t.read(&id, "a").await, ErrorKind::NotFound)?;
    fails("writing a file", t.write(&id, "a", "y").await, ErrorKind::NotFound)
}
