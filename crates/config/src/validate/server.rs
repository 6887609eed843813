//! What the sections of a server must hold.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use sandstorm_types::{ByteSize, HostName, MilliCpus, Usd, duration};

use super::{ABSOLUTE, Check, is_plain_absolute};
use crate::origin::Origin;
use crate::tree::{Config, E2bDialect, Pool, Retention, Serve, Telemetry};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
/// What a person would name by hand.
const MOST_MODULES: usize = 64;
const TEN_YEARS: Duration = duration::MAX;

impl Check<'_> {
    pub(super) fn server(&mut self, config: &Config) {
        for (n, budget) in config.budgets.iter().enumerate() {
            if let Some((key, given, expected)) = budget.check() {
                self.refuse(format!("budgets[{n}].{key}"), given, expected);
            } else if config.budgets[..n].iter().any(|other| other.name == budget.name) {
                self.refuse(
                    format!("budgets[{n}].name"),
                    budget.name.clone(),
                    "a name that no other budget has",
                );
            }
        }
        let costs = &config.costs;
        self.count("costs.margin_permille", costs.margin_permille, 0..=10_000);
        for (key, amount) in [
            ("costs.vcpu_hour", costs.vcpu_hour),
            ("costs.gib_hour", costs.gib_hour),
            ("costs.snapshot_gib_hour", costs.snapshot_gib_hour),
        ] {
            if amount < Usd::ZERO || amount > Usd::dollars(1_000_000) {
                self.refuse(key, amount.to_string(), "from nothing to a million");
            }
        }
        let Config {
            serve,
            quotas,
            admission,
            sandbox,
            pool,
            run_cache,
            snapshots,
            retention,
            telemetry,
            dialects,
            ..
        } = config;
        self.serve(serve);

        self.count("quotas.sandboxes", quotas.sandboxes, 1..=1_000_000);
        self.within(
            "quotas.cpus",
            quotas.cpus,
            MilliCpus::new(10)..=MilliCpus::new(1_000_000_000),
            MilliCpus::to_string,
        );
        self.size("quotas.memory", quotas.memory, ByteSize::mib(4)..=ByteSize::gib(1024 * 1024));
        for (key, rate) in [
            ("quotas.runs_per_minute", quotas.runs_per_minute),
            ("quotas.requests_per_second", quotas.requests_per_second),
        ] {
            if let Some(rate) = rate {
                self.count(key, rate, 1..=1_000_000);
            }
        }
        self.count("quotas.open_streams", quotas.open_streams, 1..=1_000_000);

        if let Some(memory) = admission.memory {
            self.size("admission.memory", memory, ByteSize::mib(4)..=ByteSize::gib(1024 * 1024));
        }
        self.count("admission.queue", admission.queue, 0..=1_000_000);
        self.span("admission.wait", admission.wait, Duration::ZERO..=HOUR);

        self.span("sandbox.lifetime_max", sandbox.lifetime_max, SECOND..=TEN_YEARS);
        self.span("sandbox.paused_for", sandbox.paused_for, SECOND..=TEN_YEARS);
        if let Some(idle) = sandbox.idle_timeout {
            self.span("sandbox.idle_timeout", idle, SECOND..=TEN_YEARS);
        }
        for error in sandbox.ceiling.limits().validate().err().into_iter().flatten() {
            self.refuse(format!("sandbox.ceiling.{}", error.name), error.given, error.allowed);
        }

        self.pool(pool, config.ids.blocks);
        self.size("run_cache.max_bytes", run_cache.max_bytes, ByteSize::default()..=ByteSize::gib(1024));
        self.span("run_cache.max_age", run_cache.max_age, SECOND..=30 * DAY);
        self.size("snapshots.space", snapshots.space, ByteSize::default()..=ByteSize::gib(1024 * 1024));
        self.count("snapshots.per_tenant", snapshots.per_tenant, 0..=1_000_000);
        self.size(
            "snapshots.space_per_tenant",
            snapshots.space_per_tenant,
            ByteSize::default()..=ByteSize::gib(1024 * 1024),
        );
        for (key, size) in [
            ("disk_space.total", config.disk_space.total),
            ("disk_space.per_tenant", config.disk_space.per_tenant),
            ("disk_space.keep_free", config.disk_space.keep_free),
        ] {
            self.size(key, size, ByteSize::default()..=ByteSize::gib(1024 * 1024));
        }
        self.span("database.lease", config.database.lease, 2 * SECOND..=HOUR);
        self.retention(retention);
        self.telemetry(telemetry);

        let session = &dialects.session;
        self.span("dialects.session.cpu_time", session.cpu_time, SECOND..=7 * DAY);
        self.size("dialects.session.memory", session.memory, ByteSize::mib(4)..=ByteSize::gib(1024));
        self.span("dialects.session.timeout", session.timeout, SECOND..=DAY);
        self.count("dialects.session.processes", session.processes, 1..=65_536);
        self.span("dialects.session.expiration", session.expiration, SECOND..=TEN_YEARS);
        let mcp = &dialects.mcp;
        self.size("dialects.mcp.shown", mcp.shown, ByteSize::kib(1)..=ByteSize::mib(4));
        self.count("dialects.mcp.calls_at_once", mcp.calls_at_once, 1..=1024);
        self.span("dialects.mcp.task_after", mcp.task_after, Duration::ZERO..=DAY);
        self.span("dialects.mcp.idle_timeout", mcp.idle_timeout, SECOND..=7 * DAY);
        self.e2b(&dialects.e2b);
    }

    fn e2b(&mut self, e2b: &E2bDialect) {
        if let Some(domain) = e2b.domain.as_deref().filter(|domain| !is_host(domain)) {
            let expected = "a host name, with or without a port";
            self.refuse("dialects.e2b.domain", format!("`{domain}`"), expected);
        }
        for (name, meaning) in &e2b.templates {
            if meaning != "host" && meaning.strip_prefix("image:").is_none_or(str::is_empty) {
                let key = format!("dialects.e2b.templates.{name}");
                self.refuse(key, format!("`{meaning}`"), "`host`, or `image:` and a reference");
            }
        }
        for (n, package) in e2b.python_packages.iter().enumerate() {
            if package.parse::<sandstorm_types::Requirement>().is_err() {
                let key = format!("dialects.e2b.python_packages[{n}]");
                self.refuse(key, format!("`{package}`"), "a package such as `numpy` or `numpy==2.1`");
            }
        }
    }

    fn serve(&mut self, serve: &Serve) {
        if serve.admin_listen.is_some_and(|admin| admin == serve.listen && admin.port() != 0) {
            self.refuse(
                "serve.admin_listen",
                format!("{} is `serve.listen` too", serve.listen),
                "another address",
            );
        }
        match serve.user.as_deref() {
            Some("root") => self.refuse("serve.user", "`root`".to_owned(), "a user without privileges"),
            Some(user) if !is_user_name(user) => {
                self.refuse("serve.user", format!("`{user}`"), "the name of a user");
            }
            _ => {}
        }
        for (key, path) in [("serve.tls.cert", &serve.tls.cert), ("serve.tls.key", &serve.tls.key)] {
            if let Some(path) = path.as_deref().filter(|path| !is_plain_absolute(path)) {
                self.refuse(key, Path::display(path).to_string(), ABSOLUTE);
            }
        }
        match (&serve.tls.cert, &serve.tls.key) {
            (Some(_), None) => {
                self.refuse("serve.tls.cert", "set without `key`".to_owned(), "both or neither")
            }
            (None, Some(_)) => {
                self.refuse("serve.tls.key", "set without `cert`".to_owned(), "both or neither")
            }
            _ => {}
        }
        for (n, host) in serve.allowed_hosts.iter().enumerate() {
            if !is_host(host) {
                let expected = "a host name or address, with or without a port";
                self.refuse(format!("serve.allowed_hosts[{n}]"), format!("`{host}`"), expected);
            }
        }
        for (n, origin) in serve.allowed_origins.iter().enumerate() {
            if !is_origin(origin) {
                let expected = "an origin such as `https://app.example.org`, without a path";
                self.refuse(format!("serve.allowed_origins[{n}]"), format!("`{origin}`"), expected);
            }
        }
        self.size("serve.body_limit", serve.body_limit, ByteSize::kib(64)..=ByteSize::gib(1));
        self.size("serve.body_memory", serve.body_memory, ByteSize::mib(1)..=ByteSize::gib(1024));
        self.count("serve.max_connections", serve.max_connections, 1..=1_000_000);
        self.count("serve.max_connections_per_address", serve.max_connections_per_address, 1..=1_000_000);
        self.span("serve.header_timeout", serve.header_timeout, SECOND..=HOUR);
        self.span("serve.body_timeout", serve.body_timeout, SECOND..=HOUR);
        self.span("serve.request_timeout", serve.request_timeout, SECOND..=7 * DAY);
        self.span("serve.idle_timeout", serve.idle_timeout, SECOND..=7 * DAY);
        self.span("serve.drain_timeout", serve.drain_timeout, Duration::ZERO..=HOUR);
        self.span("serve.orphan_after", serve.orphan_after, SECOND..=7 * DAY);
    }

    fn pool(&mut self, pool: &Pool, blocks: u32) {
        self.count("pool.max", pool.max, 1..=10_000);
        self.size("pool.memory", pool.memory, ByteSize::mib(16)..=ByteSize::gib(1024));
        self.span("pool.max_age", pool.max_age, SECOND..=DAY);
        // Unset, it follows the ids that there are.
        if pool.enabled && pool.max > blocks / 2 && self.provenance.of("pool.max") != Origin::Default {
            let given = format!("{} of {blocks} blocks of ids", pool.max);
            self.refuse("pool.max", given, "at most half of `ids.blocks`");
        }
        if pool.prefill > pool.max && self.provenance.of("pool.prefill") != Origin::Default {
            self.refuse("pool.prefill", pool.prefill.to_string(), "at most `pool.max`");
        }
        for (n, module) in pool.preload.iter().enumerate() {
            if !is_module(module) {
                let expected = "the name of a Python module, without a dot";
                self.refuse(format!("pool.preload[{n}]"), format!("`{module}`"), expected);
            }
        }
        if pool.preload.len() > MOST_MODULES {
            self.refuse("pool.preload", format!("{} modules", pool.preload.len()), "at most 64");
        }
    }

    fn retention(&mut self, retention: &Retention) {
        let Retention { runs, events, audit, ledger } = retention;
        // A listener that reconnects after a short cut, and a client that looks up its run, must find something.
        self.span("retention.runs", *runs, HOUR..=TEN_YEARS);
        self.span("retention.events", *events, HOUR..=TEN_YEARS);
        self.span("retention.audit", *audit, DAY..=TEN_YEARS);
        // Longer than any month: budgets are read from it.
        self.span("retention.ledger", *ledger, 32 * DAY..=TEN_YEARS);
    }

    fn telemetry(&mut self, telemetry: &Telemetry) {
        if let Some(endpoint) = &telemetry.otlp_endpoint
            && !is_endpoint(endpoint)
        {
            // Not repeated: whoever put credentials there would find them in a log.
            let expected =
                "an address such as `http://127.0.0.1:4317`; credentials go to `telemetry.otlp_headers`";
            self.refuse("telemetry.otlp_endpoint", "not the address of a collector".to_owned(), expected);
        }
        for name in telemetry.otlp_headers.keys() {
            if !is_header_name(name) {
                let key = format!("telemetry.otlp_headers.{name}");
                self.refuse(key, format!("`{name}`"), "the name of a header, in lower case");
            }
        }
        if telemetry.service_name.is_empty()
            || telemetry.service_name.len() > 100
            || telemetry.service_name.contains(char::is_control)
        {
            self.refuse(
                "telemetry.service_name",
                format!("`{}`", telemetry.service_name),
                "1 to 100 characters of text",
            );
        }
        if !(0.0..=1.0).contains(&telemetry.sample_ratio) {
            self.refuse("telemetry.sample_ratio", telemetry.sample_ratio.to_string(), "0 to 1");
        }
    }

    fn count(&mut self, key: &str, given: u32, allowed: RangeInclusive<u32>) {
        self.within(key, given, allowed, u32::to_string);
    }

    fn size(&mut self, key: &str, given: ByteSize, allowed: RangeInclusive<ByteSize>) {
        self.within(key, given, allowed, ByteSize::to_string);
    }

    fn span(&mut self, key: &str, given: Duration, allowed: RangeInclusive<Duration>) {
        self.within(key, given, allowed, |span| duration::format(*span));
    }

    fn within<T: PartialOrd>(
        &mut self,
        key: &str,
        given: T,
        allowed: RangeInclusive<T>,
        text: impl Fn(&T) -> String,
    ) {
        if !allowed.contains(&given) {
            let expected = format!("{} to {}", text(allowed.start()), text(allowed.end()));
            self.refuse(key, text(&given), expected);
        }
    }
}

