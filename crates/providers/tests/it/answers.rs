//! Answers that refuse, lie or make no sense.

use std::time::{Duration, Instant};

use sandstorm_client::NewSandbox;
use sandstorm_provider::{CreateOptions, Error, Provider};
use sandstorm_providers::sandstorm::SandstormProvider;
use sandstorm_types::{ErrorKind, Retry, SandboxId};

use crate::hosted::{Hosted, Sandstorm, behind_proxy};
use crate::proxy::{Fault, answer};
use crate::world::{World, cx, opts, spec};

async fn create(adapter: &SandstormProvider) -> Error {
    adapter.create(&cx(), &spec(), CreateOptions::default()).await.unwrap_err()
}

fn problem(status: &str, code: &str, headers: &str) -> Fault {
    let body = format!(r#"{{"code":"{code}","detail":"not today","request_id":"req_7"}}"#);
    answer(status, headers, &body)
}

#[tokio::test]
async fn refusals_are_told_apart_at_once() {
    let (world, proxy, adapter) = behind_proxy::<Sandstorm>().await;
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
        proxy.set(move |line| if Sandstorm::creates(line) { refusal.clone() } else { Fault::Pass });
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
async fn what_was_made_otherwise_than_asked_for_is_taken_back() {
    let (world, proxy, adapter) = behind_proxy::<Sandstorm>().await;
    let id = SandboxId::random();
    let labels = [("sandstorm.owner/here", "yes".to_owned()), ("sandstorm.sandbox/here", id.to_string())];
    let labels = labels.map(|(key, value)| (key.to_owned(), value)).into();
    let new = NewSandbox { labels, ..NewSandbox::default() };
    let mut made = world.client().create_sandbox(&new).await.unwrap();
    made.more["limits"]["processes"] = 1000.into();
    let odd = answer("201 Created", "", &serde_json::to_string(&made).unwrap());
    proxy.set(move |line| if Sandstorm::creates(line) { odd.clone() } else { Fault::Pass });
    let error = adapter.create(&cx(), &spec(), opts(id)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider);
    assert!(error.to_string().contains("other limits"), "{error}");
    assert_eq!(world.alive().await, 0);
}
