//! Bills against figures worked out by hand.

use std::time::Duration;

use super::*;
use crate::{Billing, Catalog, Overrides};

fn usd(text: &str) -> Usd {
    text.parse().unwrap()
}

fn demand(milli: u32, mib: u64) -> Demand {
    Demand { cpus: MilliCpus::new(milli), memory: ByteSize::mib(mib), disk: ByteSize::default(), gpu: None }
}

fn charge(provider: &str, demand: &Demand, wall_ms: u64, cpu_ms: u64) -> Charge {
    let usage = Usage::of(demand, Duration::from_millis(wall_ms), Duration::from_millis(cpu_ms));
    Catalog::embedded().get(provider).unwrap().charge(&usage).unwrap()
}

fn total(provider: &str, demand: &Demand, wall_ms: u64, cpu_ms: u64) -> Usd {
    charge(provider, demand, wall_ms, cpu_ms).total()
}

#[test]
fn allocated_is_billed_used_or_not() {
    // (2 * 0.000014 + 0.5 * 0.0000045) * 60.5 s
    assert_eq!(total("e2b", &demand(2000, 512), 60_500, 0), usd("0.001830125"));
    assert_eq!(total("e2b", &demand(2000, 512), 60_500, 60_000), usd("0.001830125"));
    // (0.5 * 0.0000276944 + 0.25 * 0.0000036667) * 4 s
    assert_eq!(total("aws-lambda-microvms", &demand(500, 256), 4000, 0), usd("0.0000590555"));
}

#[test]
fn active_processor_time_in_the_smallest_size_that_holds_it() {
    // 1 CPU is only in the size with 6 GiB: 2 s * 0.00002 + 10 s * 6 * 0.0000025
    assert_eq!(total("cloudflare", &demand(1000, 512), 10_000, 2000), usd("0.00019"));
    // In steps of 10 ms: 5 ms of processor and 101 ms of time are 10 and 110.
    assert_eq!(total("cloudflare", &demand(250, 512), 101, 5), usd("0.000000475"));
}

#[test]
fn the_larger_of_request_and_actual() {
    // 10 s * 0.00001971 + 10 s * 0.00000672
    assert_eq!(total("modal", &demand(1000, 1024), 10_000, 1000), usd("0.0002643"));
    // 15 s of processor time are more than the 10 s that were asked for.
    assert_eq!(total("modal", &demand(1000, 1024), 10_000, 15_000), usd("0.00036285"));
    let mut usage = Usage::of(&demand(1000, 1024), Duration::from_secs(10), Duration::ZERO);
    usage.peak_memory = Some(ByteSize::gib(3));
    // 10 s * 0.00001971 + 10 s * 3 * 0.00000672
    let entry = Catalog::embedded().get("modal").unwrap();
    assert_eq!(entry.charge(&usage).unwrap().total(), usd("0.0003987"));
    // An eighth of a core is the least: 10 s * 0.25 * 0.00001971 + 10 s * 0.125 * 0.00000672
    assert_eq!(total("modal", &demand(100, 128), 10_000, 0), usd("0.000057675"));
}

#[test]
fn processors_that_come_with_memory() {
    // 4 GiB at half a CPU each, since 2 CPUs are wanted: 10 s * 4 * 0.0000115
    assert_eq!(total("blaxel", &demand(2000, 512), 10_000, 0), usd("0.00046"));
    assert_eq!(total("blaxel", &demand(250, 4096), 10_000, 0), usd("0.00046"));
}

#[test]
fn shapes_and_units() {
    // The whole shape, whatever is wanted: 0.395 / 3600 * 36 s
    assert_eq!(total("sprites", &demand(500, 256), 36_000, 0), usd("0.00395"));
    // nano, because pico has too little memory: 0.1486 / 3600 * 18 s
    assert_eq!(total("codesandbox", &demand(1000, 2048), 18_000, 0), usd("0.000743"));
    // Two units by memory, and a minute is the least step: 2 * 2 minutes * 0.001
    assert_eq!(total("namespace", &demand(1000, 4096), 61_000, 0), usd("0.004"));
    let usage = Usage::of(&demand(16_000, 512), Duration::from_secs(1), Duration::ZERO);
    let error = Catalog::embedded().get("tenki").unwrap().charge(&usage).unwrap_err();
    assert_eq!(error.to_string(), "tenki makes no sandbox of 16 CPUs and 512MiB");
}

#[test]
fn owned_hardware_at_the_operators_rate() {
    assert_eq!(total("local", &demand(8000, 8192), 3_600_000, 3_600_000), Usd::ZERO);
    let json = r#"{"local": {"price": {"model": "owned", "vcpu_hour": "0.01", "gib_hour": "0.002"}}}"#;
    let catalog = Catalog::embedded().with(&serde_json::from_str(json).unwrap()).unwrap();
    let usage = Usage::of(&demand(2000, 512), Duration::from_secs(1800), Duration::ZERO);
    // 2 * 0.01 * 0.5 h + 0.5 * 0.002 * 0.5 h
    assert_eq!(catalog.get("local").unwrap().charge(&usage).unwrap().total(), usd("0.0105"));
}

#[test]
fn disk_accelerators_creation_and_egress() {
    let mut wanted = demand(1000, 1024);
    wanted.disk = ByteSize::gib(10);
    // 5 GiB are free: 100 s * 5 * 0.00000003
    assert_eq!(charge("daytona", &wanted, 100_000, 0).disk, usd("0.000015"));
    wanted.disk = ByteSize::gib(3);
    wanted.gpu = Some("H100".into());
    // 10 s * (0.000014 + 0.0000045 + 0.001097222222)
    let with_gpu = charge("daytona", &wanted, 10_000, 0);
    assert_eq!((with_gpu.disk, with_gpu.compute), (Usd::ZERO, usd("0.01115722222")));
    let usage = Usage::of(&wanted, Duration::from_secs(1), Duration::ZERO);
    let error = Catalog::embedded().get("e2b").unwrap().charge(&usage).unwrap_err();
    assert_eq!(error, ChargeError::NoSuchGpu("e2b".into(), "H100".into()));
    let mut usage = Usage::of(&demand(1000, 1024), Duration::from_secs(1), Duration::from_secs(1));
    usage.egress = ByteSize::mib(512);
    let charge = Catalog::embedded().get("vercel").unwrap().charge(&usage).unwrap();
    let expected = (usd("0.000038504"), usd("0.0000006"), usd("0.0805306368"));
    assert_eq!((charge.compute, charge.creation, charge.egress), expected);
}

#[test]
fn minimum_time_and_minimum_charge() {
    let billing = Billing {
        minimum_time: Some(Duration::from_secs(60)),
        minimum_charge: Some(usd("0.002")),
        ..Billing::default()
    };
    let mut overrides = Overrides::default();
    overrides.providers.entry("e2b".into()).or_default().billing = Some(billing);
    let catalog = Catalog::embedded().with(&overrides).unwrap();
    let cost = |seconds: u64| {
        let usage = Usage::of(&demand(1000, 1024), Duration::from_secs(seconds), Duration::ZERO);
        catalog.get("e2b").unwrap().charge(&usage).unwrap().total()
    };
    // 60 s would be 0.00111, which is below the least charge; 200 s are 0.0037.
    assert_eq!((cost(1), cost(200)), (usd("0.002"), usd("0.0037")));
}