/// A name as user databases allow it.
fn is_user_name(text: &str) -> bool {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && text.len() <= 32 && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

/// A module as an `import` names it, at its top.
fn is_module(text: &str) -> bool {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && text.len() <= 100 && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A host as it stands in a request's `Host` header.
fn is_host(text: &str) -> bool {
    if let Some(rest) = text.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        let port = port.strip_prefix(':').map_or(port.is_empty(), is_port);
        return port && address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    let named = host.parse::<IpAddr>().is_ok() || host.parse::<HostName>().is_ok();
    named && port.is_none_or(is_port)
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok_and(|port| port > 0) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// An origin as browsers send it: no path, no user, lower case.
fn is_origin(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| is_host(rest) && rest == rest.to_ascii_lowercase())
}

/// The address of a collector: no credentials, no query.
fn is_endpoint(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| is_host(rest.strip_suffix('/').unwrap_or(rest)))
}

fn is_header_name(text: &str) -> bool {
    let part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    !text.is_empty() && text.len() <= 64 && text.bytes().all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_origins_are_told_from_other_text() {
        for host in
            ["example.org", "example.org:7300", "10.0.0.5", "10.0.0.5:80", "[::1]", "[::1]:7300", "localhost"]
        {
            assert!(is_host(host), "{host}");
            assert!(is_origin(&format!("https://{host}")), "{host}");
        }
        for host in [
            "",
            "*",
            "a b",
            "example.org/",
            "example.org:0",
            "example.org:x",
            "example.org:99999",
            "[::1",
            "me@b",
        ] {
            assert!(!is_host(host), "{host}");
        }
        for origin in [
            "*",
            "null",
            "example.org",
            "https://",
            "https://a/",
            "https://a/b",
            "https://A.example",
            "ftp://a",
        ] {
            assert!(!is_origin(origin), "{origin}");
        }
        for endpoint in ["http://me:hunter2@a:4317", "a:4317", "http://a:4317/v1/traces?x", "http://"] {
            assert!(!is_endpoint(endpoint), "{endpoint}");
        }
        assert!(is_endpoint("http://127.0.0.1:4317") && is_endpoint("https://collector.example.org/"));
    }

    #[test]
    fn modules_are_top_level_names() {
        for name in ["numpy", "_private", "PIL", "a1"] {
            assert!(is_module(name), "{name}");
        }
        for name in ["", "1a", "numpy.linalg", "a-b", "a b", "os;x", "ü"] {
            assert!(!is_module(name), "{name}");
        }
    }

    #[test]
    fn user_names_are_plain() {
        for name in ["sandstorm", "_apt", "a-b.c"] {
            assert!(is_user_name(name), "{name}");
        }
        for name in ["", "0", "-x", "a:b", "a/b", "a\nb", "ü"] {
            assert!(!is_user_name(name), "{name}");
        }
    }
}
