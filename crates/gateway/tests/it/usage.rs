//! What tenants spent, and runs as the first Sandstorm's SDK asks for them.

use std::sync::Arc;

use sandstorm_catalog::Catalog;
use sandstorm_control::server::{AtLimit, Budget, Costs, Settings, Window};
use sandstorm_gateway::{GatewaySettings, ServeLimits};
use sandstorm_types::{Enforcement, Usd};
use serde_json::{Value, json};

use crate::world::{World, control_settings, send};

/// A dollar for each processor and second, and five for each day and team.
async fn world() -> World {
    let json = r#"{"memory": {"like": "local", "price": {"model": "owned", "vcpu_hour": 3600}}}"#;
    let catalog = Arc::new(Catalog::embedded().with(&serde_json::from_str(json).unwrap()).unwrap());
    let budget = Budget {
        name: "teams".into(),
        tenant: None,
        key: None,
        label: Some(("team".into(), None)),
        amount: Usd::dollars(5),
        window: Window::Day,
        at_limit: AtLimit::Stop,
    };
    let costs = Costs { catalog, budgets: vec![budget], ..Costs::default() };
    let rules = Settings { costs, enforcement: Enforcement::BestEffort, ..control_settings() };
    World::with(GatewaySettings::default(), ServeLimits::default(), rules).await
}

fn run(team: &str) -> String {
    let labels = serde_json::json!({ "team": team });
    serde_json::json!({"language": "bash", "code": "hi", "enforcement": "best_effort", "labels": labels})
        .to_string()
}

#[tokio::test]
async fn usage_is_summed_up_as_json_and_as_a_table() {
    let world = world().await;
    for team in ["=HYPERLINK(\"x\")", "blue, green"] {
        let result = world.call("POST", "/v1/runs", &run(team)).await;
        assert_eq!(result.status, 200, "{}", result.text());
        assert!(result.json()["route"]["cost_usd"].as_f64().unwrap() > 0.0);
    }
    let usage = world.call("GET", "/v1/usage?group_by=label:team,day&limit=1", "").await.json();
    assert_eq!(usage["runs"], 2, "what was there before is there still");
    let costs = &usage["costs"];
    assert_eq!((&costs["total"]["runs"], costs["items"].as_array().unwrap().len()), (&2.into(), 1));
    assert_eq!(costs["items"][0]["group"]["label:team"], "=HYPERLINK(\"x\")");
    assert_eq!(costs["items"][0]["group"]["day"].as_str().unwrap().len(), 10);
    assert_eq!(costs["total"]["estimate_usd"], "10");
    let next = format!(
        "/v1/usage?group_by=label:team,day&limit=1&cursor={}",
        costs["next_cursor"].as_str().unwrap()
    );
    let second = world.call("GET", &next, "").await.json();
    assert_eq!(second["costs"]["items"][0]["group"]["label:team"], "blue, green");
    assert!(second["costs"]["next_cursor"].is_null());

    let table = world.call("GET", "/v1/usage?group_by=label:team&format=csv", "").await;
    assert_eq!(table.headers["content-type"], "text/csv; charset=utf-8");
    let text = table.text();
    let lines: Vec<_> = text.split("\r\n").collect();
    assert!(lines[0].starts_with("label:team,runs,sandboxes,") && lines[0].ends_with(",cost_usd"), "{text}");
    assert!(lines[1].starts_with("\"'=HYPERLINK(\"\"x\"\")\",1,0,"), "{text}");
    assert!(lines[2].starts_with("\"blue, green\",1,0,"), "{text}");
    let request = world.request("GET", "/v1/usage?limit=1&group_by=label:team").header("accept", "text/csv");
    let request = request.header("authorization", format!("Bearer {}", world.key));
    let page = world.send(request, "").await;
    assert!(page.headers.contains_key("x-next-cursor"), "{:?}", page.headers);

    for bad in [
        "group_by=colour",
        "group_by=day,day",
        "group_by=label:",
        "from=yesterday",
        "from=2026-11-16&to=2026-11-15",
        "format=xml",
        "limit=1001",
        "cursor=zz",
        "group=day",
    ] {
        world.call("GET", &format!("/v1/usage?{bad}"), "").await.refused(400);
    }
}

#[tokio::test]
async fn a_tenant_sees_its_own_and_an_operator_all() {
    let world = world().await;
    world.call("POST", "/v1/runs", &run("blue")).await;
    let request =
        world.request("GET", "/v1/usage").header("authorization", format!("Bearer {}", world.stranger));
    assert_eq!(world.send(request, "").await.json()["costs"]["total"]["runs"], 0);
    // Not on the public side, and not with another key.
    world.call("GET", "/v1/admin/usage", "").await.refused(404);
    let ask = async |key: &str, path: &str| {
        let request = http::Request::get(format!("http://{}{path}", world.admin));
        let request =
            request.header("host", world.admin.to_string()).header("authorization", format!("Bearer {key}"));
        send(world.admin, request.body(Default::default()).unwrap()).await
    };
    ask(&world.stranger, "/v1/admin/usage").await.refused(403);
    let all = ask(&world.key, "/v1/admin/usage?group_by=tenant,key").await.json();
    assert_eq!((&all["total"]["runs"], all["items"].as_array().unwrap().len()), (&1.into(), 1));
    let none = ask(&world.key, "/v1/admin/usage?tenant=ten_bbbbbbbbbbbbbbbbbbbbbbbbba").await.json();
    assert_eq!(none["total"]["runs"], 0);
}

