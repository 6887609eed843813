//! A fleet is a provider like any other.

use sandstorm_provider::conformance;

use crate::moody::{Mood, fleet};

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_keeps_the_contract_of_a_provider() {
    let (fleet, _) = fleet(&[("a", Mood::Fine), ("b", Mood::Fine), ("c", Mood::Fine)]);
    let report = conformance::run(&*fleet).await;
    assert!(report.passed(), "{report}");
}
