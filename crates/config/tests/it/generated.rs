//! The files made from the tree are the ones in the repository, and are true.

use sandstorm_config::{Config, configuration_page, environment_page, init_text, schema_json, variables};

use crate::{Case, repository};

fn assert_current(path: &str, text: &str) {
    let stored = std::fs::read_to_string(repository().join(path)).unwrap_or_default();
    assert!(
        stored == text,
        "{path} is out of date: run `cargo run -p sandstorm-config --example generate` and commit the result"
    );
}

#[test]
fn stored_files_are_current() {
    assert_current("api/config.schema.json", &schema_json());
    assert_current("docs/reference/configuration.md", &configuration_page());
    assert_current("docs/reference/environment.md", &environment_page());
}

#[test]
fn the_initial_file_is_the_defaults() {
    let case = Case::new(&init_text());
    let loaded = case.load().unwrap_or_else(|error| panic!("{error}\n{}", init_text()));
    assert_eq!(loaded.config, Config::default());
    // Each default is really stated, not merely left out.
    for setting in loaded.settings() {
        let from_file = loaded.provenance.of(&setting.key).to_string().contains("sandstorm.yaml");
        let empty_by_name = setting.value.as_object().is_some_and(serde_json::Map::is_empty);
        let unset = setting.value.is_null() || setting.key == "state_dir" || empty_by_name;
        assert!(from_file || unset, "{} is not in the initial file", setting.key);
    }
}

#[test]
fn any_line_with_a_value_may_go_from_the_initial_file() {
    let text = init_text();
    let lines: Vec<_> = text.lines().collect();
    let has_value = |line: &str| !line.trim_start().starts_with('#') && line.contains(": ");
    let mut gone = 0;
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| has_value(line)) {
        let left = [&lines[..number], &lines[number + 1..]].concat().join("\n");
        let loaded = Case::new(&left).load().unwrap_or_else(|error| panic!("without `{line}`: {error}"));
        assert_eq!(loaded.config, Config::default(), "without `{line}`");
        gone += 1;
    }
    assert!(gone > 100, "{gone} lines");
}

#[test]
fn the_initial_file_is_right_in_its_comments_too() {
    // Prose has one space behind its mark; everything else that is commented out must be right too.
    let uncomment = |line: &str| {
        let code = line.trim_start();
        let prose = code.starts_with("# ") && !code.starts_with("#  ");
        match code.strip_prefix('#') {
            Some(setting) if !prose => format!("{}{setting}", &line[..line.len() - code.len()]),
            _ => line.to_owned(),
        }
    };
    // An example takes the place of the empty list or map below it.
    let is_kept = |line: &&str| !line.ends_with(": []") && !line.ends_with(": {}");
    let text = init_text();
    let lines: Vec<_> = text.lines().filter(is_kept).map(uncomment).collect();
    let full = lines.join("\n");
    let config = Case::new(&full).load().unwrap_or_else(|error| panic!("{error}\n{full}")).config;
    assert_eq!(config.template.mounts.len(), 1, "{full}");
    assert_eq!(config.network.allow.rules().len(), 2, "{full}");
    assert!(config.languages.contains_key("python"), "{full}");
    assert!(
        config.state_dir.is_some() && config.enforcement.is_some() && config.cgroup_parent.is_some(),
        "{full}"
    );
    assert!(config.limits.cpu_time.is_some() && config.packages.gem.credentials.is_some(), "{full}");
    assert!(config.serve.tls.files().is_some() && config.serve.admin_listen.is_some(), "{full}");
    assert_eq!((config.serve.allowed_hosts.len(), config.serve.allowed_origins.len()), (1, 1), "{full}");
    assert!(config.database.url.is_some() && config.admission.memory.is_some(), "{full}");
    assert!(config.telemetry.otlp_endpoint.is_some() && config.telemetry.otlp_headers.len() == 1, "{full}");
}

#[test]
fn the_schema_knows_every_section_and_forbids_the_rest() {
    let schema: serde_json::Value = serde_json::from_str(&schema_json()).unwrap();
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["properties"]["limits"]["additionalProperties"], false);
    assert_eq!(schema["properties"]["limits"]["properties"]["memory"]["default"], "512MiB");
    assert_eq!(schema["properties"]["serve"]["properties"]["listen"]["default"], "127.0.0.1:7300");
    let defaults = serde_json::to_value(Config::default()).unwrap();
    for section in defaults.as_object().unwrap().keys() {
        assert!(schema["properties"][section]["description"].is_string(), "{section} has no description");
    }
}

#[test]
fn every_variable_is_named_once_and_explained() {
    let names: std::collections::BTreeSet<_> = variables().iter().map(|variable| variable.name).collect();
    assert_eq!(names.len(), variables().len());
    let page = environment_page();
    for variable in variables() {
        assert!(!variable.meaning.is_empty(), "{} has no meaning", variable.name);
        assert!(page.contains(&format!("| `{}` |", variable.name)), "{} is not on the page", variable.name);
    }
}
