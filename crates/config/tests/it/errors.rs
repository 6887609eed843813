//! Every way of being wrong names its place, its key, what was expected and what was probably meant.

use sandstorm_config::{ConfigError, ProblemKind};

use crate::Case;

#[test]
fn unknown_keys() {
    let case = Case::new("limits:\n  wall: 5s\n  memroy: 1G\nnetwrok: {}\n");
    assert_eq!(
        case.error(),
        "sandstorm.yaml:3:3: unknown key `limits.memroy`\n  \
         expected one of wall, cpu_time, cpus, memory, processes, open_files, disk, inodes, output\n  \
         did you mean `memory`?\n\
         sandstorm.yaml:4:1: unknown key `netwrok`\n  \
         expected one of state_dir, enforcement, system_calls, cgroup_parent, limits, network, ids, template, languages, packages, \
         cache, log, serve, database, quotas, admission, sandbox, providers, routing, pool, run_cache, snapshots, disk_space, costs, budgets, retention, telemetry, dialects\n  \
         did you mean `network`?"
    );
}

#[test]
fn unknown_keys_in_lists_and_under_chosen_names() {
    let case = Case::new(
        "template:\n  mounts:\n    - source: /a\n      target: /b\n      readonly: true\nlanguages:\n  lua:\n    enable: no\n",
    );
    let error = case.error();
    assert!(error.contains("sandstorm.yaml:5:7: unknown key `template.mounts[0].readonly`"), "{error}");
    assert!(error.contains("sandstorm.yaml:8:5: unknown key `languages.lua.enable`"), "{error}");
    assert!(error.contains("did you mean `enabled`?"), "{error}");
}

#[test]
fn duplicate_keys() {
    let case = Case::new("limits:\n  memory: 1G\n  wall: 3s\n  memory: 2G\n");
    assert_eq!(case.error(), "sandstorm.yaml:4:3: duplicate key `limits.memory`, first set on line 2");
    let case = Case::new("log: {level: info}\nids:\n  start: 100000\nlog: {}\n");
    assert_eq!(case.error(), "sandstorm.yaml:4:1: duplicate key `log`, first set on line 1");
}

#[test]
fn wrong_types() {
    for (text, expected) in [
        (
            "limits: 5\n",
            "sandstorm.yaml:1:9: wrong type for `limits`: found a number\n  expected a section with the keys wall, ",
        ),
        (
            "limits:\n  memory: [1]\n",
            "sandstorm.yaml:2:11: wrong type for `limits.memory`: found a list\n  expected a size such as `512MiB`",
        ),
        ("limits:\n  wall: {s: 1}\n", "sandstorm.yaml:2:9: wrong type for `limits.wall`: found a section\n"),
        (
            "template:\n  mounts: /opt\n",
            "sandstorm.yaml:2:11: wrong type for `template.mounts`: found text\n  expected a list",
        ),
        ("languages: [python]\n", "sandstorm.yaml:1:12: wrong type for `languages`: found a list\n"),
        ("- a\n- b\n", "sandstorm.yaml:1:1: wrong type for ``: found a list\n"),
        (
            "limits:\n  memory: true\n",
            "sandstorm.yaml:2:11: bad value for `limits.memory`: invalid type: boolean `true`, expected a whole number of bytes",
        ),
        (
            "limits:\n  processes: lots\n",
            "sandstorm.yaml:2:14: bad value for `limits.processes`: invalid type: string \"lots\", expected a whole number",
        ),
        (
            "limits:\n  memory:\n",
            "sandstorm.yaml:2:9: bad value for `limits.memory`: invalid type: null, expected",
        ),
        (
            "template:\n  mounts:\n    - source: /a\n",
            "sandstorm.yaml:3:5: bad value for `template.mounts[0]`: missing field `target`",
        ),
    ] {
        let error = Case::new(text).error();
        assert!(error.starts_with(expected), "{text}\n{error}");
    }
}

