//! What things cost, and budgets that nobody goes past.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sandstorm_catalog::{Catalog, FeeRules};
use sandstorm_control::server::{
    AtLimit, Budget, CostQuery, Costs, GroupBy, LedgerSum, NewSandbox, NewSnapshot, Settings, Window,
};
use sandstorm_fleet::{Fleet, FleetSettings, Member};
use sandstorm_provider::altered::{Alteration, Altered};
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_provider::{
    CreateOptions, Exec, ExecRequest, OpContext, Placement, Provider, ProviderExt, ProviderInfo, Result,
    Sandbox, Tasks,
};
use sandstorm_store::testing::meddle;
use sandstorm_types::{
    Attempt, Enforcement, ErrorKind, Labels, LimitsPatch, Phase, RunSpec, SandboxId, SandboxSpec, Status, Usd,
};

use crate::world::{World, eventually, plain, settings};

/// A dollar for each processor and second, and what a run or sandbox is expected to cost of that.
const RUN: i64 = 5;
const SANDBOX: i64 = 10;

fn prices() -> Arc<Catalog> {
    let json = r#"{"memory": {"like": "local", "price": {"model": "owned", "vcpu_hour": 3600}},
        "rented": {"like": "daytona", "price": {"model": "allocated", "vcpu_second": 1, "gib_second": 0}}}"#;
    Arc::new(Catalog::embedded().with(&serde_json::from_str(json).unwrap()).unwrap())
}

fn costs(budgets: Vec<Budget>) -> Costs {
    Costs { catalog: prices(), budgets, ..Costs::default() }
}

fn budget(amount: Usd, at_limit: AtLimit) -> Budget {
    Budget {
        name: "daily".into(),
        tenant: None,
        key: None,
        label: None,
        amount,
        window: Window::Day,
        at_limit,
    }
}

fn spec(code: &str) -> RunSpec {
    RunSpec { enforcement: Some(Enforcement::BestEffort), ..RunSpec::new("bash".parse().unwrap(), code) }
}

fn labels(name: &str, value: &str) -> Labels {
    std::collections::BTreeMap::from([(name.to_owned(), value.to_owned())]).try_into().unwrap()
}

async fn world(costs: Costs) -> World {
    World::with(Settings { costs, ..settings() }).await
}

async fn total(world: &World) -> LedgerSum {
    world.control.costs(&world.caller(), CostQuery::default()).await.unwrap().total
}

/// Programs sleep for a minute, and sandboxes that stay come from somewhere after failures elsewhere.
#[derive(Debug, Default)]
struct Slow(MemoryProvider);

#[async_trait]
impl Alteration for Slow {
    fn original(&self) -> &dyn Provider {
        &self.0
    }

    async fn create(&self, cx: &OpContext, spec: &SandboxSpec, opts: CreateOptions) -> Result<Sandbox> {
        let for_a_run = opts.ephemeral;
        let mut made = self.0.create(cx, spec, opts).await?;
        if for_a_run {
            return Ok(made);
        }
        let attempt = |provider: &str, outcome: &str| Attempt {
            provider: provider.to_owned(),
            outcome: outcome.to_owned(),
            ms: 2000.0,
            sandbox: Some(SandboxId::random()),
        };
        made.placement = Some(Placement {
            info: ProviderInfo { name: "rented".into(), kind: "rented".into(), region: Some("eu".into()) },
            cost: Usd::ZERO,
            elsewhere: false,
            reason: "it is the last one".into(),
            attempts: vec![
                attempt("rented", "provider"),
                attempt("memory", "capacity"),
                attempt("rented", "ok"),
            ],
        });
        Ok(made)
    }

    async fn exec(&self, cx: &OpContext, id: &SandboxId, mut request: ExecRequest) -> Result<Exec> {
        request.command = sandstorm_provider::Command::Program(vec!["sleep".into(), "60".into()]);
        self.0.exec(cx, id, request).await
    }
}

async fn slow(costs: Costs) -> World {
    World::on(Arc::new(Altered(Slow::default())), Settings { costs, ..settings() }).await
}

