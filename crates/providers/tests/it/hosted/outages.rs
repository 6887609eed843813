//! Services that are slow, gone, or lost on the way.

use std::time::{Duration, Instant};

use sandstorm_provider::{ExecRequest, Provider, ProviderExt};
use sandstorm_types::{ErrorKind, Retry, SandboxId};
use tokio::net::TcpListener;

use super::{Hosted, behind_proxy, for_each_service};
use crate::proxy::Fault;
use crate::world::{cx, listed, opts, sandbox, spec};

for_each_service!(
    a_slow_service_is_only_slow,
    where_nobody_listens_nothing_was_begun,
    a_service_that_hangs_is_left_at_the_deadline,
    a_reset_is_told_and_leaves_nothing,
    a_lost_answer_does_not_make_two,
);

async fn a_slow_service_is_only_slow<H: Hosted>() {
    let (_world, proxy, adapter) = behind_proxy::<H>().await;
    proxy.set(|_| Fault::Late(Duration::from_millis(200)));
    let id = sandbox(&adapter).await;
    let done = adapter.exec_collect(&cx(), &id, ExecRequest::shell("echo late")).await.unwrap();
    assert_eq!(done.stdout, "late\n");
    adapter.destroy(&cx(), &id).await.unwrap();
}

async fn where_nobody_listens_nothing_was_begun<H: Hosted>() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (world, proxy, adapter) = behind_proxy::<H>().await;
    let error = H::connect(&world, nobody).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Provider, Retry::Elsewhere));
    assert!(error.is_not_started());
    let id = sandbox(&adapter).await;
    drop(proxy);
    for error in [
        adapter.create(&cx(), &spec(), opts(SandboxId::random())).await.unwrap_err(),
        adapter.exec(&cx(), &id, ExecRequest::shell("true")).await.unwrap_err(),
        adapter.health(&cx()).await.unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Provider, Retry::Elsewhere), "{error}");
        assert!(error.is_not_started(), "{error}");
    }
    assert_eq!(world.alive().await, 1);
}

async fn a_service_that_hangs_is_left_at_the_deadline<H: Hosted>() {
    let (world, proxy, adapter) = behind_proxy::<H>().await;
    let known = sandbox(&adapter).await;
    proxy.set(|_| Fault::Hang);
    let id = SandboxId::random();
    let began = Instant::now();
    let short = || cx().with_timeout(Duration::from_millis(300));
    let errors = [
        adapter.create(&short(), &spec(), opts(id)).await.unwrap_err(),
        adapter.get(&short(), &known).await.unwrap_err(),
        adapter.exec(&short(), &known, ExecRequest::shell("true")).await.unwrap_err(),
        adapter.destroy(&short(), &known).await.unwrap_err(),
        adapter.health(&short()).await.unwrap_err(),
    ];
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(!error.is_not_started(), "{error}: it may have been heard");
    }
    // Who waits for an operation that was given up can give up, too.
    let cancelled = cx().child();
    cancelled.cancellation().cancel();
    let error = adapter.create(&cancelled, &spec(), opts(SandboxId::random())).await.unwrap_err();
    assert_eq!((error.kind(), error.is_not_started()), (ErrorKind::Cancelled, true));
    proxy.break_all();
    proxy.heal();
    adapter.destroy(&cx(), &id).await.unwrap();
    adapter.destroy(&cx(), &known).await.unwrap();
    assert_eq!(world.alive().await, 0);
}

async fn a_reset_is_told_and_leaves_nothing<H: Hosted>() {
    let (world, proxy, adapter) = behind_proxy::<H>().await;
    proxy.set(|line| if H::creates(line) { Fault::Reset } else { Fault::Pass });
    let id = SandboxId::random();
    let error = adapter.create(&cx(), &spec(), opts(id)).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Provider, Retry::Elsewhere));
    assert!(!error.is_not_started(), "a request that was sent may have been heard");
    adapter.destroy(&cx(), &id).await.unwrap();
    assert_eq!(world.alive().await, 0);
}

async fn a_lost_answer_does_not_make_two<H: Hosted>() {
    let (world, proxy, adapter) = behind_proxy::<H>().await;
    proxy.set(|line| if H::creates(line) { Fault::LoseAnswer } else { Fault::Pass });
    let id = SandboxId::random();
    let error = adapter.create(&cx(), &spec(), opts(id)).await.unwrap_err();
    assert_eq!((error.kind(), error.is_not_started()), (ErrorKind::Provider, false), "{error}");
    assert_eq!(listed(&adapter).await, [id], "it can be seen");
    proxy.heal();
    // Asked for once more, it is the same one.
    assert_eq!(adapter.create(&cx(), &spec(), opts(id)).await.unwrap().id, id);
    assert_eq!((listed(&adapter).await, world.alive().await), (vec![id], 1));
    let twice = adapter.create(&cx(), &spec(), opts(id)).await.unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::Conflict, "it is known now");
    adapter.destroy(&cx(), &id).await.unwrap();
    assert_eq!(world.alive().await, 0);
}
