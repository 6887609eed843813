//! The reference backend passes the suite, and the suite finds backends that do not keep their word.

mod broken;
mod capability_check;

use std::sync::Arc;

use sandstorm_provider::conformance::{self, Outcome};
use sandstorm_provider::layers::CapabilityCheck;
use sandstorm_provider::memory::MemoryProvider;

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
