//! Which value wins, and where it is said to come from.

use std::time::Duration;

use sandstorm_config::{BudgetEnd, BudgetPeriod, Config, Effect, LogLevel, Origin, Warning, variables};
use sandstorm_types::{ByteSize, Enforcement, MilliCpus, NetworkPolicy};

use crate::Case;

#[test]
fn nothing_gives_the_defaults() {
    for case in [Case::without_file(), Case::new(""), Case::new("limits:\ntemplate:\n  mounts:\n")] {
        let loaded = case.load().unwrap();
        assert_eq!(loaded.config, Config::default());
        assert_eq!(loaded.warnings, []);
    }
    let config = Config::default();
    assert_eq!(config.limits, sandstorm_types::Limits::default());
    assert_eq!(config.serve.listen.to_string(), "127.0.0.1:7300");
    assert_eq!(config.network.policy(), NetworkPolicy::None);
    assert_eq!(config.cache.max_bytes, ByteSize::gib(20));
}

#[test]
fn a_full_file_is_read() {
    let config = Case::new(
        "state_dir: /srv/sandstorm\n\
         enforcement: best_effort\n\
         cgroup_parent: machines/sandstorm\n\
         limits:\n  wall: 1m30s\n  cpu_time: 10\n  cpus: 0.5\n  memory: 1G\n  processes: 64\n  open_files: 128\n  \
           disk: 1073741824\n  inodes: 1000\n  output: 64KiB\n\
         network:\n  default: allow\n  allow: ['*.example.com:443', example.org]\n\
         ids: {start: 1000000, blocks: 10}\n\
         template:\n  mounts:\n    - {source: /opt/go, target: /opt/go}\n\
         languages:\n  python: {program: /usr/bin/python3}\n  lua:\n    enabled: false\n\
         packages:\n  pip:\n    index: https://packages.example.org/simple/\n    credentials: env:PIP_TOKEN\n\
         cache: {max_bytes: 1GiB}\n\
         log: {format: json, level: debug}\n\
         serve:\n  listen: '[::1]:8080'\n  admin_listen: 127.0.0.1:8081\n  tls: {cert: /etc/a.pem, key: /etc/a.key}\n  \
           allowed_hosts: [sandstorm.example.org]\n  drain_timeout: 5\n\
         database: {url: 'file:/etc/sandstorm/database.url'}\n\
         quotas: {sandboxes: 5, cpus: 2.5, memory: 4G}\n\
         admission: {memory: 8G, queue: 0, wait: 0}\n\
         sandbox:\n  idle_timeout: 30m\n  ceiling: {memory: 2G}\n\
         retention: {audit: 365d}\n\
         costs: {vcpu_hour: 0.02, gib_hour: '0.003', margin_permille: 50}\n\
         budgets:\n  - {name: all, amount: 10, per: day}\n  - {name: alpha, amount: 0.5, label: project=alpha, at_limit: pause}\n\
         telemetry:\n  otlp_endpoint: http://127.0.0.1:4317\n  otlp_headers: {authorization: 'env:OTLP'}\n  sample_ratio: 0\n\
         dialects: {session: {enabled: false}}\n",
    )
    .config();
    assert_eq!(config.state_dir.as_deref(), Some("/srv/sandstorm".as_ref()));
    assert_eq!(config.enforcement, Some(Enforcement::BestEffort));
    assert_eq!(config.limits.wall, Duration::from_secs(90));
    assert_eq!(config.limits.cpu_time, Some(Duration::from_secs(10)));
    assert_eq!(config.limits.cpus, MilliCpus::new(500));
    assert_eq!(config.limits.disk, ByteSize::gib(1));
    assert_eq!(config.limits.output, ByteSize::kib(64));
    assert_eq!(config.network.policy().rules().len(), 2);
    assert_eq!(config.ids.block(9), Some(1_000_000 + 9 * 65_536));
    assert_eq!(config.template.mounts[0].target.to_str(), Some("/opt/go"));
    assert!(config.languages["python"].enabled);
    assert!(!config.languages["lua"].enabled);
    assert_eq!(config.packages.pip.credentials.as_ref().unwrap().to_string(), "env:PIP_TOKEN");
    assert_eq!(config.log.level, LogLevel::Debug);
    assert_eq!(config.serve.listen.port(), 8080);
    assert_eq!(config.serve.admin_listen.unwrap().port(), 8081);
    assert_eq!(config.serve.tls.files().unwrap().1.to_str(), Some("/etc/a.key"));
    assert_eq!(config.serve.drain_timeout, Duration::from_secs(5));
    assert_eq!(config.database.url.as_ref().unwrap().to_string(), "file:/etc/sandstorm/database.url");
    assert_eq!((config.quotas.sandboxes, config.quotas.cpus.milli()), (5, 2_500));
    assert_eq!((config.quotas.runs_per_minute, config.quotas.runs_per_minute_of_made()), (None, 600));
    assert_eq!((config.admission.memory, config.admission.queue), (Some(ByteSize::gib(8)), 0));
    assert_eq!(config.sandbox.idle_timeout, Some(Duration::from_secs(1_800)));
    assert_eq!((config.ceiling().memory, config.ceiling().disk), (ByteSize::gib(2), ByteSize::gib(8)));
    assert_eq!(config.retention.audit, Duration::from_secs(365 * 86_400));
    assert_eq!(
        (config.costs.vcpu_hour.to_string(), config.costs.gib_hour.to_string()),
        ("0.02".into(), "0.003".into())
    );
    assert_eq!((config.budgets.len(), config.budgets[1].amount.to_string()), (2, "0.5".into()));
    assert_eq!((config.budgets[0].per, config.budgets[1].at_limit), (BudgetPeriod::Day, BudgetEnd::Pause));
    assert_eq!(config.telemetry.otlp_headers["authorization"].to_string(), "env:OTLP");
    assert_eq!(config.telemetry.sample_ratio, 0.0);
    assert!(!config.dialects.session.enabled && config.dialects.session.network);
}

