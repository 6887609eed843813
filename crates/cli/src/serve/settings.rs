//! From the configuration to what each part of the server is made from.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use sandstorm_catalog::{FeeRules, PriceModel};
use sandstorm_config::{BudgetEnd, BudgetPeriod, Config, Environment, Loaded, LogFormat, LogLevel};
use sandstorm_control::server::{
    AtLimit, Budget, Costs, Pepper, Quota, Retention, RunCacheLimits, Settings, SnapshotLimits, Window,
};
use sandstorm_dialect_e2b::E2bSettings;
use sandstorm_dialect_mcp::McpSettings;
use sandstorm_dialect_session::SessionSettings;
use sandstorm_gateway::GatewaySettings;
use sandstorm_provider::Closing;
use sandstorm_telemetry::{Otlp, TelemetryConfig};
use sandstorm_types::{ByteSize, Template, Usd};

use super::ServeCommand;
use crate::complaint::paints;
use crate::mcp;

/// What the kernel says of this machine's memory.
const MEMINFO: &str = "/proc/meminfo";

/// For so long at most what the audit newly has is held by the database alone.
const ANCHOR_EVERY: Duration = Duration::from_secs(30);

pub(crate) fn control(loaded: &Loaded, pepper: Pepper) -> anyhow::Result<Settings> {
    let config = &loaded.config;
    let (quotas, admission, sandbox) = (&config.quotas, &config.admission, &config.sandbox);
    let local_quota = Quota {
        sandboxes: quotas.sandboxes,
        cpu_milli: u64::from(quotas.cpus.milli()),
        memory_bytes: quotas.memory.as_u64(),
        runs_per_minute: quotas.runs_per_minute,
        requests_per_second: quotas.requests_per_second,
        open_streams: quotas.open_streams,
    };
    Ok(Settings {
        limits: config.limits,
        ceiling: config.ceiling(),
        enforcement: config.enforcement.unwrap_or_default(),
        quota: Quota {
            runs_per_minute: Some(quotas.runs_per_minute_of_made()),
            requests_per_second: Some(quotas.requests_per_second_of_made()),
            ..local_quota
        },
        local_quota: Some(local_quota),
        admission_memory: admission.memory_on(machine_memory()?, config.serve.body_memory),
        body_memory: config.serve.body_memory,
        admission_wait: admission.wait,
        admission_queue: usize::try_from(admission.queue).unwrap_or(usize::MAX),
        space_in_memory: true,
        meminfo: MEMINFO.into(),
        idle_timeout: sandbox.idle_timeout,
        paused_for: sandbox.paused_for,
        longest_lifetime: sandbox.lifetime_max,
        retention: Retention {
            runs: config.retention.runs,
            events: config.retention.events,
            audit: config.retention.audit,
            ledger: config.retention.ledger,
        },
        anchor_every: ANCHOR_EVERY,
        run_cache: RunCacheLimits {
            max_bytes: config.run_cache.max_bytes.as_u64(),
            max_age: config.run_cache.max_age,
        },
        snapshots: SnapshotLimits {
            count: config.snapshots.per_tenant,
            bytes: config.snapshots.space_per_tenant.as_u64(),
        },
        costs: costs(loaded)?,
        reconcile_every: config.routing.reconcile_every,
        price_age: config.routing.price_age,
        keyless: false,
        pepper,
    })
}

/// What this machine costs, where the operator has set it.
pub(super) fn own_price(config: &Config) -> Option<PriceModel> {
    let sandstorm_config::Costs { vcpu_hour, gib_hour, .. } = config.costs;
    let is_set = vcpu_hour != Usd::ZERO || gib_hour != Usd::ZERO;
    is_set.then_some(PriceModel::Owned { vcpu_hour, gib_hour })
}

/// Prices, fees and budgets.
fn costs(loaded: &Loaded) -> anyhow::Result<Costs> {
    let config = &loaded.config;
    let sandstorm_config::Costs { credits, margin_permille, snapshot_gib_hour, .. } = config.costs;
    let budget = |budget: &sandstorm_config::Budget| {
        Ok(Budget {
            name: budget.name.clone(),
            tenant: budget.tenant_id().with_context(|| format!("the tenant of budget `{}`", budget.name))?,
            key: budget.key.clone(),
            label: budget.label_parts(),
            amount: budget.amount,
            window: match budget.per {
                BudgetPeriod::Hour => Window::Hour,
                BudgetPeriod::Day => Window::Day,
                BudgetPeriod::Month => Window::Month,
                BudgetPeriod::Ever => Window::Ever,
            },
            at_limit: match budget.at_limit {
                BudgetEnd::Stop => AtLimit::Stop,
                BudgetEnd::Pause => AtLimit::Pause,
            },
        })
    };
    Ok(Costs {
        catalog: Arc::new(super::providers::catalogue(loaded)?),
        fees: FeeRules { margin_permille, snapshot_gib_hour },
        credits,
        budgets: config.budgets.iter().map(budget).collect::<anyhow::Result<_>>()?,
    })
}

