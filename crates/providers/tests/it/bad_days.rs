//! Bad days of places that a router has to get by with: what its callers see, whom it leaves alone, and what it pays.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sandstorm_catalog::Catalog;
use sandstorm_control::server::{ExecWork, NewExec, NewSandbox, SandboxView};
use sandstorm_fleet::{Fleet, FleetSettings, Member};
use sandstorm_provider::{Command, Tasks};
use sandstorm_providers::sandstorm::SandstormProvider;
use sandstorm_router::{ErrorFamily, Health};
use sandstorm_types::{Enforcement, ErrorKind, Routing, RunResult, RunSpec, Status, Usd};

use crate::ledger;
use crate::proxy::{Fault, answer};
use crate::three::{NAMES, Three, router, spec};
use crate::world::{World, cx, eventually};

fn flaky_first() -> Option<Box<Routing>> {
    Some(Box::new(Routing { order: vec!["flaky".to_owned()], ..Routing::default() }))
}

async fn run(three: &Three, code: &str) -> RunResult {
    let wanted = RunSpec { routing: flaky_first(), ..spec(code) };
    three.control.run(&three.caller(), wanted).await.unwrap_or_else(|error| panic!("{error} {error:?}"))
}

async fn sandbox(three: &Three) -> SandboxView {
    let enforcement = Some(Enforcement::BestEffort);
    let new = NewSandbox { enforcement, routing: flaky_first(), ..NewSandbox::default() };
    three.control.create_sandbox(&three.caller(), new).await.unwrap()
}

fn command(line: &str) -> NewExec {
    let argv = ["/bin/sh", "-c", line].map(str::to_owned).to_vec();
    NewExec::of(ExecWork::Command(Command::Program(argv)))
}

async fn health(three: &Three) -> Health {
    three.fleet.survey(&cx()).await[0].health
}

/// Everything is well again: nothing is left anywhere, and all agree on what it cost.
async fn settles(three: &Three) {
    three.proxies.iter().for_each(crate::proxy::Proxy::heal);
    for server in &three.servers {
        eventually("nothing is left", || async { server.alive().await == 0 }).await;
    }
    let mut spent = ledger::settled(&three.control, &three.caller()).await;
    // What came about nowhere is billed nowhere.
    if let Some(nowhere) = spent.remove("fleet") {
        assert_eq!((nowhere.wall_ms, nowhere.charge), (0, Usd::ZERO));
    }
    ledger::agrees(&spent, NAMES.into_iter().zip(&three.servers)).await;
}

