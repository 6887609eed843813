//! What a server's refusals and its programs' ends say, word by word.

use super::{Server, ask, sandbox, told};
use crate::support::{Who, stderr};

#[test]
fn a_program_that_cannot_start_is_named_with_what_to_do() {
    let server = Server::start(Who::Root);
    let id = sandbox(&server);
    let missing = ask(&server, &["sandbox", "exec", &id, "--", "nothing"]);
    assert_eq!(
        (missing.status.code(), stderr(&missing).as_str()),
        (
            Some(127),
            "sandstorm: cannot execute `nothing`: no folder of PATH has it; install it, or give its path\n"
        )
    );
    let folder = ask(&server, &["sandbox", "exec", &id, "--", "/etc"]);
    assert_eq!(
        stderr(&folder),
        "sandstorm: cannot execute `/etc`: it is not a file that may be executed; `chmod +x` makes it one\n"
    );
    let nowhere = ask(&server, &["sandbox", "exec", &id, "--cwd", "/nope", "--", "ls"]);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(
        stderr(&nowhere)
            .starts_with("error: cannot start `ls` in the folder /nope: make it first, or name another"),
        "{}",
        stderr(&nowhere)
    );
}

#[test]
fn an_end_at_a_limit_has_its_figure_and_what_raises_it() {
    let server = Server::start(Who::Root);
    let id = told(&server, &["sandbox", "create", "--memory", "64M"]).trim_end().to_owned();
    let slow = ask(&server, &["sandbox", "exec", &id, "--timeout", "1s", "--", "sleep", "60"]);
    assert_eq!(slow.status.code(), Some(124));
    assert_eq!(stderr(&slow), "sandstorm: ended after its time limit of 1s; raise it with --timeout\n");
    let context = told(&server, &["context", "create", &id, "-l", "python"]).trim_end().to_owned();
    let slow = ask(
        &server,
        &["context", "exec", &id, &context, "--timeout", "1s", "-c", "import time; time.sleep(60)"],
    );
    assert_eq!(slow.status.code(), Some(124));
    assert!(
        stderr(&slow).ends_with("sandstorm: ended after its time limit of 1s; raise it with --timeout\n"),
        "{}",
        stderr(&slow)
    );
}

#[test]
fn a_paused_sandbox_says_how_it_goes_on() {
    let server = Server::start(Who::Root);
    let id = sandbox(&server);
    told(&server, &["sandbox", "pause", &id]);
    for args in [&["sandbox", "exec", &id, "--", "true"][..], &["files", "ls", &id]] {
        let refused = ask(&server, args);
        let start = format!(
            "error: the sandbox is paused and nothing in it runs; resume it with `sandstorm sandbox resume {id}` or POST \
             /v1/sandboxes/{id}/resume (request "
        );
        assert!(stderr(&refused).starts_with(&start), "{args:?}: {}", stderr(&refused));
    }
}