#[test]
fn bad_values() {
    for (text, expected) in [
        (
            "limits:\n  memory: 1Q\n",
            "sandstorm.yaml:2:11: bad value for `limits.memory`: `1Q` is not a number of bytes",
        ),
        (
            "limits:\n  memory: 1K\n",
            "sandstorm.yaml:2:11: bad value for `limits.memory`: 1KiB\n  expected 4MiB to 1TiB",
        ),
        (
            "limits:\n  wall: 0\n",
            "sandstorm.yaml:2:9: bad value for `limits.wall`: 0s\n  expected 10ms to 1d",
        ),
        (
            "limits:\n  wall: -1\n",
            "sandstorm.yaml:2:9: bad value for `limits.wall`: invalid value: integer `-1`",
        ),
        (
            "limits:\n  cpus: .nan\n",
            "sandstorm.yaml:2:9: bad value for `limits.cpus`: `.nan` is not a number of CPUs",
        ),
        ("limits:\n  cpus: 1e308\n", "sandstorm.yaml:2:9: bad value for `limits.cpus`"),
        (
            "limits:\n  inodes: 9223372036854775808\n",
            "sandstorm.yaml:2:11: bad value for `limits.inodes`: 9223372036854775808\n  expected 64 to",
        ),
        (
            "limits:\n  processes: 99999999999999999999\n",
            "sandstorm.yaml:2:14: bad value for `limits.processes`",
        ),
        (
            "network: {default: opn}\n",
            "sandstorm.yaml:1:20: bad value for `network.default`: unknown variant `opn`, expected one of `none`, `allow`, `open`\n  did you mean `open`?",
        ),
        (
            "network: {default: allow}\n",
            "sandstorm.yaml:1:20: bad value for `network.default`: `allow` without a rule\n  expected at least one rule",
        ),
        (
            "network:\n  allow:\n    - good.example\n    - 'bad host'\n",
            "sandstorm.yaml:4:7: bad value for `network.allow[1]`: network rule `bad host`",
        ),
        (
            "enforcement: strct\n",
            "sandstorm.yaml:1:14: bad value for `enforcement`: unknown variant `strct`, expected `strict` or `best_effort`\n  did you mean `strict`?",
        ),
        (
            "state_dir: relative\n",
            "sandstorm.yaml:1:12: bad value for `state_dir`: relative\n  expected an absolute path",
        ),
        ("state_dir: /a/../b\n", "sandstorm.yaml:1:12: bad value for `state_dir`"),
        ("cgroup_parent: ../up\n", "sandstorm.yaml:1:16: bad value for `cgroup_parent`: `../up`"),
        (
            "ids: {start: 1000}\n",
            "sandstorm.yaml:1:14: bad value for `ids.start`: 1000\n  expected at least 65536",
        ),
        ("ids: {start: 4294900000}\n", "sandstorm.yaml:1:14: bad value for `ids.start`: the range would end"),
        ("ids: {blocks: 60000}\n", "sandstorm.yaml:1:15: bad value for `ids.blocks`: the range would end"),
        (
            "languages: {lua: {program: lua}}\n",
            "sandstorm.yaml:1:28: bad value for `languages.lua.program`: lua",
        ),
        ("serve: {listen: localhost}\n", "sandstorm.yaml:1:17: bad value for `serve.listen`"),
        (
            "packages: {pip: {index: example.org}}\n",
            "sandstorm.yaml:1:25: bad value for `packages.pip.index`: an index is an address",
        ),
    ] {
        let error = Case::new(text).error();
        assert!(error.starts_with(expected), "{text}\n{error}");
    }
}