#[tokio::test]
async fn what_there_is_no_money_for_is_answered_with_402() {
    let world = world().await;
    world.call("POST", "/v1/runs", &run("blue")).await;
    let refused = world.call("POST", "/v1/runs", &run("blue")).await.refused(402);
    assert_eq!(refused["code"], "billing");
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.starts_with("the budget `teams` for team=blue of 5 USD a day is used up"), "{detail}");
    let capped = r#"{"language": "bash", "code": "hi", "enforcement": "best_effort", "max_cost": 0.5}"#;
    world.call("POST", "/v1/runs", capped).await.refused(402);
    world.call("POST", "/v1/sandboxes", r#"{"max_cost": "0.5"}"#).await.refused(402);
    world.call("POST", "/v1/sandboxes", r#"{"max_cost": -1}"#).await.refused(400);
    let enough = r#"{"language": "bash", "code": "hi", "enforcement": "best_effort", "max_cost": 5}"#;
    assert_eq!(world.call("POST", "/v1/runs", enough).await.status, 200);
}

#[tokio::test]
async fn the_first_sandstorms_way_to_run() {
    let world = world().await;
    let body =
        r#"{"spec": {"code": "hi", "language": "shell", "timeout": 5000}, "constraints": {"maxCost": 50}}"#;
    let answer = world.call("POST", "/v1/sandboxes/run", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let result = answer.json();
    assert_eq!(
        (&result["stdout"], &result["exitCode"], &result["provider"]),
        (&"hi".into(), &0.into(), &"memory".into())
    );
    assert!(result["cost"].as_f64().unwrap() > 0.0 && result["duration"].as_f64().unwrap() > 0.0);
    assert!(result["logs"].as_array().unwrap().is_empty() && result["metrics"]["memoryUsage"].is_u64());
    let record = format!("/v1/runs/{}", result["id"].as_str().unwrap());
    assert_eq!(world.call("GET", &record, "").await.json()["status"], "ok");
    let snake = r#"{"spec": {"code": "hi", "language": "shell"}, "constraints": {"max_cost": 0.001}}"#;
    world.call("POST", "/v1/sandboxes/run", snake).await.refused(402);
    for bad in [
        r#"{"language": "shell"}"#,
        r#"{"spec": {"code": "hi", "gpu": true}}"#,
        r#"{"spec": {"code": "hi", "language": "klingon"}}"#,
        r#"{"spec": {"code": "hi"}, "constraints": {"exclude_providers": ["memory"]}}"#,
    ] {
        world.call("POST", "/v1/sandboxes/run", bad).await.refused(400);
    }
    // It is no sandbox, and sandboxes are found as before.
    world.call("GET", &format!("/v1/sandboxes/{}", world.sandbox().await), "").await.json();
}

#[tokio::test]
async fn the_first_sandstorms_quick_start_works_as_printed() {
    // As on a machine whose operator has set no price.
    let json = r#"{"memory": {"like": "local"}}"#;
    let catalog = Arc::new(Catalog::embedded().with(&serde_json::from_str(json).unwrap()).unwrap());
    let costs = Costs { catalog, ..Costs::default() };
    let rules = Settings { costs, enforcement: Enforcement::BestEffort, ..control_settings() };
    let world = World::with(GatewaySettings::default(), ServeLimits::default(), rules).await;
    // As its template literal has it, between the backquotes.
    let code = "\n    import numpy as np\n    print(np.random.rand(5))\n  ";
    let constraints = json!({ "maxCost": 0.10, "maxLatency": 5000, "preferredRegion": "us-west" });
    let snake = json!({ "max_cost": 0.10, "max_latency": 5000, "preferred_region": "us-west" });
    let run = async |path: &str, body: Value| world.call("POST", path, &body.to_string()).await;
    for wishes in [&constraints, &snake] {
        let spec = json!({ "code": code, "language": "python" });
        let flat = json!({ "code": code, "language": "python", "constraints": wishes });
        for (path, body) in [
            ("/v1/sandboxes/run", json!({ "spec": spec, "constraints": wishes })),
            ("/v1/sandboxes/run", flat.clone()),
            ("/v1/runs", flat),
        ] {
            let answer = run(path, body.clone()).await;
            assert_eq!(answer.status, 200, "{path} {body}: {}", answer.text());
            // The stand-in for Python shows the program that it was given.
            let shown = "\nimport numpy as np\nprint(np.random.rand(5))\n";
            assert_eq!(answer.json()["stdout"], shown, "{path} {body}");
        }
    }
    // This server has no place for packages, and nothing else in the quick start is in its way.
    let whole =
        json!({ "code": code, "language": "python", "requirements": ["numpy"], "constraints": constraints });
    for path in ["/v1/sandboxes/run", "/v1/runs"] {
        let refused = run(path, whole.clone()).await.refused(400);
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.starts_with("packages cannot be installed without a state directory"), "{detail}");
    }
    for (bad, field) in [
        (json!({ "maxCost": 1, "gpu": true }), "constraints.gpu"),
        (json!({ "excludeProviders": ["memory"] }), "constraints.excludeProviders"),
    ] {
        let body = json!({ "code": "1", "language": "python", "constraints": bad });
        assert_eq!(run("/v1/runs", body).await.refused(400)["errors"][0]["field"], field);
    }
    let twice = json!({ "code": "1", "language": "python", "max_cost": 1, "constraints": { "maxCost": 1 } });
    run("/v1/runs", twice).await.refused(400);
    let limits = json!({ "code": "1", "language": "python", "constraints": { "memory": 2048 } });
    run("/v1/runs", limits).await.refused(400);
}
