//! A creation that is given up leaves nothing that cannot be removed.

use std::time::Duration;

use futures_util::stream::TryStreamExt;
use sandstorm_types::{ErrorKind, SandboxId};

use super::trial::{Trial, Verdict, ensure, fails};
use super::{Case, case};
use crate::{CreateOptions, ListFilter, OpContext};

pub(super) const CASES: &[Case] = &[
    case!("cancel_create", cancelled_before_it_starts, needs []),
    case!("cancel_create", cancelled_on_the_way, needs []),
    case!("cancel_create", dropped_on_the_way, needs []),
    case!("cancel_create", too_late_before_it_starts, needs []),
];

fn opts(id: SandboxId) -> CreateOptions {
    CreateOptions { id, ..CreateOptions::default() }
}

async fn nothing_is_left(t: &Trial<'_>, id: SandboxId) -> Verdict {
    t.provider.destroy(&t.cx, &id).await?;
    fails("get after destroy", t.provider.get(&t.cx, &id).await, ErrorKind::NotFound)?;
    let listed: Vec<_> = t.provider.list(&t.cx, ListFilter::default()).try_collect().await?;
    ensure!(listed.iter().all(|sandbox| sandbox.id != id), "a cancelled sandbox is still listed");
    Ok(())
}

async fn cancelled_before_it_starts(t: &Trial<'_>) -> Verdict {
    let (id, cx) = (t.id(), t.cx.child());
    cx.cancellation().cancel();
    fails("creating", t.provider.create(&cx, &t.spec(), opts(id)).await, ErrorKind::Cancelled)?;
    fails("get", t.provider.get(&t.cx, &id).await, ErrorKind::NotFound)
}

async fn cancelled_on_the_way(t: &Trial<'_>) -> Verdict {
    for after in [0, 1, 2, 5, 20] {
        let (id, cx) = (t.id(), t.cx.child());
        let cancel = async {
            tokio::time::sleep(Duration::from_millis(after)).await;
            cx.cancellation().cancel();
        };
        let spec = t.spec();
        let (made, ()) = futures_util::future::join(t.provider.create(&cx, &spec, opts(id)), cancel).await;
        match made {
            Ok(sandbox) => ensure!(sandbox.id == id, "another sandbox was made"),
            Err(error) => fails::<()>("creating", Err(error), ErrorKind::Cancelled)?,
        }
        nothing_is_left(t, id).await?;
    }
    Ok(())
}

async fn dropped_on_the_way(t: &Trial<'_>) -> Verdict {
    for after in [0, 1, 2, 5, 20] {
        let (id, spec) = (t.id(), t.spec());
        let create = t.provider.create(&t.cx, &spec, opts(id));
        // Whether it was done in time does not matter.
        let _ = tokio::time::timeout(Duration::from_millis(after), create).await;
        nothing_is_left(t, id).await?;
    }
    Ok(())
}

async fn too_late_before_it_starts(t: &Trial<'_>) -> Verdict {
    let id = t.id();
    let cx: OpContext = t.cx.clone().with_timeout(Duration::ZERO);
    fails("creating", t.provider.create(&cx, &t.spec(), opts(id)).await, ErrorKind::Timeout)?;
    fails("get", t.provider.get(&t.cx, &id).await, ErrorKind::NotFound)
}