fn executes(line: &str) -> bool {
    line.starts_with("POST ") && line.contains("/exec ")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_answers_200_with_garbage_is_got_by_with() {
    let three = Three::patient(Duration::from_secs(5)).await;
    let bodies = ["{}", "[]", "null", "<html>", "{\"id\": 3, \"state\": \"ready\"}"];
    for (turn, body) in bodies.into_iter().enumerate() {
        three.proxies[0].set(move |line| match line.starts_with("POST /v1/sandboxes ") {
            true => answer("200 OK", "content-type: application/json\r\n", body),
            false => Fault::Pass,
        });
        let result = run(&three, body).await;
        assert_eq!((result.status, result.stdout.as_str()), (Status::Ok, body));
        assert_ne!(result.route.provider, "flaky");
        // After three of them it is not asked any more.
        assert_eq!(result.route.attempts.len(), if turn < 3 { 2 } else { 1 }, "{:?}", result.route.attempts);
    }
    settles(&three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_answers_garbage_to_what_is_to_run_counts_as_failing() {
    let three = Three::patient(Duration::from_secs(5)).await;
    three.proxies[0].set(|line| match executes(line) {
        true => Fault::Answer(b"garbage\r\n\r\n".to_vec()),
        false => Fault::Pass,
    });
    for turn in 0..5 {
        let result = run(&three, &format!("program {turn}")).await;
        assert_ne!(result.route.provider, "flaky");
        assert_eq!(result.route.attempts.len(), if turn < 3 { 2 } else { 1 }, "{:?}", result.route.attempts);
    }
    assert!(matches!(health(&three).await, Health::Open { family: ErrorFamily::Lost, .. }));
    settles(&three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_hangs_after_create_is_left_and_left_alone() {
    let three = Three::patient(Duration::from_millis(400)).await;
    three.proxies[0].set(|line| if executes(line) { Fault::Hang } else { Fault::Pass });
    for turn in 0..5 {
        let began = Instant::now();
        let result = run(&three, &format!("program {turn}")).await;
        assert_ne!(result.route.provider, "flaky");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
    let health = health(&three).await;
    assert!(matches!(health, Health::Open { family: ErrorFamily::Lost, .. }), "{health}");
    three.proxies[0].break_all();
    settles(&three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_loses_sandboxes_in_mid_exec_is_left_alone() {
    let three = Three::patient(Duration::from_secs(5)).await;
    let caller = three.caller();
    for _ in 0..3 {
        let made = sandbox(&three).await;
        assert_eq!(made.provider, "flaky");
        let running = three.control.exec_to_end(&caller, made.id, command("echo up; sleep 60"));
        let losing = async {
            let far = three.servers[0].client();
            let theirs = far.sandboxes(&Default::default()).await.unwrap().items[0].id;
            eventually("the program runs", || async { !far.execs(theirs, true).await.unwrap().is_empty() })
                .await;
            far.delete_sandbox(theirs).await.unwrap();
        };
        let (ended, ()) = tokio::join!(running, losing);
        // Nobody takes it for a result of the program.
        assert!(ended.map_or(true, |result| result.status != Status::Ok));
        three.control.delete_sandbox(&caller, made.id).await.unwrap();
    }
    let made = sandbox(&three).await;
    assert_ne!(made.provider, "flaky");
    three.control.delete_sandbox(&caller, made.id).await.unwrap();
    settles(&three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn success_for_a_failed_delete_is_not_believed() {
    let three = Three::patient(Duration::from_secs(5)).await;
    let caller = three.caller();
    let made = sandbox(&three).await;
    three.proxies[0].set(|line| match line.starts_with("DELETE ") {
        true => answer("204 No Content", "", ""),
        false => Fault::Pass,
    });
    let error = three.control.delete_sandbox(&caller, made.id).await.unwrap_err();
    assert!(error.to_string().contains("still there"), "{error}");
    assert_eq!(three.servers[0].alive().await, 1);
    // Runs are over for whoever asked, and what is left of them is removed later.
    let result = run(&three, "done").await;
    assert_eq!((result.status, result.route.provider.as_str()), (Status::Ok, "flaky"));
    three.proxies[0].heal();
    three.control.delete_sandbox(&caller, made.id).await.unwrap();
    settles(&three).await;
}

/// A whole hundred of megabytes in pieces, however little was asked for.
fn flood() -> Fault {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let said = "x".repeat(64 << 10);
    let event =
        format!("id: 1\nevent: stdout\ndata: {{\"seq\": 1, \"offset\": 0, \"text\": \"{said}\"}}\n\n");
    Fault::Endless(head.as_bytes().to_vec(), event.into_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_floods_with_output_is_cut_off_and_left_alone() {
    let three = Three::patient(Duration::from_secs(5)).await;
    three.proxies[0].set(|line| if executes(line) { flood() } else { Fault::Pass });
    let mut failed = 0;
    for turn in 0..6 {
        let began = Instant::now();
        let wanted = RunSpec { routing: flaky_first(), ..spec(&format!("program {turn}")) };
        // It may have begun there, so that nobody else begins it.
        failed += usize::from(three.control.run(&three.caller(), wanted).await.is_err());
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
    assert!(failed <= 3, "{failed}");
    let health = health(&three).await;
    assert!(matches!(health, Health::Open { family: ErrorFamily::Lost, .. }), "{health}");
    settles(&three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_all_hang_the_answer_comes_in_time_and_names_each() {
    let three = Three::patient(Duration::from_millis(500)).await;
    for proxy in &three.proxies {
        proxy.set(|_| Fault::Hang);
    }
    let began = Instant::now();
    let error = three.control.run(&three.caller(), spec("x")).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert_eq!(error.kind(), ErrorKind::Capacity, "{error}");
    for name in NAMES {
        assert!(error.to_string().contains(name), "{error}");
    }
    three.proxies.iter().for_each(crate::proxy::Proxy::break_all);
    settles(&three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_came_about_nowhere_is_paid_for_where_it_was_begun() {
    let three = Three::patient(Duration::from_secs(5)).await;
    for proxy in &three.proxies {
        proxy.set(|line| match line.starts_with("POST /v1/sandboxes ") {
            true => Fault::LoseAnswer,
            false => Fault::Pass,
        });
    }
    let caller = three.caller();
    three.control.run(&caller, spec("x")).await.unwrap_err();
    let enforcement = Some(Enforcement::BestEffort);
    let new = NewSandbox { enforcement, ..NewSandbox::default() };
    three.control.create_sandbox(&caller, new).await.unwrap_err();
    let spent = ledger::settled(&three.control, &caller).await;
    for name in NAMES {
        let sum = &spent[name];
        assert_eq!((sum.attempts, sum.runs, sum.sandboxes), (2, 0, 0), "{name}");
        assert!(sum.charge.is_positive(), "{name}");
    }
    assert_eq!((spent["fleet"].runs, spent["fleet"].sandboxes), (1, 1));
    settles(&three).await;
}

/// Where nobody hears of the request nothing is begun, and nothing paid.
#[tokio::test(flavor = "multi_thread")]
async fn attempts_that_were_never_heard_of_cost_nothing() {
    let three = Three::patient(Duration::from_secs(5)).await;
    three.proxies[0].set(|line| match line.starts_with("POST /v1/sandboxes ") {
        true => Fault::Reset,
        false => Fault::Pass,
    });
    let result = run(&three, "x").await;
    assert_eq!(result.route.attempts.len(), 2);
    let spent = ledger::settled(&three.control, &three.caller()).await;
    assert!(!spent.contains_key("flaky"), "{spent:?}");
    settles(&three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_price_that_changes_is_for_what_comes_after() {
    let server = World::new().await;
    let dir = tempfile::tempdir().unwrap();
    let price = |dollars: u32| {
        let json = format!(
            r#"{{"far": {{"like": "sandstorm", "price": {{"model": "owned", "vcpu_hour": {dollars}, "gib_hour": 0}}}}}}"#
        );
        let catalog = Catalog::embedded().with(&serde_json::from_str(&json).unwrap()).unwrap();
        Arc::new(catalog.get("far").unwrap().clone())
    };
    let mut bills = Vec::new();
    let mut before = (0, Usd::ZERO);
    for dollars in [3600, 7200] {
        let provider = SandstormProvider::connect(server.config(server.address)).await.unwrap();
        let member = Member::new(Arc::new(provider), price(dollars));
        let tasks = Tasks::default();
        let fleet = Fleet::new(vec![member], FleetSettings::default(), 7, tasks.clone());
        let control = router(fleet, dir.path()).await;
        let caller = control.developer();
        control.run(&caller, spec("x")).await.unwrap();
        let sum = ledger::settled(&control, &caller).await["far"].clone();
        bills.push((sum.wall_ms - before.0, sum.charge - before.1));
        before = (sum.wall_ms, sum.charge);
        control.drain(Duration::from_secs(5)).await;
        tasks.stop().await;
    }
    // A dollar for each second, then two.
    for ((millis, charge), dollars) in bills.into_iter().zip([1, 2]) {
        assert_eq!(charge, Usd::picos(i128::from(millis) * 1_000_000_000 * dollars));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_counts_more_than_can_be_is_not_believed() {
    let three = Three::patient(Duration::from_secs(5)).await;
    three.proxies[0].set(|line| {
        let id = line.strip_prefix("GET /v1/sandboxes/sbx_").and_then(|rest| rest.split_once(' '));
        let Some((id, _)) = id.filter(|(id, _)| id.len() == 26) else { return Fault::Pass };
        let body = format!(
            r#"{{"id": "sbx_{id}", "state": "terminated", "created_at": "2026-01-01T00:00:00.000Z",
                "metered": {{"wall_ms": 999999999, "cpu_ms": 1, "peak_memory_bytes": 1}}}}"#
        );
        answer("200 OK", "content-type: application/json\r\n", &body)
    });
    let result = run(&three, "x").await;
    assert_eq!(result.route.provider, "flaky");
    eventually("it has ended", || async { three.servers[0].alive().await == 0 }).await;
    // What was measured from here stays, and stays marked.
    for _ in 0..10 {
        let spent = ledger::spent(&three.control, &three.caller()).await;
        let flaky = &spent["flaky"];
        assert_eq!((flaky.runs, flaky.estimated), (1, 1));
        assert!(flaky.wall_ms < 60_000, "{flaky:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
