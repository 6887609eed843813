//! Telemetry of a whole process. One test, because a process has only one.

use std::time::{Duration, Instant};

use sandstorm_telemetry::{Telemetry, TelemetryConfig, TelemetryError};

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("proc is mounted").count()
}

#[test]
fn starting_is_cheap_and_happens_once() {
    let (before, start) = (threads(), Instant::now());
    let telemetry = Telemetry::start(TelemetryConfig::default()).unwrap();
    let took = start.elapsed();
    assert_eq!(threads(), before + 1);
    // It takes about a millisecond; the rest is patience with a busy machine. Whoever asks somebody else takes longer.
    assert!(took < Duration::from_secs(5), "{took:?}");
    println!("started in {took:?}");

    metrics::counter!("sandstorm_tries_total").increment(1);
    assert!(telemetry.render().contains("sandstorm_tries_total 1"), "{}", telemetry.render());
    let again = Telemetry::start(TelemetryConfig::default());
    assert!(matches!(again, Err(TelemetryError::AlreadyStarted)), "{again:?}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    assert!(runtime.block_on(telemetry.shutdown()));
    while threads() > before {
        assert!(start.elapsed() < Duration::from_secs(60), "the thread stays");
        std::thread::yield_now();
    }
}
