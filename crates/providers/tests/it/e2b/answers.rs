//! Answers that refuse, lie or make no sense.

use std::time::{Duration, Instant};

use sandstorm_provider::{CreateOptions, Provider};
use sandstorm_providers::e2b::{ApiKey, E2bProvider};
use sandstorm_types::{ErrorKind, Retry};

use super::world::{behind_proxy, config, creates, world};
use crate::proxy::{Fault, answer};
use crate::world::{cx, spec};

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
async fn what_cannot_be_used_is_taken_back() {
    let (world, proxy, adapter) = behind_proxy().await;
    let broken = answer("500 Internal Server Error", "", r#"{"code":"internal","message":"no disk"}"#);
    proxy.set(move |line| if line.contains("MakeDir") { broken.clone() } else { Fault::Pass });
    let error = adapter.create(&cx(), &spec(), CreateOptions::default()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_not_started()), (ErrorKind::Provider, false), "{error}");
    assert_eq!(world.alive().await, 0);
}
