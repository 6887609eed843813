//! Answers that lie or make no sense.

use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use sandstorm_client::NewSandbox;
use sandstorm_provider::Provider;
use sandstorm_types::{ErrorKind, Retry, SandboxId};

use super::{Hosted, behind_proxy, for_each_service};
use crate::proxy::{Fault, answer};
use crate::world::{cx, listed, opts, sandbox, spec};

for_each_service!(
    garbage_is_no_sandbox,
    answers_without_end_are_given_up,
    a_delete_is_believed_when_it_is_seen,
    what_is_somebody_elses_is_not_touched,
);

async fn garbage_is_no_sandbox<H: Hosted>() {
    let (world, proxy, adapter) = behind_proxy::<H>().await;
    let deep = "[".repeat(10_000);
    for body in ["<html>welcome</html>", "", "{}", "null", &deep, H::MALFORMED, H::UNMARKED] {
        let garbage = answer("201 Created", "content-type: application/json\r\n", body);
        proxy.set(move |line| if H::creates(line) { garbage.clone() } else { Fault::Pass });
        let id = SandboxId::random();
        let error = adapter.create(&cx(), &spec(), opts(id)).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.retry()),
            (ErrorKind::Provider, Retry::Elsewhere),
            "{body:.40}: {error}"
        );
        assert!(!error.is_not_started(), "{body:.40}: nobody knows");
        assert_eq!(adapter.get(&cx(), &id).await.unwrap_err().kind(), ErrorKind::NotFound);
        adapter.destroy(&cx(), &id).await.unwrap();
    }
    let nonsense = answer("200 OK", "", H::NONSENSE);
    proxy.set(move |_| nonsense.clone());
    assert_eq!(adapter.get(&cx(), &SandboxId::random()).await.unwrap_err().kind(), ErrorKind::Provider);
    assert_eq!(adapter.health(&cx()).await.unwrap_err().kind(), ErrorKind::Provider);
    assert_eq!(world.alive().await, 0);
}

async fn answers_without_end_are_given_up<H: Hosted>() {
    let (_world, proxy, adapter) = behind_proxy::<H>().await;
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n".to_vec();
    let body = [&head[..], b"\r\n", H::BEGINNING].concat();
    for endless in [
        Fault::Endless(body, vec![b'x'; 64 << 10]),
        Fault::Endless(head, format!("x-more: {}\r\n", "y".repeat(1000)).into_bytes()),
        Fault::Endless(b"HTTP/1.1 200 OK\r\nx: ".to_vec(), vec![b'y'; 64 << 10]),
    ] {
        proxy.set(move |_| endless.clone());
        let began = Instant::now();
        let error = adapter.get(&cx(), &SandboxId::random()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Provider, "{error:?}");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
    let page = answer("200 OK", H::AGAIN.0, H::AGAIN.1);
    proxy.set(move |_| page.clone());
    let all: Result<Vec<_>, _> = adapter.list(&cx(), Default::default()).try_collect().await;
    assert_eq!(all.unwrap_err().kind(), ErrorKind::Provider, "a list without end is no list");
}

async fn a_delete_is_believed_when_it_is_seen<H: Hosted>() {
    let (world, proxy, adapter) = behind_proxy::<H>().await;
    let id = sandbox(&adapter).await;
    let lie = answer("204 No Content", "", "");
    proxy.set(move |line| if line.starts_with("DELETE ") { lie.clone() } else { Fault::Pass });
    let error = adapter.destroy(&cx(), &id).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Provider, Retry::Here), "{error}");
    assert!(error.to_string().contains("still there"), "{error}");
    assert_eq!(listed(&adapter).await, [id], "it is not forgotten");
    proxy.heal();
    adapter.destroy(&cx(), &id).await.unwrap();
    assert_eq!((listed(&adapter).await, world.alive().await), (vec![], 0));
}

async fn what_is_somebody_elses_is_not_touched<H: Hosted>() {
    let (world, proxy, adapter) = behind_proxy::<H>().await;
    let made = world.client().create_sandbox(&NewSandbox::default()).await.unwrap();
    let theirs = answer("201 Created", "", &H::made(&made));
    proxy.set(move |line| if H::creates(line) { theirs.clone() } else { Fault::Pass });
    let id = SandboxId::random();
    let error = adapter.create(&cx(), &spec(), opts(id)).await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::Provider && error.to_string().contains("does not carry our"),
        "{error}"
    );
    adapter.destroy(&cx(), &id).await.unwrap();
    assert_eq!((listed(&adapter).await, world.alive().await), (vec![], 1));
}
