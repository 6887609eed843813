//! Answers that refuse, lie or make no sense.

use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use sandstorm_client::NewSandbox;
use sandstorm_provider::{CreateOptions, Provider};
use sandstorm_providers::e2b::{ApiKey, E2bProvider};
use sandstorm_types::{ErrorKind, Retry, SandboxId};

use super::world::{behind_proxy, config, creates, world};
use crate::proxy::{Fault, answer};
use crate::world::{cx, listed, opts, sandbox, spec};

#[tokio::test]
async fn refusals_are_told_apart_at_once() {
    let (world, proxy, adapter) = behind_proxy().await;
    for (status, code, kind, retry, not_started) in [
        ("429 Too Many Requests", "", ErrorKind::Quota, Retry::Elsewhere, true),
        ("402 Payment Required", "", ErrorKind::Billing, Retry::Elsewhere, true),
        ("401 Unauthorized", "", ErrorKind::Unauthenticated, Retry::Elsewhere, true),
        ("403 Forbidden", "", ErrorKind::Forbidden, Retry::Elsewhere, true),
        ("400 Bad Request", "", ErrorKind::InvalidRequest, Retry::Elsewhere, true),
        ("404 Not Found", "", ErrorKind::InvalidRequest, Retry::Elsewhere, true),
        ("409 Conflict", "", ErrorKind::Conflict, Retry::Never, false),
        (
            "503 Service Unavailable",
            "sandbox_capacity_unavailable",
            ErrorKind::Capacity,
            Retry::Elsewhere,
            true,
        ),
        ("503 Service Unavailable", "", ErrorKind::Capacity, Retry::Elsewhere, false),
        ("504 Gateway Timeout", "", ErrorKind::Timeout, Retry::Here, false),
        ("500 Internal Server Error", "", ErrorKind::Provider, Retry::Elsewhere, false),
        ("502 Bad Gateway", "", ErrorKind::Provider, Retry::Elsewhere, false),
    ] {
        let wait = if status.starts_with("429") { "retry-after: 7\r\n" } else { "" };
        let number = &status[..3];
        let code = if code.is_empty() { String::new() } else { format!(r#","error_code":"{code}""#) };
        let refusal = answer(status, wait, &format!(r#"{{"code":{number},"message":"not today"{code}}}"#));
        proxy.set(move |line| if creates(line) { refusal.clone() } else { Fault::Pass });
        let began = Instant::now();
        let error = adapter.create(&cx(), &spec(), CreateOptions::default()).await.unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(5), "{status}: it was waited for");
        assert_eq!((error.kind(), error.retry()), (kind, retry), "{status}: {error}");
        assert_eq!(error.is_not_started(), not_started, "{status}");
        assert_eq!(error.retry_after(), (!wait.is_empty()).then(|| Duration::from_secs(7)), "{status}");
        assert_eq!((error.operation(), error.provider()), (Some("create"), Some("e2b")));
        assert!(!format!("{error:?} {error}").contains(&world.key), "{error:?}");
    }
    assert_eq!(world.alive().await, 0);
}

#[tokio::test]
async fn a_wrong_key_is_no_matter_of_the_caller() {
    let world = world().await;
    let mut config = config(&world, world.address);
    config.key = ApiKey::new("e2b_0000000000000000000000000000000000000000");
    let error = E2bProvider::connect(config).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unauthenticated, Retry::Elsewhere));
    assert_eq!(error.operation(), Some("connect"));
}

#[tokio::test]
async fn garbage_is_no_sandbox() {
    let (world, proxy, adapter) = behind_proxy().await;
    let missing = r#"{"sandboxID":"aaaaaaaaaaaaaaaaaaaaaaaaaa","clientID":"x","envdVersion":"0.5.14","templateID":"t"}"#;
    for body in
        ["<html>welcome</html>", "", "{}", r#"{"sandboxID":"../../x"}"#, "null", &"[".repeat(10_000), missing]
    {
        let garbage = answer("201 Created", "content-type: application/json\r\n", body);
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
    let nonsense = answer("200 OK", "", r#"[{"sandboxID":1}]"#);
    proxy.set(move |_| nonsense.clone());
    assert_eq!(adapter.get(&cx(), &SandboxId::random()).await.unwrap_err().kind(), ErrorKind::Provider);
    assert_eq!(adapter.health(&cx()).await.unwrap_err().kind(), ErrorKind::Provider);
    assert_eq!(world.alive().await, 0);
}

#[tokio::test]
async fn answers_without_end_are_given_up() {
    let (_world, proxy, adapter) = behind_proxy().await;
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n".to_vec();
    let body = [&head[..], b"\r\n[\""].concat();
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
    let page = answer("200 OK", "x-next-token: again\r\n", "[]");
    proxy.set(move |_| page.clone());
    let all: Result<Vec<_>, _> = adapter.list(&cx(), Default::default()).try_collect().await;
    assert_eq!(all.unwrap_err().kind(), ErrorKind::Provider, "a list without end is no list");
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
async fn what_is_somebody_elses_is_not_touched() {
    let (world, proxy, adapter) = behind_proxy().await;
    let made = world.client().create_sandbox(&NewSandbox::default()).await.unwrap();
    let body = format!(
        r#"{{"sandboxID":"{}","clientID":"x","envdVersion":"0.5.14","templateID":"t","envdAccessToken":"t"}}"#,
        made.id.bare()
    );
    let theirs = answer("201 Created", "", &body);
    proxy.set(move |line| if creates(line) { theirs.clone() } else { Fault::Pass });
    let id = SandboxId::random();
    let error = adapter.create(&cx(), &spec(), opts(id)).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Provider && error.to_string().contains("our marks"), "{error}");
    adapter.destroy(&cx(), &id).await.unwrap();
    assert_eq!((listed(&adapter).await, world.alive().await), (vec![], 1));
}

#[tokio::test]
async fn what_cannot_be_used_is_taken_back() {
    let (world, proxy, adapter) = behind_proxy().await;
    let broken = answer("500 Internal Server Error", "", r#"{"code":"internal","message":"no disk"}"#);
    proxy.set(move |line| if line.contains("MakeDir") { broken.clone() } else { Fault::Pass });
    let error = adapter.create(&cx(), &spec(), CreateOptions::default()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_not_started()), (ErrorKind::Provider, false), "{error}");
    assert_eq!(world.alive().await, 0);
}
