//! Packages that are installed into a sandbox that lives.

use serde_json::{Value, json};

use super::client::ask;
use super::http::Request;
use super::instance::Server;
use super::tenants::{new_key, on_state};
use crate::dependencies::index::Index;
use crate::support::{Who, skip, stderr, stdout};

fn server(index: &Index, settings: &[(&str, &str)]) -> Server {
    Server::with(Who::Root, settings, &["--config", &index.configuration("npm")])
}

fn greeting() -> Value {
    json!({ "manager": "npm", "packages": ["greeting"] })
}

#[test]
fn a_sandbox_without_a_network_gets_packages_that_what_runs_in_it_finds() {
    let index = Index::of_npm();
    let server = server(&index, &[]);
    let sandbox = server.sandbox(&json!({ "lifetime": "1h" }));
    let id = sandbox.rsplit('/').next().unwrap();
    let contexts = format!("{sandbox}/contexts");
    let context = server.post(&contexts, &json!({ "language": "javascript" })).expect(201);
    let execute = format!("{contexts}/{}/execute", context["id"].as_str().unwrap());
    let cell = |code: &str| server.post(&execute, &json!({ "code": code })).expect(200);
    let before = cell("let kept = 41; require('greeting')");
    assert_eq!(before["status"], "error", "{before:#}");

    let installed = server.post(&format!("{sandbox}/install"), &greeting()).expect(200);
    let expected = json!({ "manager": "npm", "packages": ["greeting"], "place": "/workspace/node_modules", "programs": null });
    assert_eq!(installed, expected);
    let after = cell("require('greeting').text + ' ' + (kept + 1)");
    assert_eq!(after["results"][0]["data"]["text/plain"], "'hello from helper 42'", "{after:#}");
    let exec = |command: &str| {
        let done = server.post(&format!("{sandbox}/exec"), &json!({ "command": command })).expect(200);
        (done["stdout"].as_str().unwrap().to_owned(), done["stderr"].as_str().unwrap().to_owned())
    };
    let said = exec("node -e \"import('greeting').then(m => console.log(m.default.text))\"");
    assert_eq!(said.0, "hello from helper\n", "{said:?}");
    let said = exec("npx --no-install greet; stat -c %u node_modules/greeting/index.js");
    assert_eq!(said.0, "hello from helper\n1000\n", "{said:?}");

    // A second time nothing is asked for, and what was damaged meanwhile is as it was.
    let requests = index.requests().len();
    exec("echo 'throw 1' > node_modules/greeting/index.js");
    let again = ask(&server, &["sandbox", "install", id, "greeting", "--manager", "npm"]);
    assert_eq!(
        (again.status.code(), stdout(&again).as_str()),
        (Some(0), "/workspace/node_modules\n"),
        "{}",
        stderr(&again)
    );
    assert_eq!(exec("npx --no-install greet").0, "hello from helper\n");
    assert_eq!(index.requests().len(), requests);
    let audit = on_state(&server, &["audit", "list", "--json"]);
    assert!(audit.contains("sandbox.install"), "{audit}");
}

#[test]
fn what_cannot_be_installed_is_refused_and_leaves_nothing() {
    let index = Index::of_npm();
    let server = server(&index, &[]);
    let sandbox = server.sandbox(&json!({}));
    let install = format!("{sandbox}/install");
    for (body, status, told) in [
        (
            json!({ "manager": "npm", "packages": ["there-is-no-such-package"] }),
            400,
            "there-is-no-such-package",
        ),
        (json!({ "manager": "npm", "packages": [] }), 400, "1 to 100 packages"),
        (json!({ "manager": "maven", "packages": ["a:b:1"] }), 400, "use one of npm, pip"),
        (json!({ "manager": "../pip", "packages": ["six"] }), 400, "use one of npm, pip"),
        (json!({ "manager": "npm", "packages": ["--registry=http://x"] }), 400, "option"),
    ] {
        let refused = server.post(&install, &body).expect(status);
        assert!(refused["detail"].as_str().unwrap().contains(told), "{body}: {refused:#}");
    }
    let listed = server.get(&format!("{sandbox}/files/list?path=.")).expect(200);
    assert_eq!(listed["entries"], json!([]), "{listed:#}");
    server.post(&format!("{sandbox}/pause"), &json!({})).expect(200);
    server.post(&install, &greeting()).expect(409);
}

#[test]
fn another_tenant_a_narrow_key_and_a_revoked_key_install_nothing() {
    let index = Index::of_npm();
    let server = server(&index, &[]);
    let sandbox = server.sandbox(&json!({}));
    let install = format!("{sandbox}/install");
    on_state(&server, &["tenants", "create", "another"]);
    let (_, stranger) = new_key(&server, &["--tenant", "another"]);
    let (_, without) = new_key(&server, &["--scopes", "run,files"]);
    let (id, revoked) = new_key(&server, &[]);
    on_state(&server, &["keys", "revoke", &id]);
    for (key, status) in [(&stranger, 404), (&without, 403), (&revoked, 401)] {
        let request = Request::new("POST", install.clone()).json(&greeting());
        server.send(&request.header("authorization", &format!("Bearer {key}"))).expect(status);
    }
    assert_eq!(index.requests(), Vec::<String>::new());
}

