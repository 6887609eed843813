//! Members that make every sandbox and fail what runs there.

use futures_util::StreamExt;
use sandstorm_fleet::{Fleet, FleetSettings};
use sandstorm_provider::{CreateOptions, ExecRequest, OpContext, Provider, Sandbox};
use sandstorm_router::{Constraints, Health, RouteRequest};
use sandstorm_types::{Enforcement, ErrorKind, SandboxSpec, TenantId};

use crate::moody::{Mood, fleet, fleet_with};

fn cx() -> OpContext {
    OpContext::new(TenantId::LOCAL)
}

async fn placed(fleet: &Fleet) -> Sandbox {
    let spec = SandboxSpec { enforcement: Enforcement::BestEffort, ..SandboxSpec::default() };
    let order = vec!["a".to_owned(), "b".to_owned()];
    let request = RouteRequest {
        constraints: Constraints { order, ..Constraints::default() },
        ..RouteRequest::default()
    };
    fleet.place(&cx(), &spec, &CreateOptions::default(), &request).await.unwrap()
}

/// Runs a program wherever it goes, and says where that was.
async fn run(fleet: &Fleet, line: &str) -> String {
    let made = placed(fleet).await;
    if let Ok(mut exec) = fleet.exec(&cx(), &made.id, ExecRequest::shell(line)).await {
        while exec.events.next().await.is_some() {}
    }
    fleet.destroy(&cx(), &made.id).await.unwrap();
    made.placement.unwrap().info.name
}

#[tokio::test]
async fn a_member_that_fails_what_runs_there_is_left_alone() {
    let moods = [
        Mood::RunsNothing(ErrorKind::Provider),
        Mood::RunsNothing(ErrorKind::Timeout),
        Mood::Loses,
        Mood::GoesSilent,
    ];
    for mood in moods {
        let (fleet, _) = fleet(&[("a", mood), ("b", Mood::Fine)]);
        let mut places = Vec::new();
        for _ in 0..8 {
            places.push(run(&fleet, "true").await);
        }
        let at_a = places.iter().filter(|place| *place == "a").count();
        assert!((1..=3).contains(&at_a), "{mood:?}: {places:?}");
        assert_eq!(places.last().unwrap(), "b", "{mood:?}");
        let standing = fleet.survey(&cx()).await;
        assert!(!standing[0].health.may_be_asked(), "{mood:?}: {}", standing[0].health);
        assert!(standing[1].health.may_be_asked(), "{mood:?}: {}", standing[1].health);
    }
}

/// Users do not go there before somebody has shown that it is well again, and making a sandbox does not show it.
#[tokio::test(start_paused = true)]
async fn a_member_that_lost_what_ran_there_comes_back_by_probes() {
    let probe = SandboxSpec { enforcement: Enforcement::BestEffort, ..SandboxSpec::default() };
    let settings = FleetSettings { probe, ..FleetSettings::default() };
    let (fleet, _) = fleet_with(settings, &[("a", Mood::LosesAtFirst(3)), ("b", Mood::Fine)]);
    for _ in 0..5 {
        run(&fleet, "true").await;
    }
    assert!(!fleet.survey(&cx()).await[0].health.may_be_asked());
    fleet.start_probing();
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    assert_eq!(fleet.survey(&cx()).await[0].health, Health::Up);
}

#[tokio::test]
async fn a_program_that_fails_is_not_its_members_failure() {
    let (fleet, _) = fleet(&[("a", Mood::Fine), ("b", Mood::Fine)]);
    for line in ["exit 1", "kill -9 $$", "no-such-program", "exit 3", "false", "exit 7"] {
        assert_eq!(run(&fleet, line).await, "a", "{line}");
    }
    assert!(fleet.survey(&cx()).await[0].health.may_be_asked());
}

/// What a sandbox says of itself, such as that it is full of its own processes, must not shut its member out for others.
#[tokio::test]
async fn what_a_sandbox_refuses_is_not_its_members_failure() {
    for kind in [ErrorKind::Capacity, ErrorKind::Quota, ErrorKind::Forbidden, ErrorKind::Billing] {
        let (fleet, _) = fleet(&[("a", Mood::RunsNothing(kind)), ("b", Mood::Fine)]);
        for _ in 0..5 {
            assert_eq!(run(&fleet, "true").await, "a", "{kind:?}");
        }
    }
}

/// One sandbox can be lost once, however often something is asked of it.
#[tokio::test]
async fn one_sandbox_alone_shuts_nobody_out() {
    let (fleet, _) = fleet(&[("a", Mood::RunsNothing(ErrorKind::Provider)), ("b", Mood::Fine)]);
    let made = placed(&fleet).await;
    for _ in 0..6 {
        fleet.exec(&cx(), &made.id, ExecRequest::shell("true")).await.unwrap_err();
    }
    assert!(fleet.survey(&cx()).await[0].health.may_be_asked());
}

#[tokio::test]
async fn whoever_ends_a_sandbox_blames_nobody_for_what_ran_there() {
    let (fleet, _) = fleet(&[("a", Mood::Loses), ("b", Mood::Fine)]);
    for _ in 0..5 {
        let made = placed(&fleet).await;
        assert_eq!(made.placement.as_ref().unwrap().info.name, "a");
        let mut exec = fleet.exec(&cx(), &made.id, ExecRequest::shell("sleep 60")).await.unwrap();
        fleet.destroy(&cx(), &made.id).await.unwrap();
        while exec.events.next().await.is_some() {}
    }
}