#[test]
fn bad_values_of_a_server() {
    for (text, expected) in [
        (
            "serve: {user: root}\n",
            "sandstorm.yaml:1:15: bad value for `serve.user`: `root`\n  expected a user without",
        ),
        (
            "serve: {user: 'a:b'}\n",
            "sandstorm.yaml:1:15: bad value for `serve.user`: `a:b`\n  expected the name of a user",
        ),
        (
            "serve: {admin_listen: '127.0.0.1:7300'}\n",
            "sandstorm.yaml:1:23: bad value for `serve.admin_listen`: 127.0.0.1:7300 is `serve.listen` too",
        ),
        (
            "serve: {tls: {cert: /etc/tls/a.pem}}\n",
            "sandstorm.yaml:1:21: bad value for `serve.tls.cert`: set without `key`\n  expected both or neither",
        ),
        (
            "serve: {tls: {cert: /a, key: b}}\n",
            "sandstorm.yaml:1:30: bad value for `serve.tls.key`: b\n  expected an absolute",
        ),
        (
            "serve:\n  allowed_hosts: [a.example, 'https://a.example']\n",
            "sandstorm.yaml:2:30: bad value for `serve.allowed_hosts[1]`: `https://a.example`\n  expected a host name",
        ),
        (
            "serve: {allowed_origins: ['*']}\n",
            "sandstorm.yaml:1:27: bad value for `serve.allowed_origins[0]`: `*`",
        ),
        (
            "serve: {body_limit: 1}\n",
            "sandstorm.yaml:1:21: bad value for `serve.body_limit`: 1\n  expected 64KiB to 1GiB",
        ),
        (
            "serve: {drain_timeout: 2h}\n",
            "sandstorm.yaml:1:24: bad value for `serve.drain_timeout`: 2h\n  expected 0s to 1h",
        ),
        (
            "quotas: {sandboxes: 0}\n",
            "sandstorm.yaml:1:21: bad value for `quotas.sandboxes`: 0\n  expected 1 to 1000000",
        ),
        ("pool: {max: 0}\n", "sandstorm.yaml:1:13: bad value for `pool.max`: 0\n  expected 1 to 10000"),
        (
            "ids: {blocks: 100}\npool: {max: 51}\n",
            "sandstorm.yaml:2:13: bad value for `pool.max`: 51 of 100 blocks of ids\n  expected at most half of `ids.blocks`",
        ),
        (
            "pool: {prefill: 200}\n",
            "sandstorm.yaml:1:17: bad value for `pool.prefill`: 200\n  expected at most `pool.max`",
        ),
        (
            "pool: {preload: [os.path]}\n",
            "sandstorm.yaml:1:18: bad value for `pool.preload[0]`: `os.path`\n  expected the name of a Python module, without a dot",
        ),
        (
            "quotas: {cpus: 0}\n",
            "sandstorm.yaml:1:16: bad value for `quotas.cpus`: 0\n  expected 0.01 to 1000000",
        ),
        (
            "admission: {memory: 1M}\n",
            "sandstorm.yaml:1:21: bad value for `admission.memory`: 1MiB\n  expected 4MiB to",
        ),
        (
            "sandbox: {ceiling: {memory: 1K}}\n",
            "sandstorm.yaml:1:29: bad value for `sandbox.ceiling.memory`: 1KiB\n  expected 4MiB to 1TiB",
        ),
        (
            "sandbox: {idle_timeout: 0}\n",
            "sandstorm.yaml:1:25: bad value for `sandbox.idle_timeout`: 0s\n  expected 1s to",
        ),
        (
            "retention: {audit: 1h}\n",
            "sandstorm.yaml:1:20: bad value for `retention.audit`: 1h\n  expected 1d to",
        ),
        (
            "telemetry: {sample_ratio: 1.5}\n",
            "sandstorm.yaml:1:27: bad value for `telemetry.sample_ratio`: 1.5\n  expected 0 to 1",
        ),
        (
            "telemetry: {sample_ratio: often}\n",
            "sandstorm.yaml:1:27: bad value for `telemetry.sample_ratio`: invalid type: string \"often\", expected a number",
        ),
        (
            "telemetry: {otlp_headers: {'A B': 'env:X'}}\n",
            "sandstorm.yaml:1:35: bad value for `telemetry.otlp_headers.A B`",
        ),
        ("telemetry: {service_name: ''}\n", "sandstorm.yaml:1:27: bad value for `telemetry.service_name`"),
        (
            "dialects: {session: {processes: 0}}\n",
            "sandstorm.yaml:1:33: bad value for `dialects.session.processes`: 0",
        ),
        ("dialects: {sessions: {}}\n", "sandstorm.yaml:1:12: unknown key `dialects.sessions`"),
    ] {
        let error = Case::new(text).error();
        assert!(error.starts_with(expected), "{text}\n{error}");
    }
}

#[test]
fn mounts_keep_off_what_is_the_sandboxs_own() {
    for (source, target) in [
        ("/opt/a", "/"),
        ("/opt/a", "/usr"),
        ("/opt/a", "/proc/sys"),
        ("/opt/a", "/dev"),
        ("/opt/a", "/workspace"),
        ("/opt/a", "/opt/../etc"),
        ("/opt/a", "opt"),
        ("/", "/opt/a"),
        ("/proc/1/root", "/opt/a"),
        ("/opt/a/../..", "/opt/a"),
    ] {
        let text = format!("template:\n  mounts:\n    - source: {source}\n      target: {target}\n");
        let error = Case::new(&text).error();
        assert!(error.contains("bad value for `template.mounts[0]."), "{text}\n{error}");
    }
    let mount = "    - {source: /opt/a, target: /opt/a}\n";
    Case::new(&format!("template:\n  mounts:\n{mount}")).config();
    let error = Case::new(&format!("template:\n  mounts:\n{mount}{mount}")).error();
    assert!(error.starts_with("sandstorm.yaml:4:32: bad value for `template.mounts[1].target`"), "{error}");
}