#[tokio::test]
async fn a_run_says_what_it_cost_and_the_ledger_agrees() {
    let world = world(costs(Vec::new())).await;
    let caller = world.caller();
    let mut all = 0.0;
    for team in ["blue", "red"] {
        let labels = labels("team", team);
        let result = world.control.run(&caller, RunSpec { labels, ..spec("x") }).await.unwrap();
        assert!(result.route.cost_usd > 0.0 && result.route.cost_usd < 5.0, "{result:?}");
        all += result.route.cost_usd;
    }
    let sum = total(&world).await;
    assert_eq!((sum.runs, sum.open, sum.unpriced, sum.estimate), (2, 0, 0, Usd::dollars(2 * RUN)));
    assert!((sum.cost().as_f64() - all).abs() < 1e-9, "{sum:?} {all}");
    let group_by = vec![GroupBy::Label("team".into()), GroupBy::Provider];
    let query = CostQuery { group_by, limit: Some(1), ..CostQuery::default() };
    let first = world.control.costs(&caller, query.clone()).await.unwrap();
    assert_eq!((first.groups.len(), first.groups[0].values.join(" ")), (1, "blue memory".to_owned()));
    let next = CostQuery { cursor: first.next_cursor, ..query.clone() };
    let second = world.control.costs(&caller, next).await.unwrap();
    assert_eq!((second.groups[0].values.join(" "), second.next_cursor), ("red memory".to_owned(), None));
    let wrong = CostQuery { cursor: Some("W10".into()), ..query };
    assert_eq!(world.control.costs(&caller, wrong).await.unwrap_err().kind(), ErrorKind::InvalidRequest);
    // Others see nothing of it, and only an operator sees all.
    let stranger = world.stranger().await;
    assert_eq!(world.control.costs(&stranger, CostQuery::default()).await.unwrap().total.runs, 0);
    let refused = world.control.costs_of_all(&stranger, None, CostQuery::default()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Forbidden);
    let by_tenant = CostQuery { group_by: vec![GroupBy::Tenant], ..CostQuery::default() };
    assert_eq!(world.control.costs_of_all(&caller, None, by_tenant).await.unwrap().total.runs, 2);
}

#[tokio::test]
async fn what_has_no_price_is_counted_and_says_so() {
    let world = World::new().await;
    let result = world.control.run(&world.caller(), spec("x")).await.unwrap();
    assert_eq!(result.route.cost_usd.to_bits(), 0.0_f64.to_bits());
    let sum = total(&world).await;
    assert_eq!((sum.runs, sum.unpriced, sum.cost()), (1, 1, Usd::ZERO));
    // With a budget, nobody could tell whether it is kept.
    let capped = RunSpec { max_cost: Some(Usd::dollars(1)), ..spec("x") };
    let refused = world.control.run(&world.caller(), capped).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Billing);
    assert!(refused.message().contains("no provider here has a price"), "{refused}");
}

#[tokio::test]
async fn a_budget_that_is_used_up_refuses_and_says_which() {
    let world = world(costs(vec![
        Budget {
            label: Some(("team".into(), None)),
            name: "teams".into(),
            ..budget(Usd::dollars(RUN), AtLimit::Stop)
        },
        Budget { name: "all".into(), ..budget(Usd::dollars(3 * RUN), AtLimit::Stop) },
    ]))
    .await;
    let caller = world.caller();
    let team = |name: &str| RunSpec { labels: labels("team", name), ..spec("x") };
    world.control.run(&caller, team("blue")).await.unwrap();
    // What it cost is little, but no estimate fits into what is left.
    let refused = world.control.run(&caller, team("blue")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Billing);
    let words = "the budget `teams` for team=blue of 5 USD a day is used up: about 5 USD would be needed";
    assert!(refused.message().starts_with(words), "{refused}");
    // Another value, and none, have their own; a refusal keeps nothing back.
    world.control.run(&caller, team("red")).await.unwrap();
    world.control.run(&caller, spec("x")).await.unwrap();
    assert_eq!(total(&world).await.runs, 3);
    let new = NewSandbox { labels: labels("team", "green"), ..plain() };
    assert_eq!(world.control.create_sandbox(&caller, new).await.unwrap_err().kind(), ErrorKind::Billing);
    assert_eq!(total(&world).await.sandboxes, 0);
    let stranger = world.stranger().await;
    world.control.run(&stranger, team("blue")).await.expect("each tenant has its own");
    // The next server knows what was spent.
    let world = world.restarted().await;
    let refused = world.control.run(&world.caller(), team("blue")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Billing);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_do_not_overspend() {
    // Room for ten estimates, and five dozen who want one.
    let world = slow(costs(vec![budget(Usd::dollars(10 * RUN), AtLimit::Stop)])).await;
    let caller = world.caller();
    let limits = LimitsPatch { wall: Some(Duration::from_millis(300)), ..LimitsPatch::default() };
    // Their limit of time is shorter than what is usual, so that is what is kept back: 0.3 s each.
    let tries = (0..300).map(|_| world.control.run(&caller, RunSpec { limits, ..spec("x") }));
    let results = futures_util::future::join_all(tries).await;
    let refused = results
        .iter()
        .filter(|result| result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Billing));
    let (refused, begun) = (refused.count(), results.iter().filter(|result| result.is_ok()).count());
    assert_eq!(refused + begun, 300);
    // 50 dollars are 166 times 0.3 seconds; those that end give their rest back, or take a little more.
    assert!(begun >= 100 && refused > 0, "{begun} begun, {refused} refused");
    let spent = total(&world).await;
    let late = Usd::dollars(1).for_each(u128::try_from(begun).unwrap(), 2);
    assert!(spent.charge <= Usd::dollars(10 * RUN) + late, "{} spent by {begun}", spent.charge);
}

