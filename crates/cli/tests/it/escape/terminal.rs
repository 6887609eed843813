//! The terminal of whoever started the sandbox.

use std::process::Command;

use super::{attack_command, canaries::Canaries, held, withstands};
use crate::support::Who;

#[test]
fn nothing_is_typed_into_the_terminal_of_the_caller() {
    withstands("terminal", |_| Vec::new());
    for who in Who::all() {
        let canaries = Canaries::plant(who);
        let attack = attack_command(who, "terminal", &[], canaries.mark());
        // An interactive shell on a terminal of its own starts the attack, then shows what was typed meanwhile.
        let mut words = vec![attack.get_program().to_str().unwrap().to_owned()];
        words.extend(attack.get_args().map(|word| word.to_str().unwrap().to_owned()));
        let quoted: Vec<String> =
            words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
        let line = format!(
            "{} < /dev/tty; code=$?; read -t 0.5 -n 100 typed; echo \"typed:[$typed] code:$code\"",
            quoted.join(" ")
        );
        let mut shell = Command::new("script");
        shell
            .args(["--quiet", "--return", "--command", &format!("bash -c {}", quote(&line)), "/dev/null"])
            .env_clear();
        shell
            .envs(attack.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .env("SHELL", "/bin/bash");
        let mut output = shell.stdin(std::process::Stdio::null()).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout).replace('\r', "").replace("^D\u{8}\u{8}", "");
        let (attacked, typed) = shown.trim_end().rsplit_once('\n').unwrap();
        assert_eq!(typed, "typed:[] code:0", "{who:?}: {shown}");
        output.stdout = attacked.as_bytes().to_vec();
        held(who, "terminal", &output, &canaries);
    }
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
