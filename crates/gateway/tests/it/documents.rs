//! The API's own description and pages, and what every answer carries.

use crate::world::World;

#[tokio::test]
async fn the_description_and_its_pages_come_from_here() {
    let world = World::new().await;
    let get = async |path: &str| world.send(world.request("GET", path), "").await;
    let document = get("/openapi.json").await;
    assert!(document.json()["openapi"].as_str().unwrap().starts_with("3.1"));
    assert_eq!(get("/docs").await.headers["location"], "/docs/");
    let page = get("/docs/").await;
    assert_eq!(page.status, 200);
    assert!(page.headers["content-type"].to_str().unwrap().starts_with("text/html"));
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("script-src 'self'") && !policy.contains("http"));
    let script = get("/docs/swagger-initializer.js").await;
    assert!(script.text().contains("/openapi.json"), "{}", script.text());
    for outside in ["/docs/../Cargo.toml", "/docs/%2e%2e/Cargo.toml", "/docs/none.js"] {
        get(outside).await.refused(404);
    }
}

#[tokio::test]
async fn foreign_routes_are_an_addition() {
    let world = World::new().await;
    let none = crate::world::gateway(&world.control, &Default::default(), false);
    assert!(none.extra.is_empty());
    // Mounting nothing is not a mistake.
    let _ = sandstorm_gateway::router(none);
    let refused = world.send(world.request("GET", "/foreign/who"), "").await;
    // Whoever is refused reads where it is told how to get in, and needs nothing for that.
    let challenge = refused.headers["www-authenticate"].to_str().unwrap().to_owned();
    refused.refused(401);
    let place = format!("resource_metadata=\"http://{}/foreign/how\"", world.address);
    assert!(challenge.contains(&place) && challenge.starts_with("Bearer "), "{challenge}");
    assert_eq!(world.send(world.request("GET", "/foreign/how"), "").await.status, 200);
}

#[tokio::test]
async fn metrics_tell_nothing_of_tenants() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let metrics = world.send(world.request("GET", "/metrics"), "").await;
    assert_eq!(metrics.status, 200);
    assert!(!metrics.text().contains(&id) && !metrics.text().contains("ten_"));
    let settings = sandstorm_gateway::GatewaySettings { metrics_auth: true, ..Default::default() };
    let world = World::with(settings, Default::default(), crate::world::control_settings()).await;
    world.send(world.request("GET", "/metrics"), "").await.refused(401);
    assert_eq!(world.call("GET", "/metrics", "").await.status, 200);
}

#[tokio::test]
async fn requests_keep_their_ids_and_traces() {
    let world = World::new().await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let request =
        world.request("GET", "/v1/me").header("x-api-key", &world.key).header("x-request-id", "mine-1");
    let reply =
        world.send(request.header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01")), "").await;
    assert_eq!(reply.headers["x-request-id"], "mine-1");
    assert!(reply.headers["traceparent"].to_str().unwrap().starts_with(&format!("00-{trace}-")));
    assert_eq!(reply.headers["cache-control"], "no-store");
    assert_eq!(reply.headers["x-content-type-options"], "nosniff");
    let odd = world.request("GET", "/healthz").header("x-request-id", "a b\"c");
    assert!(world.send(odd, "").await.headers["x-request-id"].to_str().unwrap().starts_with("req_"));
}