#[tokio::test]
async fn a_long_run_is_stopped_by_its_own_limit_and_its_result_says_so() {
    let world = slow(costs(Vec::new())).await;
    let capped = RunSpec { max_cost: Some(Usd::dollars(RUN)), ..spec("x") };
    let (refused, caller) = (RunSpec { max_cost: Some(Usd::dollars(1)), ..spec("x") }, world.caller());
    let refused = world.control.run(&caller, refused).await.unwrap_err();
    assert!(refused.message().starts_with("`max_cost` is too little: about 5 USD"), "{refused}");
    let result = world.control.run(&caller, capped).await.unwrap();
    assert_eq!(result.status, Status::Killed);
    assert_eq!(result.stopped_by.as_deref(), Some("the `max_cost` of 5 USD"));
    assert!((4.0..8.0).contains(&result.route.cost_usd), "{}", result.route.cost_usd);
    let view = world.control.run_view(&caller, result.id.parse().unwrap()).await.unwrap();
    assert_eq!(view.result.unwrap().stopped_by, result.stopped_by);
}

#[tokio::test]
async fn a_sandbox_is_stopped_or_paused_when_the_money_is_gone() {
    for at_limit in [AtLimit::Stop, AtLimit::Pause] {
        let world = world(costs(vec![budget(Usd::dollars(SANDBOX), at_limit)])).await;
        let caller = world.caller();
        let id = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
        let wanted = if at_limit == AtLimit::Stop { Phase::Failed } else { Phase::Paused };
        eventually("its money is gone", || async {
            world.control.sandbox(&caller, id).await.unwrap().phase == wanted
        })
        .await;
        let view = world.control.sandbox(&caller, id).await.unwrap();
        let sum = total(&world).await;
        if at_limit == AtLimit::Stop {
            let words = "stopped: the budget `daily` of 10 USD a day is used up";
            assert_eq!(view.reason.as_deref(), Some(words));
            assert!(sum.cost() >= Usd::dollars(9) && sum.cost() < Usd::dollars(14), "{sum:?}");
            continue;
        }
        assert_eq!((sum.open, sum.cost()), (1, Usd::ZERO));
        let refused = world.control.resume_sandbox(&caller, id).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Billing);
        assert_eq!(world.control.sandbox(&caller, id).await.unwrap().phase, Phase::Paused);
        // What it cost is known when it ends; the time that it was paused costs nothing.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = sum.wall_ms;
        world.control.delete_sandbox(&caller, id).await.unwrap();
        let sum = total(&world).await;
        assert!(before == 0 && sum.open == 0 && sum.cost() < Usd::dollars(14), "{sum:?}");
        let trail = world.control.audit(&caller, None, 0, 100).await.unwrap();
        let act = trail.iter().find(|row| row.audit.principal == "<budget>").expect("it is on record");
        assert_eq!(act.audit.action, "sandbox.pause");
    }
}

#[tokio::test]
async fn failed_attempts_that_cost_something_are_entries_of_their_own() {
    let mut prices = costs(Vec::new());
    prices.fees = FeeRules::USUAL;
    let world = slow(prices).await;
    let caller = world.caller();
    let id = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    world.control.delete_sandbox(&caller, id).await.unwrap();
    let group_by = vec![GroupBy::Provider, GroupBy::Region];
    let query = CostQuery { group_by, ..CostQuery::default() };
    let report = world.control.costs(&caller, query).await.unwrap();
    let of =
        |place: &str| report.groups.iter().find(|group| group.values.join(" ") == place).unwrap().sum.clone();
    // Two seconds at each of the two that failed; 5 % on what is passed through and not on one's own.
    assert_eq!(
        (of("memory ").attempts, of("memory ").charge, of("memory ").margin),
        (1, Usd::dollars(2), Usd::ZERO)
    );
    let rented = of("rented ");
    assert_eq!(
        (rented.attempts, rented.charge, rented.margin.to_string()),
        (1, Usd::dollars(2), "0.1".into())
    );
    assert_eq!((of("rented eu").sandboxes, report.total.attempts), (1, 2));
}

#[tokio::test]
async fn a_fuse_that_cannot_be_read_lets_nothing_pass() {
    let world = world(costs(vec![budget(Usd::dollars(1000), AtLimit::Stop)])).await;
    meddle(&world.store, "ALTER TABLE ledger RENAME TO away").await.unwrap();
    let refused = world.control.run(&world.caller(), spec("x")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Capacity);
    assert_eq!(refused.message(), "the budget `daily` cannot be read, so nothing is begun");
    let refused = world.control.create_sandbox(&world.caller(), plain()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Capacity);
    meddle(&world.store, "ALTER TABLE away RENAME TO ledger").await.unwrap();
    world.control.run(&world.caller(), spec("x")).await.unwrap();
}