pub(super) fn gateway(loaded: &Loaded, command: &ServeCommand, closing: Closing) -> GatewaySettings {
    let config = &loaded.config;
    let serve = &config.serve;
    GatewaySettings {
        dev_no_auth: command.dev_no_auth,
        allowed_hosts: serve.allowed_hosts.clone(),
        allowed_origins: serve.allowed_origins.clone(),
        secure: serve.tls.files().is_some(),
        metrics_auth: serve.metrics_auth,
        json_limit: usize::try_from(serve.body_limit.as_u64()).unwrap_or(usize::MAX),
        body_pause: serve.body_timeout,
        body_time: serve.body_timeout.saturating_mul(4),
        idle: serve.idle_timeout,
        limits: config.limits,
        ceiling: config.ceiling(),
        longest_lifetime: config.sandbox.lifetime_max,
        closing,
        giving_up: Closing::default(),
    }
}

/// `None`: the dialect is switched off.
pub(super) fn session(loaded: &Loaded) -> Option<SessionSettings> {
    let session = &loaded.config.dialects.session;
    session.enabled.then(|| SessionSettings {
        cpu_time: (session.cpu_time > Duration::ZERO).then_some(session.cpu_time),
        memory: session.memory,
        network: session.network,
        timeout: session.timeout,
        processes: session.processes,
        expiration: session.expiration,
        ..SessionSettings::default()
    })
}

/// `None`: the dialect is switched off.
pub(super) fn mcp(
    loaded: &Loaded,
    command: &ServeCommand,
    closing: Closing,
) -> anyhow::Result<Option<McpSettings>> {
    let serve = &loaded.config.serve;
    if !loaded.config.dialects.mcp.enabled {
        return Ok(None);
    }
    Ok(Some(McpSettings {
        conformance_fixtures: command.conformance_fixtures,
        allowed_origins: serve.allowed_origins.clone(),
        secure: serve.tls.files().is_some(),
        ..mcp::settings(loaded, closing)?
    }))
}

/// `None`: the dialect is switched off.
pub(super) fn e2b(loaded: &Loaded, closing: Closing) -> anyhow::Result<Option<E2bSettings>> {
    let e2b = &loaded.config.dialects.e2b;
    if !e2b.enabled {
        return Ok(None);
    }
    let mut settings = E2bSettings {
        domain: e2b.domain.clone(),
        network: e2b.network,
        longest_lifetime: loaded.config.sandbox.lifetime_max,
        closing,
        ..E2bSettings::default()
    };
    for (name, meaning) in &e2b.templates {
        let template = match meaning.strip_prefix("image:") {
            Some(image) => Template::Image(image.to_owned()),
            None => Template::Host,
        };
        settings.templates.insert(name.clone(), template);
    }
    let packages = e2b.python_packages.iter().map(|package| package.parse());
    settings.python_packages =
        packages.collect::<Result<_, _>>().context("`dialects.e2b.python_packages`")?;
    Ok(Some(settings))
}

/// The address of the database, read from where the configuration says it is.
pub(crate) fn database(loaded: &Loaded) -> anyhow::Result<Option<String>> {
    let Some(reference) = &loaded.config.database.url else { return Ok(None) };
    let secret = reference.resolve(&Environment::of_process()).context("`database.url`")?;
    Ok(Some(secret.expose_secret().to_owned()))
}

pub(super) fn telemetry(loaded: &Loaded) -> anyhow::Result<TelemetryConfig> {
    let (log, telemetry) = (&loaded.config.log, &loaded.config.telemetry);
    let environment = Environment::of_process();
    let headers = telemetry.otlp_headers.iter().map(|(name, reference)| {
        let secret =
            reference.resolve(&environment).with_context(|| format!("`telemetry.otlp_headers.{name}`"))?;
        Ok((name.clone(), secret.expose_secret().to_owned()))
    });
    let headers = headers.collect::<anyhow::Result<Vec<_>>>()?;
    Ok(TelemetryConfig {
        log_format: match log.format {
            LogFormat::Pretty => sandstorm_telemetry::LogFormat::Pretty,
            LogFormat::Json => sandstorm_telemetry::LogFormat::Json,
        },
        log_level: match log.level {
            LogLevel::Error => tracing::Level::ERROR,
            LogLevel::Warn => tracing::Level::WARN,
            LogLevel::Info => tracing::Level::INFO,
            LogLevel::Debug => tracing::Level::DEBUG,
            LogLevel::Trace => tracing::Level::TRACE,
        },
        colours: paints(&std::io::stderr()),
        service_name: telemetry.service_name.clone(),
        otlp: telemetry.otlp_endpoint.clone().map(|endpoint| Otlp {
            endpoint,
            headers,
            sample_ratio: telemetry.sample_ratio,
        }),
    })
}

/// Memory of this machine.
fn machine_memory() -> anyhow::Result<ByteSize> {
    let text = std::fs::read_to_string(MEMINFO).context("could not read /proc/meminfo")?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    let kilobytes: u64 = total.and_then(|n| n.parse().ok()).context("/proc/meminfo has no MemTotal")?;
    Ok(ByteSize::bytes(kilobytes.saturating_mul(1024)))
}
