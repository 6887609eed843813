//! Browsers: names that are not ours, pages that may not ask, answers that may not be read.

use sandstorm_gateway::{GatewaySettings, ServeLimits};

use crate::world::{Reply, World, control_settings};

async fn world(dev_no_auth: bool, hosts: &[&str], origins: &[&str]) -> World {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    let settings = GatewaySettings {
        dev_no_auth,
        allowed_hosts: texts(hosts),
        allowed_origins: texts(origins),
        ..GatewaySettings::default()
    };
    World::with(settings, ServeLimits::default(), control_settings()).await
}

async fn get(world: &World, headers: &[(&str, &str)]) -> Reply {
    let mut request = http::Request::builder().method("GET").uri("/v1/me");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    world.send(request, "").await
}

#[tokio::test]
async fn without_keys_a_rebound_name_or_a_foreign_page_gets_nothing() {
    let world = world(true, &[], &[]).await;
    let own = world.address.to_string();
    assert_eq!(get(&world, &[("host", &own)]).await.status, 200);
    assert_eq!(get(&world, &[("host", "localhost:7300")]).await.status, 200);
    get(&world, &[("host", "attacker.test")]).await.refused(421);
    get(&world, &[("host", &own), ("origin", "https://evil.test")]).await.refused(403);
    get(&world, &[("host", &own), ("origin", "null")]).await.refused(403);
    let page = format!("http://{own}");
    assert_eq!(get(&world, &[("host", &own), ("origin", &page)]).await.status, 200);
    // Keys are ignored, not needed.
    assert_eq!(get(&world, &[("host", &own), ("x-api-key", "nonsense")]).await.status, 200);
}

#[tokio::test]
async fn names_are_listed_when_the_operator_lists_them() {
    let world = world(false, &["api.test"], &[]).await;
    let key = ("x-api-key", world.key.as_str());
    assert_eq!(get(&world, &[("host", "api.test"), key]).await.status, 200);
    assert_eq!(get(&world, &[("host", "api.test:443"), key]).await.status, 200);
    get(&world, &[("host", "attacker.test"), key]).await.refused(421);
    get(&world, &[("host", "api.test.attacker.test"), key]).await.refused(421);
    let probe = http::Request::builder().method("GET").uri("/healthz").header("host", "10.0.0.1");
    assert_eq!(world.send(probe, "").await.status, 200);
}

#[tokio::test]
async fn no_page_reads_answers_unless_its_origin_is_allowed() {
    let world = world(false, &[], &["https://app.test"]).await;
    let (host, key) = (("host", "x"), ("x-api-key", world.key.as_str()));
    let other = get(&world, &[host, key, ("origin", "https://evil.test")]).await;
    assert!(!other.headers.contains_key("access-control-allow-origin"));
    let lookalike = get(&world, &[host, key, ("origin", "https://app.test.evil.test")]).await;
    assert!(!lookalike.headers.contains_key("access-control-allow-origin"));
    let allowed = get(&world, &[host, key, ("origin", "https://app.test")]).await;
    assert_eq!(allowed.headers["access-control-allow-origin"], "https://app.test");
    assert!(!allowed.headers.contains_key("access-control-allow-credentials"));
    for (origin, status) in [("https://app.test", 204), ("https://evil.test", 405)] {
        let asks = http::Request::builder().method("OPTIONS").uri("/v1/me").header("host", "x");
        let asks = asks.header("origin", origin).header("access-control-request-method", "GET");
        assert_eq!(world.send(asks, "").await.status, status, "{origin}");
    }
}