#[test]
fn text_that_is_not_yaml() {
    let error = Case::new("limits:\n\tmemory: 1G\n").error();
    assert!(error.starts_with("sandstorm.yaml:2:"), "{error}");
    assert!(error.contains("not valid YAML"), "{error}");
}

#[test]
fn all_problems_of_all_layers_come_at_once() {
    let case = Case::new("limits:\n  memory: x\n  wall: y\n  unknown: 1\nlog: {level: loud}\n")
        .variable("SANDSTORM_LIMITS_MEMORY", "1G")
        .variable("SANDSTORM_IDS_BLOCKS", "many")
        .variable("SANDBOX_CPU_QUOTA", "soon")
        .flag("--cpus", "limits.cpus", "none");
    let ConfigError::Invalid(problems) = case.load().unwrap_err() else { panic!() };
    let keys: Vec<_> = problems.iter().map(|problem| problem.key.as_str()).collect();
    assert_eq!(
        keys,
        [
            "limits.memory",
            "limits.wall",
            "limits.unknown",
            "log.level",
            "dialects.session.cpu_time",
            "ids.blocks",
            "limits.cpus"
        ]
    );
    assert_eq!(problems[2].kind, ProblemKind::UnknownKey);
    let text = case.error();
    assert!(text.contains("env SANDBOX_CPU_QUOTA: bad value for `dialects.session.cpu_time`: `soon` cannot be read\n  expected a whole number of seconds"), "{text}");
    assert!(
        text.contains("env SANDSTORM_IDS_BLOCKS: bad value for `ids.blocks`: `many` is not a whole number"),
        "{text}"
    );
    assert!(
        text.contains("flag --cpus: bad value for `limits.cpus`: `none` is not a number of CPUs"),
        "{text}"
    );
}

#[test]
fn a_covered_value_must_be_in_range_too() {
    let case = Case::new("limits:\n  memory: 1K\n").variable("SANDSTORM_LIMITS_MEMORY", "1G");
    assert!(
        case.error().starts_with("sandstorm.yaml:2:11: bad value for `limits.memory`: 1KiB"),
        "{}",
        case.error()
    );
}

#[test]
fn a_flag_for_no_key_is_refused() {
    let error = Case::without_file().flag("--x", "limits.nothing", "1").error();
    assert!(error.starts_with("flag --x: "), "{error}");
}

#[test]
fn a_variable_that_is_not_text_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let mut case = Case::without_file();
    case.variables.push(("SANDSTORM_LOG_LEVEL".into(), std::ffi::OsString::from_vec(vec![0xff])));
    assert!(case.error().starts_with("env SANDSTORM_LOG_LEVEL: "), "{}", case.error());
}

proptest::proptest! {
    #[test]
    fn no_file_panics(text in "([a-z_]{1,8}|limits|memory|[:\\-\\[\\]{},'\"&*!|> \n#0-9]){0,40}") {
        let _ = Case::new(&text).load();
    }
}

#[test]
fn providers_that_cannot_be_are_refused() {
    for (text, word) in [
        ("providers: {Office: {kind: sandstorm, url: 'http://a'}}\n", "a-z"),
        ("providers: {office: {kind: sandstorm}}\n", "the address of the other server"),
        ("providers: {office: {kind: local}}\n", "which is this machine"),
        ("providers: {office: {kind: sandstrom, url: 'http://a'}}\n", "sandstorm"),
        ("providers: {office: {kind: sandstorm, url: 'http://u:p@a'}}\n", "credentials"),
        ("providers: {office: {kind: sandstorm, url: 'http://a', key: hunter2}}\n", "env:"),
        ("providers: {office: {kind: sandstorm, url: 'http://a', concurrency: 0}}\n", "at least 1"),
        ("providers: {local: {kind: local, url: 'http://a'}}\n", "this machine has none"),
        ("providers: {local: {kind: local, price: {vcpu_hour: 1}}}\n", "model"),
        ("providers: {local: {kind: local, price: {model: allocated, vcpu_second: 1}}}\n", "gib_second"),
        ("providers: {local: {kind: local, enabled: false}}\n", "one that is enabled"),
        ("routing: {weights: {latency: -1}}\n", "0 or more"),
        ("routing: {objective: best}\n", "cheapest"),
        ("routing: {hedge_max_cost: much}\n", "dollars"),
    ] {
        let error = Case::new(text).load().unwrap_err().to_string();
        assert!(error.contains(word), "{text}: {error}");
        assert!(!error.contains("hunter2") && !error.contains("u:p"), "{error}");
    }
}
