//! Ten weeks of fourteen providers, ten seeds, every mode.

use sandstorm_router::backtest::{Mode, Options, Trace, run};

fn trace() -> Trace {
    include_str!("../../../../fixtures/route/tti_daily.csv").parse().expect("the trace is in order")
}

#[expect(clippy::print_stdout, reason = "the figures are what one looks for when a promise does not hold")]
fn promises_hold(options: &Options) {
    let report = run(&trace(), options).expect("the trace has this mode");
    println!("{}", report.markdown());
    let broken: Vec<_> = report.verdicts.iter().filter(|verdict| !verdict.holds).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(report.rows.iter().filter(|row| row.routed).all(|row| row.failures.high == 0.0));
}

#[test]
fn promises_hold_one_after_the_other() {
    promises_hold(&Options::new(Mode::Sequential));
}

#[test]
fn promises_hold_staggered() {
    promises_hold(&Options::new(Mode::Staggered));
}

#[test]
fn promises_hold_in_bursts() {
    promises_hold(&Options::new(Mode::Burst));
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let options = Options { seeds: vec![3], requests_per_day: 10, ..Options::new(Mode::Staggered) };
    let report = run(&trace(), &options).unwrap();
    assert_eq!(report, run(&trace(), &options).unwrap());
    let other = run(&trace(), &Options { seeds: vec![4], ..options }).unwrap();
    assert_ne!(report.rows, other.rows);
}
