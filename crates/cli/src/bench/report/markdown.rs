//! The page that people read.

use std::fmt::Write;

use super::Report;
use crate::bench::figures::{Figures, Row};
use crate::bench::load::{Burst, Load};

pub(super) fn page(report: &Report) -> String {
    let mut page = format!("# Speed, {}\n\n", report.date);
    promises(&mut page, report);
    latencies(&mut page, &report.figures);
    throughput(&mut page, &report.figures);
    bursts(&mut page, &report.figures);
    memory(&mut page, &report.figures);
    counters(&mut page, &report.figures);
    let _ = write!(page, "## Host\n\n");
    for (name, value) in &report.facts {
        let _ = writeln!(page, "- {name}: {value}");
    }
    let _ = write!(page, "\n## Method\n\n");
    for sentence in &report.method {
        let _ = writeln!(page, "- {sentence}");
    }
    page
}

fn promises(page: &mut String, report: &Report) {
    page.push_str("## What is promised\n\n| what | promise | here | |\n|---|---|---|---|\n");
    for promise in &report.promises {
        let held = match promise.held {
            Some(true) => "held",
            Some(false) => "**not held**",
            None => "not measured",
        };
        let measured = promise.measured.as_deref().unwrap_or("");
        let _ = writeln!(page, "| {} | {} | {measured} | {held} |", promise.what, promise.promised);
    }
    page.push('\n');
}

fn latencies(page: &mut String, figures: &Figures) {
    if figures.rows.is_empty() {
        return;
    }
    page.push_str("## One at a time\n\n| case | n | p50 ms | p90 | p99 | min | CPU ms | p50 to bwrap's |\n|---|---|---|---|---|---|---|---|\n");
    for row in &figures.rows {
        match row.latency_ms {
            Some(latency) => {
                let cpu = row.cpu_ms.map_or(String::new(), |cpu| format!("{cpu:.2}"));
                let _ = writeln!(
                    page,
                    "| {} | {} | {:.2} | {:.2} | {:.2} | {:.2} | {cpu} | {} |",
                    row.title,
                    latency.n,
                    latency.p50,
                    latency.p90,
                    latency.p99,
                    latency.min,
                    ratio(row, figures)
                );
            }
            None => {
                let _ = writeln!(page, "| {} | {} | | | | | | |", row.title, absence(row));
            }
        }
    }
    let failed: Vec<&Row> =
        figures.rows.iter().filter(|row| row.error.is_some() || row.skipped.is_some()).collect();
    if !failed.is_empty() {
        page.push_str("\nNot measured here:\n\n");
        for row in failed {
            let why = row.error.as_deref().or(row.skipped.as_deref()).unwrap_or_default();
            let _ = writeln!(page, "- {}: {}", row.title, why.replace('\n', " "));
        }
    }
    page.push('\n');
}

/// Beside bubblewrap with the same language.
fn ratio(row: &Row, figures: &Figures) -> String {
    let (_, language) = row.name.rsplit_once('-').unwrap_or(("", "python"));
    let beside = figures.latency(&format!("bwrap-{language}")).or_else(|| figures.latency("bwrap-python"));
    match (row.latency_ms, beside) {
        (Some(latency), Some(beside)) if !row.name.starts_with("bwrap") => {
            format!("{:.3}", latency.p50 / beside.p50)
        }
        _ => String::new(),
    }
}

fn absence(row: &Row) -> &'static str {
    if row.skipped.is_some() { "skipped" } else { "failed" }
}

