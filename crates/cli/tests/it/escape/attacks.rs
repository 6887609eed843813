//! The programs in `tests/escape`, one test each.

use std::io::Write;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Command;

use super::canaries::Canaries;
use super::{attack_command, held, unique, withstands};
use crate::support::{Place, Who, binary, example, run, sandstorm, stderr, stdout};

#[test]
fn files_of_the_host_are_out_of_reach() {
    withstands("host_files", Canaries::paths);
}

#[test]
fn proc_shows_nobody_else_and_changes_nothing() {
    withstands("proc", |_| Vec::new());
}

#[test]
fn nothing_can_be_mounted() {
    withstands("mounts", |_| Vec::new());
}

#[test]
fn no_namespace_can_be_made_or_joined() {
    withstands("namespaces", |_| Vec::new());
}

#[test]
fn no_privilege_can_be_gained() {
    withstands("privileges", |_| Vec::new());
}

#[test]
fn no_process_can_be_traced() {
    withstands("tracing", |_| Vec::new());
}

#[test]
fn doors_into_the_kernel_are_shut() {
    withstands("kernel", |_| Vec::new());
}

#[test]
fn keys_do_not_exist() {
    withstands("keys", |_| Vec::new());
}

#[test]
fn control_groups_are_out_of_sight() {
    withstands("cgroups", |_| Vec::new());
}

#[test]
fn devices_are_the_listed_ones() {
    withstands("devices", |_| Vec::new());
}

#[test]
fn a_neighbour_leaves_nothing_to_find() {
    withstands("prey", |_| Vec::new());
}

#[test]
fn signals_reach_nobody_outside() {
    withstands("signals", |_| Vec::new());
    for who in Who::all() {
        // Everybody but the sender dies, the shell that the run is about among them.
        let output = run(who, &["run", "-l", "bash", "-c", "(kill -STOP -1; kill -KILL -1)"]);
        assert_eq!(output.status.code(), Some(137), "{who:?}: {}", stderr(&output));
        // Everybody stands still: only the clock can end this.
        let stop = "setsid bash -c 'kill -STOP -1' & sleep 60";
        let output = run(who, &["run", "--timeout", "1s", "-l", "bash", "-c", stop]);
        assert_eq!(output.status.code(), Some(124), "{who:?}: {}", stderr(&output));
        let output = run(who, &["run", "-l", "bash", "-c", "echo fine"]);
        assert_eq!(stdout(&output), "fine\n", "{who:?}: {}", stderr(&output));
    }
}

#[test]
fn sockets_of_the_host_are_out_of_reach() {
    for who in Who::all() {
        let canaries = Canaries::plant(who);
        let place = Place::new();
        let path = place.path().join("socket");
        let name = unique();
        let answer = canaries.mark().to_owned();
        let by_path = UnixListener::bind(&path).unwrap();
        let by_name = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let by_port = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = by_port.local_addr().unwrap().port();
        // Whoever gets through is told the mark.
        for listener in [by_path, by_name] {
            let answer = answer.clone();
            std::thread::spawn(move || {
                listener.incoming().flatten().try_for_each(|mut c| c.write_all(answer.as_bytes()))
            });
        }
        std::thread::spawn(move || {
            by_port.incoming().flatten().try_for_each(|mut c| c.write_all(answer.as_bytes()))
        });
        let arguments = [name, path.display().to_string(), port.to_string()];
        let output = attack_command(who, "sockets", &arguments, canaries.mark()).output().unwrap();
        held(who, "sockets", &output, &canaries);
    }
}

#[test]
fn nothing_is_inherited() {
    withstands("descriptors", |_| Vec::new());
    // The same with descriptors that whoever started the binary forgot to close.
    for who in Who::all() {
        let canaries = Canaries::plant(who);
        let attack = attack_command(who, "descriptors", &[], canaries.mark());
        let mut leaky = Command::new("bash");
        leaky.args(["-c", "exec 3</ 4</etc/passwd 9</tmp 77<>/dev/null; exec \"$@\"", "bash"]);
        leaky.arg(attack.get_program()).args(attack.get_args()).env_clear();
        leaky.envs(attack.get_envs().filter_map(|(name, value)| Some((name, value?))));
        held(who, "descriptors", &leaky.output().unwrap(), &canaries);
    }
}

#[test]
fn the_init_program_cannot_be_rewritten() {
    let before = std::fs::read(binary()).unwrap();
    withstands("init_program", |_| Vec::new());
    assert!(std::fs::read(binary()).unwrap() == before, "the binary on the host was changed");
}

/// The real filter, asked for every system call number and every argument variant.
#[test]
fn the_filter_answers_as_its_table_says() {
    let prober = example("sandstorm-jail", "syscall_prober");
    let put_in = format!("{}:prober", prober.display());
    for who in Who::all() {
        for variants in ["", "--variants"] {
            let script = format!("chmod +x prober && ./prober {variants} --check payload");
            let output = sandstorm(who)
                .args(["run", "--timeout", "5m", "--file", &put_in, "-l", "bash", "-c", &script])
                .output()
                .unwrap();
            assert!(output.status.success(), "{who:?} {variants}: {}{}", stdout(&output), stderr(&output));
        }
    }
}
