//! Ten weeks of fourteen providers, ten seeds, every mode.

use sandstorm_router::backtest::{Mode, Options, Report, Trace, run};

fn trace() -> Trace {
    include_str!("../../../../fixtures/route/tti_daily.csv").parse().unwrap()
}

fn table(report: &Report) -> String {
    let mut text = format!(
        "{} ({} days, best {}, cheapest {}, without {})\n{:<22} {:>18} {:>7} {:>18} {:>5} {:>5} {:>6} {:>15} {:>8}\n",
        report.mode,
        report.days,
        report.best,
        report.cheapest,
        report.unpriced.join(" "),
        "arm",
        "p50 ms",
        "p95",
        "p99 ms",
        "fail",
        "extra",
        "probes",
        "USD/1000",
        "regret"
    );
    for row in &report.rows {
        text += &format!(
            "{:<22} {:>6.0} {:>5.0}-{:<5.0} {:>7.0} {:>6.0} {:>5.0}-{:<5.0} {:>5.0} {:>5.0} {:>6.0} {:.4} {:.4}-{:.4} {:>8.0}\n",
            row.name,
            row.p50_ms.median,
            row.p50_ms.low,
            row.p50_ms.high,
            row.p95_ms.median,
            row.p99_ms.median,
            row.p99_ms.low,
            row.p99_ms.high,
            row.failures.median,
            row.extra_attempts.median,
            row.probes.median,
            row.usd_per_1000.median,
            row.usd_per_1000.low,
            row.usd_per_1000.high,
            row.regret_ms.median,
        );
    }
    for verdict in &report.verdicts {
        let mark = if verdict.holds { "holds" } else { "FAILS" };
        text += &format!(
            "{mark} {}: {:.4} of {:.4}, {} seeds\n",
            verdict.promise, verdict.found, verdict.allowed, verdict.seeds
        );
    }
    text
}

fn promises_hold(options: &Options) {
    let report = run(&trace(), options).unwrap();
    println!("{}", table(&report));
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
