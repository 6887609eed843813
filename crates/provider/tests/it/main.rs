//! The reference backend passes the suite, and the suite finds backends that do not keep their word.

mod broken;
mod capability_check;

use std::sync::Arc;

use sandstorm_provider::conformance::{self, Outcome};
use sandstorm_provider::layers::CapabilityCheck;
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_provider::{CreateOptions, OpContext, Provider, Sandbox};
use sandstorm_types::{Enforcement, SandboxSpec, TenantId, Walls};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_passes() {
    let report = conformance::run(&MemoryProvider::default()).await;
    assert!(report.passed(), "{report}");
    // What memory cannot do is known; a new skip would be a hole in the suite.
    let skipped: Vec<_> = report
        .cases
        .iter()
        .filter(|case| matches!(case.outcome, Outcome::Skipped(_)))
        .map(|case| format!("{}/{}", case.suite, case.name))
        .collect();
    assert_eq!(
        skipped,
        [
            "limits/cpu_time_ends_a_program",
            "limits/memory_ends_a_program",
            "limits/processes_are_counted",
            "network/a_closed_port_is_refused",
            "network/an_open_port_is_reached",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_check_layer_changes_nothing_that_is_offered() {
    let report = conformance::run(&CapabilityCheck::new(Arc::new(MemoryProvider::default()))).await;
    assert!(report.passed(), "{report}");
}

#[tokio::test]
async fn walls_that_nobody_measured_are_said_to_be_so() {
    let provider = MemoryProvider::default();
    let cx = OpContext::new(TenantId::LOCAL);
    let spec = SandboxSpec { enforcement: Enforcement::BestEffort, ..SandboxSpec::default() };
    let made = provider.create(&cx, &spec, CreateOptions::default()).await.unwrap();
    let walls = made.stated_walls();
    assert_eq!((walls.tier, walls.missing[0].name.as_str()), (made.isolation, "walls"));
    let measured = Sandbox { walls: Some(Walls { nnp: true, ..Walls::default() }), ..made };
    assert!(measured.stated_walls().nnp && measured.stated_walls().missing.is_empty());
}
