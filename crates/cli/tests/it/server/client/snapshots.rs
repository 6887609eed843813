//! Sandboxes that are saved and restored.

use serde_json::json;

use super::{Server, ask, json, sandbox, told};
use crate::server::tenants::{new_key, on_state};
use crate::support::{Who, sandstorm, stderr, stdout};

#[test]
fn a_sandbox_is_saved_listed_restored_and_removed() {
    let server = Server::start(Who::Root);
    let id = sandbox(&server);
    told(&server, &["sandbox", "exec", &id, "--", "sh", "-c", "echo then > kept"]);
    let saved = ask(&server, &["snapshot", "create", &id, "--name", "golden"]);
    assert_eq!(saved.status.code(), Some(0), "{}", stderr(&saved));
    let snapshot = stdout(&saved).trim_end().to_owned();
    assert!(snapshot.starts_with("snap_"), "{snapshot}");
    told(&server, &["sandbox", "rm", &id]);

    let listed = told(&server, &["snapshot", "list"]);
    assert!(listed.contains(&snapshot) && listed.contains("golden") && listed.contains(&id), "{listed}");
    let one = json(&server, &["snapshot", "list", "--sandbox", &id])["snapshots"][0].clone();
    assert_eq!((&one["id"], &one["name"]), (&json!(snapshot), &json!("golden")), "{one:#}");
    assert!(one["size_bytes"].as_u64().unwrap() > 0, "{one:#}");

    for given in ["golden", &snapshot[..14], &snapshot] {
        let wishes = ["snapshot", "restore", given, "--label", "of=golden", "--lifetime", "10m"];
        let new = told(&server, &wishes).trim_end().to_owned();
        assert_eq!(told(&server, &["sandbox", "exec", &new, "--", "cat", "kept"]), "then\n");
        let shown = json(&server, &["sandbox", "get", &new]);
        assert_eq!(shown["template"], json!({ "snapshot": snapshot }));
        assert_eq!((&shown["labels"]["of"], &shown["lifetime"]), (&json!("golden"), &json!(600)));
    }

    let again = sandbox(&server);
    let second = json(&server, &["snapshot", "create", &again])["id"].as_str().unwrap().to_owned();
    let removed = json(&server, &["snapshot", "rm", "golden", &second]);
    assert_eq!(removed, json!({ "removed": [snapshot, second] }));
    assert_eq!(json(&server, &["snapshot", "ls"]), json!({ "snapshots": [] }));
    for gone in ["golden", &snapshot] {
        let refused = ask(&server, &["snapshot", "restore", gone]);
        assert_ne!(refused.status.code(), Some(0), "{gone}");
        assert!(refused.stdout.is_empty() && !stderr(&refused).is_empty());
    }
    assert!(told(&server, &["sandbox", "ls", "--label", "of=golden"]).lines().count() > 3, "they live on");
}

#[test]
fn what_is_anothers_is_not_saved_and_not_restored() {
    let server = Server::start(Who::Root);
    let id = sandbox(&server);
    let snapshot = told(&server, &["snapshot", "create", &id, "--name", "golden"]).trim_end().to_owned();
    let ask_as = |key: &str, args: &[&str]| {
        let mut command = sandstorm(Who::Root);
        command
            .env("SANDSTORM_URL", format!("http://127.0.0.1:{}", server.port))
            .env("SANDSTORM_API_KEY", key);
        command.args(args).output().unwrap()
    };
    let (_, without) = new_key(&server, &["--scopes", "run,files"]);
    let (revoked_id, revoked) = new_key(&server, &[]);
    on_state(&server, &["keys", "revoke", &revoked_id]);
    on_state(&server, &["tenants", "create", "other"]);
    let (_, stranger) = new_key(&server, &["--tenant", "other"]);
    for args in [
        &["snapshot", "create", id.as_str()][..],
        &["snapshot", "restore", &snapshot],
        &["snapshot", "restore", "golden"],
        &["snapshot", "rm", &snapshot],
    ] {
        for key in [&without, &revoked, &stranger] {
            let refused = ask_as(key, args);
            assert_ne!(refused.status.code(), Some(0), "{args:?}");
            assert!(!stderr(&refused).is_empty() && !stdout(&refused).contains("snap_"), "{args:?}");
        }
    }
    for key in [&without, &revoked] {
        assert_eq!(ask_as(key, &["snapshot", "list"]).status.code(), Some(125));
    }
    assert_eq!(stdout(&ask_as(&stranger, &["snapshot", "list"])), "");
    assert!(told(&server, &["snapshot", "list"]).contains("golden"));
}
