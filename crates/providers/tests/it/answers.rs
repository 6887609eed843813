//! Answers that refuse, lie or make no sense.

use std::time::{Duration, Instant};

use sandstorm_client::NewSandbox;
use sandstorm_provider::{CreateOptions, Error, Provider};
use sandstorm_providers::sandstorm::SandstormProvider;
use sandstorm_types::{ErrorKind, Retry, SandboxId};

use crate::proxy::{Fault, Proxy, answer};
use crate::world::{World, cx, listed, opts, sandbox, spec};

async fn behind_proxy() -> (World, Proxy, SandstormProvider) {
    let world = World::new().await;
    let proxy = Proxy::to(world.address).await;
    let adapter = SandstormProvider::connect(world.config(proxy.address)).await.unwrap();
    (world, proxy, adapter)
}

fn creates(line: &str) -> bool {
    line.starts_with("POST /v1/sandboxes ")
}

async fn create(adapter: &SandstormProvider) -> Error {
    adapter.create(&cx(), &spec(), CreateOptions::default()).await.unwrap_err()
}

fn problem(status: &str, code: &str, headers: &str) -> Fault {
    let body = format!(r#"{{"code":"{code}","detail":"not today","request_id":"req_7"}}"#);
    answer(status, headers, &body)
}

#[tokio::test]
async fn refusals_are_told_apart_at_once() {
    let (world, proxy, adapter) = behind_proxy().await;
    for (status, code, kind, not_started) in [
        ("429 Too Many Requests", "quota", ErrorKind::Quota, true),
        ("402 Payment Required", "billing", ErrorKind::Billing, true),
        ("402 Payment Required", "of_somebody_else", ErrorKind::Billing, true),
        ("401 Unauthorized", "unauthenticated", ErrorKind::Unauthenticated, true),
        ("403 Forbidden", "forbidden", ErrorKind::Forbidden, true),
        ("503 Service Unavailable", "capacity", ErrorKind::Capacity, true),
        ("503 Service Unavailable", "of_somebody_else", ErrorKind::Capacity, false),
        ("500 Internal Server Error", "internal", ErrorKind::Provider, false),
        ("502 Bad Gateway", "provider", ErrorKind::Provider, false),
    ] {
        let wait = if status.starts_with("429") { "retry-after: 7\r\n" } else { "" };
        let refusal = problem(status, code, wait);
        proxy.set(move |line| if creates(line) { refusal.clone() } else { Fault::Pass });
        let began = Instant::now();
        let error = create(&adapter).await;
        assert!(began.elapsed() < Duration::from_secs(5), "{status}: it was waited for");
        assert_eq!((error.kind(), error.retry()), (kind, Retry::Elsewhere), "{status} {code}: {error}");
        assert_eq!(error.is_not_started(), not_started, "{status} {code}");
        assert_eq!(error.retry_after(), (!wait.is_empty()).then(|| Duration::from_secs(7)), "{status}");
        assert_eq!((error.operation(), error.provider()), (Some("create"), Some("far")));
        assert!(!format!("{error:?} {error}").contains(&world.key), "{error:?}");
    }
    assert_eq!(world.alive().await, 0);
}

#[tokio::test]
async fn a_wrong_key_is_no_matter_of_the_caller() {
    let world = World::new().await;
    let mut config = world.config(world.address);
    config.key = None;
    let error = SandstormProvider::connect(config).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unauthenticated, Retry::Elsewhere));
    assert_eq!(error.operation(), Some("connect"));
}

#[tokio::test]
async fn garbage_is_no_sandbox() {
    let (world, proxy, adapter) = behind_proxy().await;
    let other = SandboxId::random();
    let foreign = format!(
        r#"{{"id":"{other}","state":"ready","created_at":"2026-11-15T12:00:00.000Z","labels":{{}},
            "template":"host","limits":{{}},"network":"none"}}"#
    );
    for body in
        ["<html>welcome</html>", "", "{}", r#"{"id":"sbx_short"}"#, "null", &"[".repeat(10_000), &foreign]
    {
        let garbage = answer("200 OK", "content-type: application/json\r\n", body);
        proxy.set(move |line| if creates(line) { garbage.clone() } else { Fault::Pass });
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
    let nonsense = answer("200 OK", "", r#"{"items":[{"id":1}]}"#);
    proxy.set(move |_| nonsense.clone());
    assert_eq!(adapter.get(&cx(), &SandboxId::random()).await.unwrap_err().kind(), ErrorKind::Provider);
    assert_eq!(adapter.health(&cx()).await.unwrap_err().kind(), ErrorKind::Provider);
    assert_eq!(world.alive().await, 0);
}

#[tokio::test]
async fn answers_without_end_are_given_up() {
    let (_world, proxy, adapter) = behind_proxy().await;
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n".to_vec();
    let body = [&head[..], b"\r\n{\"items\":[\""].concat();
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
}

#[tokio::test]
async fn a_list_without_end_is_no_list() {
    let (_world, proxy, adapter) = behind_proxy().await;
    let page = answer("200 OK", "", r#"{"items":[],"next_cursor":"again"}"#);
    proxy.set(move |_| page.clone());
    use futures_util::TryStreamExt;
    let all: Result<Vec<_>, _> = adapter.list(&cx(), Default::default()).try_collect().await;
    assert_eq!(all.unwrap_err().kind(), ErrorKind::Provider);
}

#[tokio::test]
async fn a_delete_is_believed_when_it_is_seen() {
    let (world, proxy, adapter) = behind_proxy().await;
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

#[tokio::test]
async fn what_was_made_otherwise_than_asked_for_is_taken_back() {
    let (world, proxy, adapter) = behind_proxy().await;
    let id = SandboxId::random();
    let labels = [("sandstorm.owner/here", "yes".to_owned()), ("sandstorm.sandbox/here", id.to_string())];
    let labels = labels.map(|(key, value)| (key.to_owned(), value)).into();
    let new = NewSandbox { labels, ..NewSandbox::default() };
    let mut made = world.client().create_sandbox(&new).await.unwrap();
    made.more["limits"]["processes"] = 1000.into();
    let odd = answer("201 Created", "", &serde_json::to_string(&made).unwrap());
    proxy.set(move |line| if creates(line) { odd.clone() } else { Fault::Pass });
    let error = adapter.create(&cx(), &spec(), opts(id)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider);
    assert!(error.to_string().contains("other limits"), "{error}");
    assert_eq!(world.alive().await, 0);
}

#[tokio::test]
async fn what_is_somebody_elses_is_not_touched() {
    let (world, proxy, adapter) = behind_proxy().await;
    let made = world.client().create_sandbox(&NewSandbox::default()).await.unwrap();
    let theirs = answer("201 Created", "", &serde_json::to_string(&made).unwrap());
    proxy.set(move |line| if creates(line) { theirs.clone() } else { Fault::Pass });
    let id = SandboxId::random();
    let error = adapter.create(&cx(), &spec(), opts(id)).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Provider && error.to_string().contains("our labels"), "{error}");
    adapter.destroy(&cx(), &id).await.unwrap();
    assert_eq!(world.alive().await, 1);
}
