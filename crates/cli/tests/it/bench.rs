//! The bench itself: that it measures what it says, not how fast anything is. A test that fails when a machine is busy is
//! worth nothing.

use std::path::Path;

use serde_json::Value;

use crate::support::{Place, Who, sandstorm, skip, stderr, stdout};

/// The figures of a quick bench of these parts, and whether it came to a good end.
fn quick(parts: &str, more: &[&str]) -> (Value, std::process::Output) {
    let mut command = sandstorm(Who::Root);
    let output = command.args(["bench", "--quick", "--json", "--only", parts]).args(more).output().unwrap();
    let figures = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("no figures ({e}): {}{}", stdout(&output), stderr(&output)));
    (figures, output)
}

fn row<'f>(figures: &'f Value, name: &str) -> &'f Value {
    let rows = figures["figures"]["rows"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name} in {rows:#?}"))
}

fn is_measured(summary: &Value) -> bool {
    let value = |name: &str| summary[name].as_f64().unwrap();
    let [min, p50, p90, p99, max] = ["min", "p50", "p90", "p99", "max"].map(value);
    value("n") > 0.0 && 0.0 < min && min <= p50 && p50 <= p90 && p90 <= p99 && p99 <= max
}

#[test]
fn every_request_and_load_is_measured_and_kept() {
    let place = Place::new();
    let kept = place.path().join("results");
    let parts = "fresh,context,exec,create,first,files,fork,mcp,bare,throughput,burst,density,server,memory";
    let (figures, output) = quick(parts, &["--keep", kept.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    for name in [
        "fresh-python",
        "fresh-node",
        "fresh-bash",
        "context",
        "exec",
        "create",
        "first",
        "files",
        "mcp-pipes",
        "mcp-http",
        "bare-python",
    ] {
        let row = row(&figures, name);
        assert!(is_measured(&row["latency_ms"]), "{row:#}");
        assert_eq!(
            row["samples_ms"].as_array().unwrap().len() as u64,
            row["latency_ms"]["n"].as_u64().unwrap()
        );
        assert!(row["cpu_ms"].as_f64().is_some() && row["error"].is_null(), "{row:#}");
    }
    // Where a sandbox cannot be forked, the reason stands there.
    let fork = row(&figures, "fork");
    assert_ne!(fork["latency_ms"].is_null(), fork["skipped"].is_null(), "{fork:#}");

    let all = &figures["figures"];
    for load in all["throughput"].as_array().unwrap() {
        assert!(is_measured(&load["ours"]["latency_ms"]), "{load:#}");
        assert!(load["ours"]["per_second"].as_f64().unwrap() > 0.0);
        assert!(load["bwrap"]["Err"].as_str().unwrap().contains("not asked for"), "{load:#}");
    }
    assert!(is_measured(&all["burst_create"]["latency_ms"]) && is_measured(&all["burst_run"]["latency_ms"]));
    assert!(all["density"]["pss_mib_each"].as_f64().unwrap() > 0.05, "{:#}", all["density"]);
    assert!(all["density"]["processes"].as_u64().unwrap() >= all["density"]["sandboxes"].as_u64().unwrap());
    assert!(all["server"]["resident_mib"].as_f64().unwrap() > 1.0 && is_measured(&all["server"]["ready_ms"]));
    assert!(
        all["memory"].as_array().unwrap().iter().all(|row| row["mib"].as_f64().unwrap() > 0.1),
        "{all:#}"
    );

    let counters = all["counters"].as_array().unwrap();
    let programs =
        counters.iter().filter(|counter| counter[0].as_str().unwrap().starts_with("sandstorm_guests_total"));
    assert!(programs.map(|counter| counter[1].as_f64().unwrap()).sum::<f64>() > 10.0, "{counters:#?}");

    let promises = figures["promises"].as_array().unwrap();
    let judged = |words: &str| {
        promises.iter().find(|promise| promise["what"].as_str().unwrap().contains(words)).unwrap()
    };
    assert!(judged("resident memory")["held"].is_boolean());
    assert!(judged("living context")["measured"].is_string());
    assert!(judged("docker")["held"].is_null(), "what was not measured is not judged");
    assert!(judged("1,000")["held"].is_null(), "few sandboxes prove nothing of many");

    let date = figures["date"].as_str().unwrap();
    let read = |ending: &str| std::fs::read_to_string(kept.join(format!("{date}-speed.{ending}"))).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&read("json")).unwrap(), figures);
    assert!(
        read("md").contains("## What is promised") && read("md").contains("python: sandstorm, fresh sandbox")
    );
    assert!(read("svg").starts_with("<svg") && read("svg").contains("1 client: sandstorm"));
}

#[test]
fn bubblewrap_shows_the_same_and_nothing_is_left() {
    if !Path::new("/usr/bin/bwrap").exists() {
        return skip("bubblewrap is not installed");
    }
    let place = Place::new();
    let mut command = sandstorm(Who::Root);
    command.env("TMPDIR", place.path()).args(["bench", "--quick", "--json", "--only", "bwrap,throughput"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    for language in ["python", "node", "bash"] {
        assert!(is_measured(&row(&figures, &format!("bwrap-{language}"))["latency_ms"]), "{figures:#}");
    }
    for load in figures["figures"]["throughput"].as_array().unwrap() {
        assert!(is_measured(&load["bwrap"]["Ok"]["latency_ms"]), "{load:#}");
    }
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "its folder is gone");
}

#[test]
fn a_peer_that_cannot_run_stays_in_the_list() {
    let (figures, output) = quick("runsc-bash", &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let row = row(&figures, "runsc-bash");
    // It is there or it is not, and says which.
    assert_ne!(row["latency_ms"].is_null(), row["error"].is_null(), "{row:#}");
}

#[test]
fn the_stages_of_a_run_add_up() {
    let output = sandstorm(Who::Root).args(["bench", "--trace", "--quick", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    let trace: Value = serde_json::from_slice(&output.stdout).unwrap();
    let stages = trace["stages"].as_array().unwrap();
    let sum: f64 = stages.iter().map(|stage| stage["ms"].as_f64().unwrap()).sum();
    let whole = trace["whole_ms"].as_f64().unwrap();
    assert!((sum - whole).abs() < 0.001, "{sum} is not {whole}: {trace:#}");
    assert!(stages.iter().all(|stage| stage["ms"].as_f64().unwrap() >= 0.0));
}

#[test]
fn an_unknown_part_is_refused() {
    let output = sandstorm(Who::Root).args(["bench", "--only", "fresh,nonsense"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("nonsense") && stderr(&output).contains("throughput"),
        "{}",
        stderr(&output)
    );
}
