use serde_json::json;

use super::*;
use crate::settings::McpSettings;
use crate::tools::Tools;

const NAMES: [&str; 20] = [
    "create_sandbox",
    "list_sandboxes",
    "terminate_sandbox",
    "exec_command",
    "run_code",
    "upload_file",
    "download_file",
    "list_files",
    "read_file",
    "write_file",
    "run_python",
    "run_javascript",
    "run_typescript",
    "run_go",
    "run_rust",
    "run_java",
    "run_cpp",
    "run_csharp",
    "run_shell",
    "run_generic",
];

fn property<'a>(entry: &'a Entry, name: &str) -> &'a Value {
    entry.described.input_schema["properties"].get(name).unwrap_or(&Value::Null)
}

#[test]
fn all_twenty_are_there_under_their_names() {
    let entries = entries();
    let names: Vec<_> = entries.iter().map(|entry| entry.described.name.as_ref()).collect();
    assert_eq!(names, NAMES);
}

#[test]
fn one_run_code_serves_both_and_the_core_has_its_own_without_this_set() {
    let with = Tools::enabled(&McpSettings { toolsets: [SET].into(), ..McpSettings::default() });
    let described = with.describe();
    let tools: Vec<_> = described.iter().filter(|tool| tool.name == "run_code").collect();
    assert_eq!(tools.len(), 1);
    let schema = &tools[0].input_schema;
    for name in ["sandbox_id", "working_dir", "timeout", "timeout_s", "keep", "context_id"] {
        assert!(schema["properties"].get(name).is_some(), "{name}");
    }
    assert_eq!(schema["required"], json!(["code"]));
    assert_eq!(
        schema["properties"]["language"].get("default"),
        None,
        "python for one, guessed for the other"
    );
    let answer = tools[0].output_schema.as_ref().unwrap();
    assert!(answer["properties"].get("exit_code").is_some() && answer["properties"].get("results").is_some());
    assert_eq!(answer.get("required"), None);
    let without = Tools::enabled(&McpSettings::default());
    assert!(
        without.get("run_code").unwrap().described.input_schema["properties"].get("working_dir").is_none()
    );
}

#[test]
fn a_call_of_run_code_goes_to_whom_it_is_for() {
    let core = |arguments: Value| is_core_call(arguments.as_object().unwrap());
    assert!(core(json!({ "code": "1" })));
    assert!(core(json!({ "code": "1", "sandbox_id": "" })));
    assert!(core(json!({ "code": "1", "sandbox_id": "sbx_x", "context_id": "ctx_x" })));
    assert!(core(json!({ "code": "1", "sandbox_id": "sbx_x", "timeout_s": 3 })));
    assert!(!core(json!({ "code": "1", "sandbox_id": "sbx_x" })));
    assert!(!core(
        json!({ "code": "1", "sandbox_id": "sbx_x", "language": "go", "working_dir": "/tmp", "timeout": 3 })
    ));
}

#[test]
fn every_language_has_its_options_and_its_time() {
    let entries = entries();
    let entry = |name: &str| entries.iter().find(|entry| entry.described.name == name).unwrap();
    for (name, seconds, option) in [
        ("run_python", 60.0, "python_cmd"),
        ("run_javascript", 30.0, "node_version"),
        ("run_typescript", 45.0, "target"),
        ("run_go", 30.0, "build_flags"),
        ("run_rust", 120.0, "edition"),
        ("run_java", 60.0, "main_class"),
        ("run_cpp", 45.0, "std"),
        ("run_csharp", 45.0, "framework"),
        ("run_shell", 30.0, "set_flags"),
    ] {
        let entry = entry(name);
        assert_eq!(property(entry, "timeout")["default"], seconds, "{name}");
        assert!(property(entry, "options")["properties"].get(option).is_some(), "{name}");
        assert!(property(entry, "language").is_null(), "{name}");
        assert_eq!(entry.described.input_schema["required"], json!(["sandbox_id", "code"]), "{name}");
    }
    assert_eq!(property(entry("run_generic"), "language")["enum"].as_array().unwrap().len(), 9);
}

#[test]
fn defaults_are_those_that_users_know() {
    let entries = entries();
    let entry = |name: &str| entries.iter().find(|entry| entry.described.name == name).unwrap();
    for (tool, name, default) in [
        ("create_sandbox", "network_mode", json!("none")),
        ("create_sandbox", "workspace_dir", json!("/workspace")),
        ("exec_command", "timeout", json!(30.0)),
        ("exec_command", "working_dir", json!("/workspace")),
        ("upload_file", "encoding", json!("utf8")),
        ("upload_file", "mode", json!("0644")),
        ("upload_file", "create_backup", json!(true)),
        ("upload_file", "force_overwrite", json!(false)),
        ("upload_file", "validate_checksum", json!(true)),
        ("list_files", "path", json!("/workspace")),
        ("list_files", "recursive", json!(false)),
        ("read_file", "max_size", json!(1_048_576)),
    ] {
        assert_eq!(property(entry(tool), name)["default"], default, "{tool} {name}");
    }
}

#[test]
fn timeouts_have_bounds() {
    assert!(timeout(1.0).is_ok() && timeout(300.0).is_ok());
    for wrong in [0.0, 0.5, 300.5, -1.0, f64::NAN, f64::INFINITY] {
        assert!(timeout(wrong).is_err(), "{wrong}");
    }
}
