//! The numbers that are promised, and whether they hold here.

use serde::Serialize;

use super::figures::Figures;

/// A promise beside what was measured. All figures are such that less is better, or are turned that way round.
#[derive(Debug, Serialize)]
pub(super) struct Promise {
    pub(super) what: &'static str,
    pub(super) promised: String,
    pub(super) measured: Option<String>,
    /// `None`: it was not measured, for the reason in `measured` or because it was not asked for.
    pub(super) held: Option<bool>,
}

pub(super) fn judge(figures: &Figures) -> Vec<Promise> {
    let p50 = |name: &str| figures.latency(name).map(|latency| latency.p50);
    let fresh = figures.latency("fresh-python");
    let mut promises = Vec::new();
    for (what, peer, share) in [
        ("fresh Python sandbox over HTTP, p50, beside bwrap", "bwrap-python", 20.0),
        ("the same beside runc run", "runc-python", 50.0),
        ("the same beside docker run", "docker-python", 200.0),
    ] {
        let ratio =
            fresh.map(|fresh| fresh.p50).zip(p50(peer)).map(|(ours, theirs)| (ours, theirs, theirs / ours));
        promises.push(Promise {
            what,
            promised: format!("≤ 1/{share}"),
            measured: ratio
                .map(|(ours, theirs, ratio)| format!("1/{ratio:.1} ({ours:.2} to {theirs:.1} ms)")),
            held: ratio.map(|(.., ratio)| ratio >= share),
        });
    }
    let half = fresh.map(|fresh| fresh.p99).zip(p50("bwrap-python"));
    promises.push(Promise {
        what: "fresh Python sandbox, p99, beside the p50 of bwrap",
        promised: "≤ 1/2".to_owned(),
        measured: half.map(|(ours, theirs)| format!("{:.2} ({ours:.2} to {theirs:.1} ms)", ours / theirs)),
        held: half.map(|(ours, theirs)| ours <= theirs / 2.0),
    });
    let at_sixteen = figures.throughput.iter().find(|row| row.clients == 16);
    let rates = at_sixteen.and_then(|row| Some((row.ours.per_second, row.bwrap.as_ref().ok()?.per_second)));
    promises.push(Promise {
        what: "fresh Python sandboxes in a second, 16 clients, beside bwrap",
        promised: "≥ 4 ×".to_owned(),
        measured: rates.map(|(ours, theirs)| format!("{:.2} × ({ours:.0} to {theirs:.0})", ours / theirs)),
        held: rates.map(|(ours, theirs)| ours >= 4.0 * theirs),
    });
    let cell = p50("context").zip(p50("bare-python"));
    promises.push(Promise {
        what: "cell in a living context, p50, beside a bare python3 -c",
        promised: "≤ 1/20".to_owned(),
        measured: cell.map(|(ours, theirs)| format!("1/{:.1} ({ours:.2} to {theirs:.1} ms)", theirs / ours)),
        held: cell.map(|(ours, theirs)| theirs / ours >= 20.0),
    });
    let large_enough = figures.burst_create.as_ref().is_some_and(|burst| burst.at_once >= 100);
    let burst = figures.burst_create.as_ref().map(|burst| burst.latency_ms.p99).zip(p50("create"));
    promises.push(Promise {
        what: "burst of 100 creates at once, p99, beside the p50 of one",
        promised: "≤ 20 ×".to_owned(),
        measured: burst.map(|(all, one)| format!("{:.1} × ({all:.1} to {one:.2} ms)", all / one)),
        // A smaller burst proves nothing of this one.
        held: burst.filter(|_| large_enough).map(|(all, one)| all <= 20.0 * one),
    });
    let density = figures.density.as_ref();
    promises.push(Promise {
        what: "memory of an idle Python sandbox, shared pages counted once, 1,000 alive",
        promised: "≤ 2 MiB".to_owned(),
        measured: density
            .map(|density| format!("{:.2} MiB, {} alive", density.pss_mib_each, density.sandboxes)),
        // Fewer at once would share less and prove nothing.
        held: density.filter(|density| density.sandboxes >= 1000).map(|density| density.pss_mib_each <= 2.0),
    });
    let fork = figures.row("fork");
    let forked = p50("fork");
    let why_not = fork.and_then(|row| row.skipped.clone().or_else(|| row.error.clone()));
    promises.push(Promise {
        what: "live fork of a small Python context, p50",
        promised: "≤ 10 ms".to_owned(),
        measured: forked.map(|ours| format!("{ours:.2} ms")).or(why_not),
        held: forked.map(|ours| ours <= 10.0),
    });
    let server = figures.server.as_ref();
    promises.push(Promise {
        what: "resident memory of an idle server",
        promised: "≤ 60 MiB".to_owned(),
        measured: server.map(|server| format!("{:.1} MiB", server.resident_mib)),
        held: server.map(|server| server.resident_mib <= 60.0),
    });
    promises.push(Promise {
        what: "start of a server until it answers, p50",
        promised: "≤ 300 ms".to_owned(),
        measured: server.map(|server| format!("{:.0} ms", server.ready_ms.p50)),
        held: server.map(|server| server.ready_ms.p50 <= 300.0),
    });
    promises
}

#[cfg(test)]
mod tests {
    use super::super::figures::Row;
    use super::super::samples::Summary;
    use super::*;

    fn row(name: &str, p50: f64) -> Row {
        Row {
            name: name.to_owned(),
            title: name.to_owned(),
            ours: true,
            latency_ms: Some(Summary { n: 10, p50, p90: p50, p99: 2.0 * p50, min: p50, max: p50 }),
            cpu_ms: Some(p50),
            error: None,
            skipped: None,
            samples_ms: vec![p50],
        }
    }

    #[test]
    fn promises_hold_break_or_are_not_measured() {
        let mut figures =
            Figures { rows: vec![row("fresh-python", 1.0), row("bwrap-python", 20.0)], ..Figures::default() };
        figures.rows.push(row("runc-python", 49.0));
        let held: Vec<Option<bool>> = judge(&figures).iter().map(|promise| promise.held).collect();
        assert_eq!(held[..4], [Some(true), Some(false), None, Some(true)]);
        assert!(held[4..].iter().all(Option::is_none), "what was not measured is neither kept nor broken");
        figures.rows[0] = row("fresh-python", 5.1);
        assert_eq!(judge(&figures)[3].held, Some(false), "its p99 is more than half of 20");
    }

    #[test]
    fn a_fork_that_was_skipped_says_why() {
        let mut skipped = row("fork", 1.0);
        (skipped.latency_ms, skipped.skipped) = (None, Some("no such route".to_owned()));
        let promises = judge(&Figures { rows: vec![skipped], ..Figures::default() });
        let fork = promises.iter().find(|promise| promise.what.contains("fork")).unwrap();
        assert_eq!((fork.measured.as_deref(), fork.held), (Some("no such route"), None));
    }
}
