//! Mounts that are made on the host while a sandbox lives, and those of the sandbox itself.

use std::process::Command;

use crate::support::{Place, Who, sandstorm, skip};

/// Runs in a mount namespace of its own whose mounts are shared, as those of most hosts are.
const STAGE: &str = r#"
mount --make-rshared /
before=$(wc -l < /proc/self/mountinfo)
mkfifo "$PLACE/in"
"$@" < "$PLACE/in" > "$PLACE/out" 2>&1 &
exec 9> "$PLACE/in"
for i in $(seq 3000); do grep -qs ready "$PLACE/out" && break; sleep 0.02; done
grep -q ready "$PLACE/out" || { cat "$PLACE/out"; exit 1; }
echo "host: $(( $(wc -l < /proc/self/mountinfo) - before ))"
mount -t tmpfs late /usr/src && echo mark > /usr/src/late
echo go >&9; exec 9>&-
wait
cat "$PLACE/out"
"#;

#[test]
fn later_mounts_travel_neither_way() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can mount on the host");
    }
    for who in Who::all() {
        let place = Place::new();
        let guest =
            "echo ready; read go; ls /usr/src | grep late; grep -c late /proc/self/mountinfo; echo end";
        let inner = {
            let mut command = sandstorm(who);
            command.args(["run", "-l", "bash", "-c", guest]);
            command
        };
        let mut stage = Command::new("unshare");
        stage.args(["--mount", "--propagation", "unchanged", "bash", "-c", STAGE, "bash"]);
        stage.arg(inner.get_program()).args(inner.get_args()).env_clear().env("PLACE", place.path());
        stage.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = stage.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "host: 0\nready\n0\nend\n", "{who:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
