//! Members that make every sandbox and fail what runs there.

use futures_util::StreamExt;
use sandstorm_fleet::Fleet;
use sandstorm_provider::{CreateOptions, ExecRequest, OpContext, Provider, Sandbox};
use sandstorm_router::{Constraints, RouteRequest};
use sandstorm_types::{Enforcement, ErrorKind, SandboxSpec, TenantId};

use crate::moody::{Mood, fleet};

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
        Mood::RunsNothing(ErrorKind::Quota),
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

#[tokio::test]
async fn a_program_that_fails_is_not_its_members_failure() {
    let (fleet, _) = fleet(&[("a", Mood::Fine), ("b", Mood::Fine)]);
    for line in ["exit 1", "kill -9 $$", "no-such-program", "exit 3", "false", "exit 7"] {
        assert_eq!(run(&fleet, line).await, "a", "{line}");
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