#[tokio::test]
async fn a_crashed_server_leaves_nothing_without_a_bill() {
    let world = world(costs(vec![budget(Usd::dollars(1000), AtLimit::Stop)])).await;
    let caller = world.caller();
    let kept = NewSandbox { max_cost: Some(Usd::dollars(500)), labels: labels("a", "b"), ..plain() };
    let id = world.control.create_sandbox(&caller, kept).await.unwrap().id;
    assert_eq!(total(&world).await.open, 1);
    let world = world.crashed().await;
    let caller = world.caller();
    let sum = total(&world).await;
    assert_eq!((sum.sandboxes, sum.open), (1, 1), "it lives on");
    world.control.delete_sandbox(&caller, id).await.unwrap();
    let sum = total(&world).await;
    assert!(sum.open == 0 && sum.wall_ms > 0 && sum.cost().is_positive(), "{sum:?}");
}

#[tokio::test]
async fn among_several_places_the_bill_is_of_where_it_was() {
    let json = r#"{"dear": {"like": "local", "price": {"model": "owned", "vcpu_hour": 3600}},
        "cheap": {"like": "local", "price": {"model": "owned", "vcpu_hour": 360}}}"#;
    let catalog = Catalog::embedded().with(&serde_json::from_str(json).unwrap()).unwrap();
    let member = |name: &str| {
        let provider: Arc<dyn Provider> = Arc::new(MemoryProvider::named(name));
        Member::new(provider, Arc::new(catalog.get(name).unwrap().clone()))
    };
    let members = vec![member("dear"), member("cheap")];
    let fleet = Fleet::new(members, FleetSettings::default(), 7, Tasks::default());
    let costs = Costs { budgets: vec![budget(Usd::dollars(1000), AtLimit::Stop)], ..Costs::default() };
    let world = World::among(fleet, Settings { costs, ..settings() }).await;
    let caller = world.caller();
    // Too little for the one place, enough for the other.
    let capped = RunSpec { max_cost: Some(Usd::dollars(1)), ..spec("x") };
    let result = world.control.run(&caller, capped).await.unwrap();
    assert_eq!((result.route.provider.as_str(), result.stopped_by), ("cheap", None));
    assert!(result.route.cost_usd > 0.0);
    let too_little = RunSpec { max_cost: Some("0.1".parse().unwrap()), ..spec("x") };
    assert_eq!(world.control.run(&caller, too_little).await.unwrap_err().kind(), ErrorKind::Billing);
    let id = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    let held_by = world.control.sandbox(&caller, id).await.unwrap().provider;
    world.control.delete_sandbox(&caller, id).await.unwrap();
    let query = CostQuery { group_by: vec![GroupBy::Provider], ..CostQuery::default() };
    let report = world.control.costs(&caller, query).await.unwrap();
    assert_eq!((report.total.unpriced, report.total.open), (0, 0));
    let of = |name: &str| {
        report.groups.iter().find(|group| group.values[0] == name).map(|group| group.sum.clone())
    };
    assert_eq!((of("cheap").unwrap().runs, of(&held_by).unwrap().sandboxes), (1, 1));
}

#[tokio::test]
async fn keeping_a_snapshot_costs_what_the_operator_says() {
    let mut prices = costs(Vec::new());
    let free = world(prices.clone()).await;
    // Much for an hour of a gibibyte, since what is kept here is small and soon gone.
    prices.fees.snapshot_gib_hour = Usd::dollars(1_000_000_000);
    let charged = world(prices).await;
    for (world, costs_something) in [(free, false), (charged, true)] {
        let caller = world.caller();
        let new = NewSandbox { labels: labels("team", "blue"), ..plain() };
        let id = world.control.create_sandbox(&caller, new).await.unwrap().id;
        let cx = OpContext::new(caller.tenant());
        world
            .provider
            .write_bytes(&cx, &id, &"kept".parse().unwrap(), "x".repeat(1000).into())
            .await
            .unwrap();
        let made = world.control.create_snapshot(&caller, id, NewSnapshot::default()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(30)).await;
        world.control.delete_snapshot(&caller, made.id).await.unwrap();
        let query = CostQuery { group_by: vec![GroupBy::Label("team".into())], ..CostQuery::default() };
        let sum = world.control.costs(&caller, query).await.unwrap();
        assert_eq!(sum.total.snapshots > Usd::ZERO, costs_something, "{sum:?}");
        assert_eq!(sum.groups.len(), 1, "it has the labels of the sandbox: {sum:?}");
    }
}
