//! Packages of the real indexes, used by programs; and one index of our own, to look at who asks for what.

pub(crate) mod index;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::support::{Place, Who, binary, sandstorm, silent_port, stderr, stdout};
use index::Index;

/// A state directory that sandboxes can pass through to the layers in it. Not below `/tmp`, where the root of a jail is
/// put together.
#[derive(Debug)]
struct State(tempfile::TempDir);

impl State {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

/// The binary with its state in a folder of the test.
fn run(state: &State, args: &[&str]) -> Output {
    command(state).args(args).output().unwrap()
}

/// The same with a package of a real index. Those are not ours: one that cannot be reached for a moment, which is what this
/// exit code means, is asked again.
fn run_with_index(state: &State, args: &[&str]) -> Output {
    for wait in [5, 20] {
        let output = run(state, args);
        if output.status.code() != Some(125) {
            return output;
        }
        std::thread::sleep(Duration::from_secs(wait));
    }
    run(state, args)
}

fn command(state: &State) -> Command {
    let mut command = sandstorm(Who::Root);
    command.env("SANDSTORM_STATE_DIR", state.path()).arg("run");
    command
}

#[track_caller]
fn prints(output: &Output, expected: &str) {
    assert!(output.status.success(), "{}{}", stdout(output), stderr(output));
    assert_eq!(stdout(output).trim(), expected, "{}", stderr(output));
}

#[test]
fn numpy_is_installed_once_and_then_used_without_any_network() {
    let state = State::new();
    let code = "import numpy; print(numpy.__version__, int(numpy.arange(10).sum()))";
    let args = ["-l", "python", "-r", "numpy==2.1.0", "-c", code];
    prints(&run_with_index(&state, &args), "2.1.0 45");
    // A namespace without any device: nothing could be asked for if anything were.
    let mut offline = Command::new("unshare");
    offline.args(["--net", "--"]).arg(binary()).arg("run").args(args).env_clear();
    offline.env("SANDSTORM_STATE_DIR", state.path()).env("HOME", "/nonexistent").env("PATH", "/usr/bin:/bin");
    prints(&offline.output().unwrap(), "2.1.0 45");
}

#[test]
fn a_program_with_packages_has_no_network_of_its_own() {
    let state = State::new();
    let code = "import six, socket\ntry:\n  socket.create_connection(('192.0.2.1', 443), 3)\nexcept OSError as e:\n  print(type(six).__name__, e.errno)";
    prints(&run_with_index(&state, &["-l", "python", "-r", "six==1.16.0", "-c", code]), "module 101");
}

#[test]
fn a_layer_cannot_be_written_to() {
    let state = State::new();
    let code = "import six\ntry:\n  open(six.__file__, 'a')\nexcept OSError as e:\n  print(e.errno)";
    let output = run_with_index(&state, &["-l", "python", "-r", "six==1.16.0", "-c", code]);
    assert!(["13", "30"].contains(&stdout(&output).trim()), "{}{}", stdout(&output), stderr(&output));
}

#[test]
fn a_package_that_does_not_exist_is_the_callers_mistake() {
    let state = State::new();
    let missing = "sandstorm-there-is-no-such-package";
    for language in ["python", "javascript"] {
        let output = run_with_index(&state, &["-l", language, "-r", missing, "-c", "print(1)"]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(missing), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn a_language_without_packages_says_so() {
    let output = run(&State::new(), &["-l", "bash", "-r", "x", "-c", "echo 1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no package manager"), "{}", stderr(&output));
}

#[test]
fn npm_packages_are_found_by_require_and_by_import() {
    let state = State::new();
    let package = ["-l", "javascript", "-r", "lodash@4.17.21", "-c"];
    let with = |code: &'static str| [&package[..], &[code]].concat();
    prints(&run_with_index(&state, &with("console.log(require('lodash').chunk([1, 2, 3], 2).length)")), "2");
    prints(
        &run_with_index(&state, &with("import _ from 'lodash'; console.log(_.chunk([1, 2, 3], 2).length)")),
        "2",
    );
}

#[test]
fn crates_are_compiled_into_a_program() {
    let code = "fn main() { println!(\"{}\", itoa::Buffer::new().format(42)); }";
    prints(&run_with_index(&State::new(), &["-l", "rust", "-r", "itoa@=1.0.11", "-c", code]), "42");
}

#[test]
fn go_modules_are_compiled_into_a_program() {
    let code = "package main\nimport (\"fmt\"; \"github.com/google/uuid\")\n\
                func main() { fmt.Println(uuid.Nil.String()[:8]) }";
    prints(
        &run_with_index(&State::new(), &["-l", "go", "-r", "github.com/google/uuid@v1.6.0", "-c", code]),
        "00000000",
    );
}

#[test]
fn jars_are_on_the_class_path_of_compiler_and_program() {
    let code = "import org.apache.commons.lang3.StringUtils;\npublic class Main {\n  \
                public static void main(String[] args) { System.out.println(StringUtils.reverse(\"abc\")); }\n}";
    let package = "org.apache.commons:commons-lang3:3.14.0";
    prints(&run_with_index(&State::new(), &["-l", "java", "-r", package, "-c", code]), "cba");
}

const GREET: [&str; 6] = ["-l", "ruby", "-r", "greeting", "-c", "require 'greeting'; puts Greeting.text"];

#[test]
fn gems_come_from_the_index_that_is_configured() {
    let (state, index) = (State::new(), Index::start());
    let config = index.configuration("gem");
    let args = [&["--config", &config], &GREET[..]].concat();
    prints(&run(&state, &args), "hello from helper");
    assert!(index.asked_for("greeting-1.0.0.gem") > 0 && index.asked_for("helper-0.2.0.gem") > 0);
}

#[test]
fn credentials_reach_the_index_and_stay_out_of_what_is_kept_and_said() {
    let (state, index, place) = (State::new(), Index::start(), Place::new());
    // base64 of `robot:swordfish`
    index.protect("Basic cm9ib3Q6c3dvcmRmaXNo");
    let secret = place.write("secret", "robot:swordfish\n");
    let config = |name: &str, credentials: &str| {
        let text = format!("packages:\n  gem:\n    index: {}\n{credentials}", index.address(""));
        place.write(name, text).to_str().unwrap().to_owned()
    };
    let without = config("without.yaml", "");
    let refused = run(&state, &[&["--config", &without], &GREET[..]].concat());
    assert!(!refused.status.success(), "the index is not protected");
    let with = config("with.yaml", &format!("    credentials: file:{}\n", secret.display()));
    prints(&run(&state, &[&["--config", &with], &GREET[..]].concat()), "hello from helper");
    let failed =
        run(&state, &["--config", &with, "-l", "ruby", "-r", "there-is-no-such-gem", "-c", "puts 1"]);
    assert!(!failed.status.success() && !stderr(&failed).contains("swordfish"), "{}", stderr(&failed));
    let found = Command::new("grep").args(["-rl", "swordfish"]).arg(state.path()).output().unwrap();
    assert_eq!(stdout(&found), "", "the credentials are kept");
}

/// Takes the layers away and leaves what was resolved.
fn forget_layers(state: &State, manager: &str) {
    for entry in std::fs::read_dir(state.path().join("layers").join(manager)).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap();
        }
    }
}

#[test]
fn a_layer_that_was_removed_is_made_again_from_what_was_resolved() {
    let (state, index) = (State::new(), Index::start());
    let config = index.configuration("gem");
    let args = [&["--config", &config], &GREET[..]].concat();
    prints(&run(&state, &args), "hello from helper");
    forget_layers(&state, "gem");
    prints(&run(&state, &args), "hello from helper");
    let state = State::new();
    let six = ["-l", "python", "-r", "six==1.16.0", "-c", "import six; print(six.__version__)"];
    prints(&run_with_index(&state, &six), "1.16.0");
    forget_layers(&state, "pip");
    prints(&run_with_index(&state, &six), "1.16.0");
}

#[test]
fn a_package_that_changed_since_it_was_resolved_is_refused() {
    let (state, index) = (State::new(), Index::start());
    let config = index.configuration("gem");
    let args = [&["--config", &config], &GREET[..]].concat();
    prints(&run(&state, &args), "hello from helper");
    forget_layers(&state, "gem");
    index.replace("gems/helper-0.2.0.gem", "gems/greeting-1.0.0.gem");
    let output = run(&state, &args);
    assert_eq!(output.status.code(), Some(2), "{}{}", stdout(&output), stderr(&output));
    assert!(stderr(&output).contains("helper-0.2.0.gem"), "{}", stderr(&output));
}

#[test]
fn two_runs_at_once_make_one_layer() {
    let (state, index) = (State::new(), Index::start());
    let config = index.configuration("gem");
    let start = || {
        let mut command = command(&state);
        command.args(["--config", &config]).args(GREET);
        std::thread::spawn(move || command.output().unwrap())
    };
    let runs = [start(), start(), start()];
    for run in runs {
        prints(&run.join().unwrap(), "hello from helper");
    }
    assert_eq!(index.asked_for("greeting-1.0.0.gem"), 1, "{:?}", index.requests());
    let kept = std::fs::read_dir(state.path().join("layers/gem")).unwrap().map(|entry| entry.unwrap().path());
    assert_eq!(kept.filter(|path| path.is_dir()).count(), 1);
}

#[test]
fn a_build_reaches_the_index_and_nothing_else() {
    let (state, index, other) = (State::new(), Index::start(), Index::start());
    index.redirect("/gems/greeting-1.0.0.gem", &other.address("gems/greeting-1.0.0.gem"));
    let config = index.configuration("gem");
    let output = run(&state, &[&["--config", &config], &GREET[..]].concat());
    assert!(!output.status.success(), "{}", stdout(&output));
    assert!(index.asked_for("greeting-1.0.0.gem") > 0, "the gem was not asked for: {}", stderr(&output));
    assert!(
        stderr(&output).contains(&format!(":{}", other.port())),
        "the redirect was not followed: {}",
        stderr(&output)
    );
    assert_eq!(other.requests(), [] as [String; 0], "a host that is not the index was reached");
    // The other one does answer whoever may ask: the same gems, configured as the index.
    let (state, config) = (State::new(), other.configuration("gem"));
    prints(&run(&state, &[&["--config", &config], &GREET[..]].concat()), "hello from helper");
}

#[test]
fn an_index_that_is_down_is_not_the_callers_mistake() {
    let state = State::new();
    let place = Place::new();
    let (_taken, port) = silent_port();
    let address = index::address(port, "");
    let config = place.write("down.yaml", format!("packages:\n  gem:\n    index: {address}\n"));
    let config = config.to_str().unwrap();
    let output = run(&state, &[&["--config", config], &GREET[..]].concat());
    assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
    assert!(stderr(&output).contains("index of gem cannot be reached"), "{}", stderr(&output));
}

#[test]
fn gems_that_would_run_code_are_refused() {
    let (state, index) = (State::new(), Index::start());
    let config = index.configuration("gem");
    let output = run(&state, &["--config", &config, "-l", "ruby", "-r", "native", "-c", "puts 1"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("extension"), "{}", stderr(&output));
}

#[test]
fn an_index_on_the_loopback_address_is_explained() {
    let state = State::new();
    let place = Place::new();
    let config = place.write("own.yaml", "packages:\n  gem:\n    index: http://127.0.0.1:9/\n");
    let output = run(&state, &[&["--config", config.to_str().unwrap()], &GREET[..]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("loopback"), "{}", stderr(&output));
}
