//! The adapter keeps the contract of every provider.

use std::sync::Arc;

use sandstorm_provider::conformance::{self, Outcome};
use sandstorm_provider::layers::CapabilityCheck;
use sandstorm_provider::{CreateOptions, HostMount, Provider};
use sandstorm_types::{ErrorKind, Retry};

use crate::world::{World, cx, spec};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes() {
    let world = World::new().await;
    let report = conformance::run(&world.adapter().await).await;
    assert!(report.passed(), "{report}");
    // What cannot be carried, and what the provider in memory cannot do; a new skip would be a hole.
    let skipped: Vec<_> = report
        .cases
        .iter()
        .filter(|case| matches!(case.outcome, Outcome::Skipped(_)))
        .map(|case| format!("{}/{}", case.suite, case.name))
        .collect();
    assert_eq!(
        skipped,
        [
            "exec_channel/it_carries_bytes_apart_from_output",
            "exec_channel/it_keeps_its_order_with_output",
            "exec_channel/later_listeners_hear_the_same_events",
            "exec_channel/what_is_forgotten_is_gone",
            "exec_channel/there_is_none_unless_asked_for",
            "files/metadata_goes_with_its_file",
            "files/root_works_in_its_home_and_in_the_users",
            "limits/cpu_time_ends_a_program",
            "limits/memory_ends_a_program",
            "limits/processes_are_counted",
            "network/a_closed_port_is_refused",
            "network/an_open_port_is_reached",
            "live_fork/what_cannot_be_carried_is_refused_or_named",
        ]
    );
    assert_eq!(world.alive().await, 0, "sandboxes are left on the server");
}

#[tokio::test]
async fn what_cannot_be_carried_is_refused_and_nothing_is_made() {
    let world = World::new().await;
    let adapter = Arc::new(world.adapter().await);
    let can = adapter.capabilities();
    assert!(!can.exec_channel && !can.writable_root && !can.snapshot_memory);
    assert!(can.snapshot_files && can.template_snapshot);
    assert!(can.exec_background && can.files_watch && can.pause && can.usage);
    let mount = HostMount { source: "/opt".into(), target: "/opt".into() };
    let mounted = CreateOptions { mounts: vec![mount], ..CreateOptions::default() };
    let error = adapter.create(&cx(), &spec(), mounted).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::InvalidRequest, Retry::Elsewhere));
    assert!(error.is_not_started() && error.reasons()[0].feature == "mounts", "{error}");
    let mut large = spec();
    large.limits.processes = 1_000_000;
    large.writable_root = true;
    let unmet = adapter.admits(&large).unwrap_err();
    let features: Vec<_> = unmet.iter().map(|unmet| unmet.feature.as_str()).collect();
    assert_eq!(features, ["writable_root", "processes"]);
    let checked = CapabilityCheck::new(adapter);
    assert!(checked.create(&cx(), &large, CreateOptions::default()).await.unwrap_err().is_not_started());
    assert_eq!(world.alive().await, 0);
}