fn throughput(page: &mut String, figures: &Figures) {
    if figures.throughput.is_empty() {
        return;
    }
    page.push_str("## Fresh Python sandboxes, sustained\n\n| clients | by | in a second | p50 ms | p90 | p99 | CPU ms | to bwrap's rate |\n|---|---|---|---|---|---|---|---|\n");
    let mut line = |clients: usize, by: &str, load: &Load, ratio: String| {
        let latency = load.latency_ms;
        let _ = writeln!(
            page,
            "| {clients} | {by} | {:.1} | {:.2} | {:.2} | {:.2} | {:.2} | {ratio} |",
            load.per_second, latency.p50, latency.p90, latency.p99, load.cpu_ms
        );
    };
    for row in &figures.throughput {
        let ratio = row
            .bwrap
            .as_ref()
            .map_or_else(Clone::clone, |bwrap| format!("{:.2}", row.ours.per_second / bwrap.per_second));
        line(row.clients, "sandstorm", &row.ours, ratio);
        if let Ok(bwrap) = &row.bwrap {
            line(row.clients, "bwrap", bwrap, String::new());
        }
    }
    page.push('\n');
}

fn bursts(page: &mut String, figures: &Figures) {
    let bursts: Vec<(&str, &Burst)> =
        [("sandboxes created", &figures.burst_create), ("fresh Python runs", &figures.burst_run)]
            .into_iter()
            .filter_map(|(what, burst)| Some((what, burst.as_ref()?)))
            .collect();
    if bursts.is_empty() {
        return;
    }
    page.push_str("## All at once\n\n| what | at once | bursts | p50 ms | p90 | p99 | all done ms |\n|---|---|---|---|---|---|---|\n");
    for (what, burst) in bursts {
        let latency = burst.latency_ms;
        let _ = writeln!(
            page,
            "| {what} | {} | {} | {:.1} | {:.1} | {:.1} | {:.1} |",
            burst.at_once, burst.bursts, latency.p50, latency.p90, latency.p99, burst.whole_ms
        );
    }
    page.push('\n');
}

fn counters(page: &mut String, figures: &Figures) {
    if figures.counters.is_empty() {
        return;
    }
    page.push_str("## What the server counted\n\n| counter | value |\n|---|---|\n");
    for (name, value) in &figures.counters {
        let _ = writeln!(page, "| `{name}` | {value} |");
    }
    page.push('\n');
}

fn memory(page: &mut String, figures: &Figures) {
    if !figures.memory.is_empty() {
        page.push_str(
            "## Memory of one that waits\n\n| case | MiB, shared pages counted once |\n|---|---|\n",
        );
        for row in &figures.memory {
            let value =
                row.mib.map(|mib| format!("{mib:.1}")).or_else(|| row.error.clone()).unwrap_or_default();
            let _ = writeln!(page, "| {} | {} |", row.title, value.replace('\n', " "));
        }
        page.push('\n');
    }
    if let Some(density) = &figures.density {
        let _ = write!(
            page,
            "## {} idle Python sandboxes, a living interpreter in each\n\n| what | figure |\n|---|---|\n",
            density.sandboxes
        );
        let rows = [
            ("processes", density.processes.to_string()),
            ("memory of their processes, each", format!("{:.2} MiB", density.pss_mib_each)),
            ("what the machine has less, each", format!("{:.2} MiB", density.available_mib_each)),
            ("of that in the kernel's slab", format!("{:.2} MiB", density.slab_mib_each)),
            ("what the server grew by, all together", format!("{:.1} MiB", density.server_mib_more)),
            ("time to make all", format!("{:.1} s", density.seconds_to_make)),
            ("list of 100, p50", format!("{:.2} ms", density.list_ms)),
            ("cell in one of them, p50", format!("{:.2} ms", density.cell_ms)),
            ("time to end all", format!("{:.1} s", density.seconds_to_end)),
        ];
        rows.iter().for_each(|(what, figure)| {
            let _ = writeln!(page, "| {what} | {figure} |");
        });
        page.push('\n');
    }
    if let Some(server) = &figures.server {
        page.push_str("## An idle server\n\n| what | figure |\n|---|---|\n");
        let ready = server.ready_ms;
        let _ = writeln!(
            page,
            "| start until it answers, p50 of {} | {:.0} ms, at most {:.0} |",
            ready.n, ready.p50, ready.max
        );
        let _ = writeln!(page, "| resident memory | {:.1} MiB |", server.resident_mib);
        let _ = writeln!(
            page,
            "| memory with all that it started, shared pages counted once | {:.1} MiB |\n",
            server.tree_mib
        );
    }
}
