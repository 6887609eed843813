//! Interpreters that remember.

use super::{Server, ask, json, sandbox, told, told_with_input};
use crate::support::{Place, Who, stderr, stdout};

/// The smallest picture: one pixel.
const PICTURE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

#[test]
fn a_context_remembers_and_shows() {
    let server = Server::start(Who::Root);
    let id = sandbox(&server);
    let context = told(&server, &["context", "create", &id, "--language", "python"]).trim_end().to_owned();
    let cell = |code: &str| ask(&server, &["context", "exec", &id, &context[..12], "-c", code]);
    assert_eq!(stdout(&cell("x = 40")), "");
    assert_eq!(stdout(&cell("print('said'); x + 2")), "said\n42\n");
    assert_eq!(told_with_input(&server, &["context", "exec", &id, &context, "-"], b"x * 2"), "80\n");

    let raised = cell("1 / 0");
    assert_eq!(raised.status.code(), Some(1));
    assert!(stderr(&raised).contains("ZeroDivisionError"), "{}", stderr(&raised));

    let picture = format!(
        "class P:\n  def _repr_png_(self):\n    import base64\n    return base64.b64decode('{PICTURE}')\nP()"
    );
    assert!(stdout(&cell(&picture)).contains("--save DIR keeps it"), "{}", stdout(&cell(&picture)));
    let place = Place::new();
    let folder = place.path().join("pictures");
    told(&server, &["context", "exec", &id, &context, "--save", folder.to_str().unwrap(), "-c", &picture]);
    assert!(std::fs::read(folder.join("result-1.png")).unwrap().starts_with(b"\x89PNG"));

    assert_eq!(json(&server, &["context", "list", &id])["contexts"][0]["id"], context.as_str());
    told(&server, &["context", "interrupt", &id, &context]);
    told(&server, &["context", "restart", &id, &context]);
    assert_eq!(cell("x").status.code(), Some(1), "its variables are gone");
    told(&server, &["context", "rm", &id, &context]);
    assert_eq!(told(&server, &["context", "list", &id]), "");
}

#[test]
fn runs_are_listed_and_shown() {
    let server = Server::start(Who::Root);
    let spec = serde_json::json!({ "language": "bash", "code": "echo hi" });
    let id = server.post("/v1/runs", &spec).expect(200)["id"].as_str().unwrap().to_owned();
    assert!(told(&server, &["runs", "list"]).contains(&id));
    assert_eq!(told(&server, &["runs", "list", "--running"]), "");
    let run = json(&server, &["runs", "get", &id[..11]]);
    assert_eq!((&run["result"]["stdout"], &run["language"]), (&"hi\n".into(), &"bash".into()));
    assert_eq!(json(&server, &["runs", "cancel", &id])["status"], "ok", "one that ended stays as it is");
}