#[test]
fn each_layer_covers_the_one_below() {
    let file = || Case::new("limits:\n  memory: 256M\n  wall: 5s\n");
    let memory = |case: &Case| {
        let loaded = case.load().unwrap();
        (loaded.config.limits.memory, loaded.provenance.of("limits.memory").to_string())
    };
    assert_eq!(memory(&Case::without_file()), (ByteSize::mib(512), "default".to_owned()));

    let case = file();
    let (size, origin) = memory(&case);
    assert_eq!(size, ByteSize::mib(256));
    assert_eq!(origin, format!("{}:2:11", case.file().display()));

    let case = file().variable("SANDSTORM_LIMITS_MEMORY", "128M");
    assert_eq!(memory(&case), (ByteSize::mib(128), "env SANDSTORM_LIMITS_MEMORY".to_owned()));

    let case = case.flag("--memory", "limits.memory", "64M");
    assert_eq!(memory(&case), (ByteSize::mib(64), "flag --memory".to_owned()));
    let loaded = case.load().unwrap();
    assert_eq!(loaded.config.limits.wall, Duration::from_secs(5));
    assert!(matches!(loaded.provenance.of("limits.wall"), Origin::File { place, .. } if place.line == 3));
}

#[test]
fn every_setting_has_a_variable_that_works() {
    let values = [
        ("state_dir", "/x"),
        ("enforcement", "strict"),
        ("system_calls", "strict"),
        ("cgroup_parent", "x"),
        ("network.default", "open"),
        ("log.format", "json"),
        ("log.level", "trace"),
        ("serve.listen", "127.0.0.1:1"),
        ("cache.max_bytes", "1G"),
        ("ids.start", "131072"),
        ("serve.admin_listen", "127.0.0.1:1"),
        ("serve.user", "somebody"),
        ("serve.metrics_auth", "true"),
        ("database.url", "env:DATABASE"),
        ("database.durability", "full"),
        ("database.lease", "90s"),
        ("retention.runs", "1d"),
        ("retention.events", "2d"),
        ("retention.audit", "3d"),
        ("retention.ledger", "50d"),
        ("costs.credits", "true"),
        ("costs.vcpu_hour", "0.05"),
        ("telemetry.otlp_endpoint", "http://127.0.0.1:4317"),
        ("telemetry.sample_ratio", "0.5"),
        ("routing.objective", "fastest"),
        ("pool.enabled", "false"),
        ("pool.zygotes", "false"),
        ("dialects.session.enabled", "false"),
        ("dialects.session.network", "false"),
        ("dialects.e2b.enabled", "false"),
        ("dialects.e2b.domain", "sandbox.example.org"),
        ("dialects.e2b.network", "false"),
        ("dialects.mcp.enabled", "false"),
        ("dialects.mcp.shown", "77K"),
        ("dialects.mcp.public_url", "https://sandstorm.example.org"),
    ];
    // One of two that go together.
    let others = [
        ("serve.tls.cert", ("SANDSTORM_SERVE_TLS_KEY", "/x")),
        ("serve.tls.key", ("SANDSTORM_SERVE_TLS_CERT", "/x")),
    ];
    let mut tried = 0;
    for variable in variables() {
        let Effect::Sets(key) = &variable.effect else { continue };
        let value = match values.iter().find(|(name, _)| name == key) {
            Some((_, value)) => value,
            None if key.ends_with(".index") => "https://packages.example.org/",
            None if key.ends_with(".credentials") => "env:TOKEN",
            None if key.starts_with("serve.tls.") => "/x",
            None if [".memory", ".disk", ".output", ".body_limit", ".body_memory"]
                .iter()
                .any(|end| key.ends_with(end)) =>
            {
                "77M"
            }
            None => "77",
        };
        let mut case = Case::without_file().variable(variable.name, value);
        if let Some((_, (name, value))) = others.iter().find(|(name, _)| name == key) {
            case = case.variable(name, value);
        }
        let loaded = case.load().unwrap_or_else(|error| panic!("{}: {error}", variable.name));
        assert_eq!(loaded.provenance.of(key), Origin::Environment(variable.name.to_owned()));
        assert_ne!(loaded.config, Config::default(), "{} changes nothing", variable.name);
        tried += 1;
    }
    assert!(tried > 25, "only {tried} variables");
}