#[test]
fn a_private_host_is_reached_only_where_the_operator_names_it() {
    let (index, files) = (Index::of_npm(), Index::of_npm());
    for archive in ["helper-1.0.0.tgz", "greeting-1.0.0.tgz"] {
        index.redirect(&format!("/{archive}"), &files.address(archive));
    }
    let host = files.address("").trim_start_matches("http://").trim_end_matches('/').to_owned();
    for (configuration, status) in
        [(index.configuration("npm"), None), (index.configuration_with("npm", &host), Some(200))]
    {
        let server = Server::with(Who::Root, &[], &["--config", &configuration]);
        let sandbox = server.sandbox(&json!({}));
        let answer = server.post(&format!("{sandbox}/install"), &greeting());
        match status {
            Some(status) => drop(answer.expect(status)),
            None => assert!(answer.status >= 400, "{}", answer.status),
        }
        assert_eq!(files.asked_for("greeting-1.0.0.tgz") > 0, status.is_some());
    }
}

#[test]
fn programs_in_the_home_are_found_by_their_names() {
    let server = Server::start(Who::Root);
    let sandbox = server.sandbox(&json!({}));
    let exec =
        |command: &str| server.post(&format!("{sandbox}/exec"), &json!({ "command": command })).expect(200);
    let made = "mkdir -p ~/.local/bin && printf '#!/bin/sh\\necho found\\n' > ~/.local/bin/mine && chmod +x ~/.local/bin/mine";
    assert_eq!(exec(made)["status"], "ok");
    assert_eq!(exec("mine")["stdout"], "found\n");
    let direct = server.post(&format!("{sandbox}/exec"), &json!({ "command": ["mine"] })).expect(200);
    assert_eq!(direct["stdout"], "found\n");
    for (language, code) in [
        ("python", "import subprocess; subprocess.run(['mine'], capture_output=True).stdout"),
        ("javascript", "require('child_process').execSync('mine').toString()"),
    ] {
        let contexts = format!("{sandbox}/contexts");
        let context = server.post(&contexts, &json!({ "language": language })).expect(201);
        let execute = format!("{contexts}/{}/execute", context["id"].as_str().unwrap());
        let cell = server.post(&execute, &json!({ "code": code })).expect(200);
        assert!(cell["results"][0]["data"]["text/plain"].as_str().unwrap().contains("found"), "{cell:#}");
    }
    let global = exec("npm config get prefix");
    assert_eq!(global["stdout"], "/home/user/.local\n", "{global:#}");
}

/// Makes a wheel of a module and a program called `mine`.
const WHEEL: &str = r"
import zipfile
with zipfile.ZipFile('mine-1.0-py3-none-any.whl', 'w') as wheel:
    info = 'mine-1.0.dist-info/'
    files = {
        'mine.py': 'def main():\n    print(7)\n',
        info + 'METADATA': 'Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n',
        info + 'WHEEL': 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
        info + 'entry_points.txt': '[console_scripts]\nmine = mine:main\n',
    }
    files[info + 'RECORD'] = ''.join(name + ',,\n' for name in [*files, info + 'RECORD'])
    for name, text in files.items():
        wheel.writestr(name, text)
";

#[test]
fn pip_in_a_sandbox_installs_into_the_home() {
    let wheels = std::fs::read_dir("/usr/share/python-wheels").into_iter().flatten().flatten();
    let mut names = wheels.filter_map(|entry| entry.file_name().into_string().ok());
    let Some(pip) = names.find(|name| name.starts_with("pip-")) else {
        return skip("this machine has no pip for virtual environments (python3-venv)");
    };
    let server = Server::start(Who::Root);
    let sandbox = server.sandbox(&json!({}));
    let contexts = format!("{sandbox}/contexts");
    let context = server.post(&contexts, &json!({ "language": "python" })).expect(201);
    let execute = format!("{contexts}/{}/execute", context["id"].as_str().unwrap());
    let cell = |code: &str| server.post(&execute, &json!({ "code": code })).expect(200);
    assert_eq!(cell("import mine")["status"], "error");
    let exec = |body: &Value| server.post(&format!("{sandbox}/exec"), body).expect(200);
    let made = exec(&json!({ "language": "python", "code": WHEEL }));
    assert_eq!(made["status"], "ok", "{made:#}");
    let install = format!(
        "python3 /usr/share/python-wheels/{pip}/pip install --no-index --quiet ./mine-1.0-py3-none-any.whl"
    );
    let installed = exec(&json!({ "command": install }));
    assert_eq!(installed["status"], "ok", "{installed:#}");
    let after = cell("import mine; mine.__file__");
    let file = after["results"][0]["data"]["text/plain"].as_str().unwrap_or_else(|| panic!("{after:#}"));
    assert!(file.starts_with("'/home/user/.local/lib/python3."), "{file}");
    assert_eq!(exec(&json!({ "command": "mine" }))["stdout"], "7\n");
    let run = exec(&json!({ "language": "python", "code": "import mine; mine.main()" }));
    assert_eq!(run["stdout"], "7\n", "{run:#}");
}