#[test]
fn older_names_mean_what_the_reference_says() {
    let case = Case::without_file()
        .variable("SANDBOX_CPU_QUOTA", "3")
        .variable("SANDBOX_MEMORY_LIMIT", "262144")
        .variable("SANDBOX_ALLOW_NETWORK", "Off")
        .variable("SANDBOX_TIMEOUT_SECONDS", "301")
        .variable("SANDBOX_MAX_USER_PROGRESS", "11")
        .variable("WORKSPACE_EXPIRATION_TIME", "60");
    let loaded = case.load().unwrap();
    let session = &loaded.config.dialects.session;
    assert_eq!(session.cpu_time, Duration::from_secs(3));
    assert_eq!(session.memory, ByteSize::mib(256));
    assert!(!session.network);
    assert_eq!(session.timeout, Duration::from_secs(301));
    assert_eq!(session.processes, 11);
    assert_eq!(session.expiration, Duration::from_secs(60));
    assert_eq!(loaded.provenance.of("dialects.session.timeout").to_string(), "env SANDBOX_TIMEOUT_SECONDS");
    assert_eq!(loaded.warnings, []);
    let elsewhere = Config { dialects: Default::default(), ..loaded.config };
    assert_eq!(elsewhere, Config::default(), "older names count in their dialect alone");

    let open = Case::new("dialects: {session: {network: false}}\n").variable("SANDBOX_ALLOW_NETWORK", "1");
    assert!(open.config().dialects.session.network);
    assert_eq!(open.config().network.policy(), NetworkPolicy::None);
}

#[test]
fn newer_names_win_over_older_ones() {
    let case = Case::without_file()
        .variable("SANDBOX_MEMORY_LIMIT", "131072")
        .variable("SANDSTORM_DIALECTS_SESSION_MEMORY", "1G");
    let loaded = case.load().unwrap();
    assert_eq!(loaded.config.dialects.session.memory, ByteSize::gib(1));
    let shadowed =
        Warning::Shadowed { name: "SANDBOX_MEMORY_LIMIT", by: "SANDSTORM_DIALECTS_SESSION_MEMORY" };
    assert_eq!(loaded.warnings, [shadowed]);
}

#[test]
fn variables_without_effect_are_said_to_have_none() {
    let case = Case::without_file()
        .variable("SANDBOX_POOL_SIZE", "5")
        .variable("SANDSTORM_LIMIT_MEMORY", "1G")
        .variable("SANDSTORM_XYZZY", "1")
        .variable("SANDBOX_API_KEY", "somebody else's");
    let warnings: Vec<_> = case.load().unwrap().warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "SANDBOX_POOL_SIZE has no effect: sandboxes made ahead follow demand, within `pool.prefill` and `pool.max`",
            "unknown environment variable SANDSTORM_LIMIT_MEMORY; did you mean SANDSTORM_LIMITS_MEMORY?",
            "unknown environment variable SANDSTORM_XYZZY",
        ]
    );
}

#[test]
fn empty_variables_count_as_unset() {
    let case = Case::without_file().variable("SANDSTORM_LIMITS_MEMORY", "").variable("SANDBOX_POOL_SIZE", "");
    let loaded = case.load().unwrap();
    assert_eq!((loaded.config, loaded.warnings.len()), (Config::default(), 0));
}

#[test]
fn the_state_directory_follows_the_user() {
    let state = |case: &Case| case.load().unwrap().state_dir().unwrap().to_owned();
    let mut case = Case::without_file().variable("HOME", "/home/a");
    case.uid = 0;
    assert_eq!(state(&case).to_str(), Some("/var/lib/sandstorm"));
    case.uid = 1000;
    assert_eq!(state(&case).to_str(), Some("/home/a/.local/state/sandstorm"));
    let case = case.variable("SANDSTORM_STATE_DIR", "/elsewhere");
    assert_eq!(state(&case).to_str(), Some("/elsewhere"));
    let case = case.flag("--state-dir", "state_dir", "here");
    assert_eq!(state(&case), std::path::absolute("here").unwrap());

    let mut homeless = Case::without_file();
    homeless.uid = 1000;
    let error = homeless.load().unwrap().state_dir().unwrap_err().to_string();
    assert!(error.contains("SANDSTORM_STATE_DIR"), "{error}");
}

#[test]
fn show_gives_every_value_with_its_origin() {
    let mut case =
        Case::new("limits:\n  memory: 1024M\nlanguages:\n  lua: {enabled: false}\ntemplate:\n  mounts: []\n")
            .variable("SANDSTORM_LIMITS_WALL", "90")
            .variable("SANDBOX_TIMEOUT_SECONDS", "80")
            .flag("--log-level", "log.level", "warn");
    case.uid = 0;
    let text = case.load().unwrap().show().replace(&case.file().display().to_string(), "FILE");
    let line = |key: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{key}: ")))
            .unwrap_or_else(|| panic!("{text}"));
        line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("limits.memory"), "1GiB # FILE:2:11");
    assert_eq!(line("limits.wall"), "1m30s # env SANDSTORM_LIMITS_WALL");
    assert_eq!(line("dialects.session.timeout"), "1m20s # env SANDBOX_TIMEOUT_SECONDS");
    assert_eq!(line("limits.cpu_time"), "null # default");
    assert_eq!(line("limits.cpus"), "1 # default");
    assert_eq!(line("log.level"), "warn # flag --log-level");
    assert_eq!(line("languages.lua.enabled"), "false # FILE:4:18");
    assert_eq!(line("languages.lua.program"), "null # default");
    assert_eq!(line("template.mounts"), "[] # FILE:6:11");
    let settings = serde_json::to_value(case.load().unwrap().settings()).unwrap();
    let wall = settings.as_array().unwrap().iter().find(|setting| setting["key"] == "limits.wall").unwrap();
    assert_eq!(wall["origin"], "env SANDSTORM_LIMITS_WALL");
    assert_eq!(line("state_dir"), "/var/lib/sandstorm # default");
}
