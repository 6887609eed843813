//! What breaks, and what does not break with it.

use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use rustix::process::{Pid, Signal};
use sandstorm_provider::{CreateOptions, HostMount, Provider, ProviderEvent};
use sandstorm_types::{Enforcement, ErrorKind, SandboxId, SandboxSpec, State};

use crate::Case;
use crate::place::{Host, PATIENCE, Place, eventually, kill, life, until};

pub(crate) const CASES: &[Case] = &[
    ("a_dead_agent_takes_one_sandbox_with_it", a_dead_agent_takes_one_sandbox_with_it),
    ("a_dead_launcher_is_replaced_and_leaves_nothing", a_dead_launcher_is_replaced_and_leaves_nothing),
    ("a_lost_connection_leaves_no_strangers", a_lost_connection_leaves_no_strangers),
    ("orphans_end_and_so_does_their_launcher", orphans_end_and_so_does_their_launcher),
    ("trees_that_are_not_ours_are_refused", trees_that_are_not_ours_are_refused),
    ("trees_of_the_servers_user_are_shown", trees_of_the_servers_user_are_shown),
    ("strangers_and_garbage_do_not_disturb", strangers_and_garbage_do_not_disturb),
    ("what_another_version_left_is_told", what_another_version_left_is_told),
];

async fn next_end(events: &mut (impl StreamExt<Item = ProviderEvent> + Unpin)) -> SandboxId {
    match tokio::time::timeout(PATIENCE, events.next()).await {
        Ok(Some(ProviderEvent::Ended { sandbox, .. })) => sandbox,
        other => panic!("there is {other:?} instead of an end"),
    }
}

pub(crate) fn is_first(pid: &Pid) -> bool {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
    let inside = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    inside.is_some_and(|pids| pids.split_whitespace().last() == Some("1"))
}

fn a_dead_agent_takes_one_sandbox_with_it(place: &Place) {
    place.live(life!(|host| {
        if !host.groups {
            return;
        }
        let (doomed, other) = (host.sandbox().await, host.sandbox().await);
        let exec = host.background(&doomed, "sleep 1000").await;
        let mut events = host.provider.events();
        let first = host.processes(&doomed).into_iter().find(is_first).expect("control groups to find it by");
        rustix::process::kill_process(first, Signal::KILL).unwrap();
        assert_eq!(next_end(&mut events).await, doomed);
        let state = host.provider.get(&host.cx, &doomed).await.unwrap().state;
        assert!(matches!(state, State::Failed { .. }), "{state:?}");
        assert_eq!(host.whole(&exec).await.end.cause, sandstorm_provider::EndCause::Sandbox);
        assert_eq!(host.output(&other, "echo lives").await, "lives\n");
        host.provider.destroy(&host.cx, &doomed).await.unwrap();
    }));
}

fn a_dead_launcher_is_replaced_and_leaves_nothing(place: &Place) {
    place.live(life!(|host| {
        let sandboxes = [host.sandbox().await, host.sandbox().await, host.sandbox().await];
        for sandbox in &sandboxes {
            host.background(sandbox, "sleep 1000 & sleep 1000").await;
        }
        let mut events = host.provider.events();
        rustix::process::kill_process(Pid::from_raw(host.launcher as i32).unwrap(), Signal::KILL).unwrap();
        let mut ended =
            [next_end(&mut events).await, next_end(&mut events).await, next_end(&mut events).await];
        ended.sort();
        let mut wanted = sandboxes;
        wanted.sort();
        assert_eq!(ended, wanted);
        let again = replaced(host).await;
        assert_eq!(host.output(&again, "echo new").await, "new\n");
        for sandbox in &sandboxes {
            // What was killed may take a moment to be collected.
            until("no process is left", || host.processes(sandbox).is_empty()).await;
            until("no control group is left", || groups(sandbox).is_empty()).await;
            host.provider.destroy(&host.cx, sandbox).await.unwrap();
        }
    }));
}

/// The launcher gives up on a host that does not read; the host fails what it had, and what still lives of that must end.
fn a_lost_connection_leaves_no_strangers(place: &Place) {
    place.live(life!(|host| {
        let kept = host.sandbox().await;
        let spec = SandboxSpec { enforcement: Enforcement::BestEffort, ..SandboxSpec::default() };
        let options = CreateOptions { ephemeral: true, ..CreateOptions::default() };
        let one_shot = host.provider.create(&host.cx, &spec, options).await.unwrap().id;
        let mut events = host.provider.events();
        // As if the launcher had closed it: the same launcher is there when the host comes back.
        rustix::net::shutdown(&host.connection, rustix::net::Shutdown::Both).unwrap();
        let mut ended = [next_end(&mut events).await, next_end(&mut events).await];
        ended.sort();
        let mut wanted = [kept, one_shot];
        wanted.sort();
        assert_eq!(ended, wanted);
        let again = replaced(host).await;
        assert_eq!(host.output(&again, "echo new").await, "new\n");
        until("no sandbox lives that nobody knows", || wanted.iter().all(|id| groups(id).is_empty())).await;
        // What is known already is not taken over again.
        assert_eq!(host.provider.adopt().await.unwrap(), []);
        assert_eq!(host.output(&again, "echo lives").await, "lives\n");
    }));
}

fn orphans_end_and_so_does_their_launcher(place: &Place) {
    place.orphan_after.set(Duration::from_secs(3));
    let host = place.fork_host(life!(|host| {
        let sandbox = host.sandbox().await;
        host.background(&sandbox, "sleep 1000").await;
        host.tell("launcher", host.launcher);
        host.tell("sandbox", sandbox);
    }));
    let sandbox: SandboxId = place.note("sandbox").parse().unwrap();
    let launcher = place.note("launcher");
    kill(host);
    std::thread::sleep(Duration::from_millis(300));
    assert!(Path::new(&format!("/proc/{launcher}")).exists(), "it did not wait for a host");
    eventually("the launcher gives up its place", || !place.path("launcher.sock").exists());
    eventually("the launcher ends", || !Path::new(&format!("/proc/{launcher}")).exists());
    assert_eq!(groups(&sandbox), Vec::<String>::new());
}

/// Makes a sandbox as soon as there is a launcher again; until then the answer says when to ask again.
async fn replaced(host: &Host) -> SandboxId {
    let spec = SandboxSpec { enforcement: Enforcement::BestEffort, ..SandboxSpec::default() };
    let give_up = Instant::now() + PATIENCE;
    loop {
        match host.provider.create(&host.cx, &spec, CreateOptions::default()).await {
            Ok(sandbox) => return sandbox.id,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Capacity, "{error:?}");
                assert!(error.retry_after().is_some(), "{error:?}");
                assert!(Instant::now() < give_up, "there is no new launcher");
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Control groups that are named like a sandbox.
pub(crate) fn groups(sandbox: &SandboxId) -> Vec<String> {
    fn look(dir: &Path, depth: u32, name: &str, found: &mut Vec<String>) {
        let Ok(entries) = std::fs::read_dir(dir) else { return };
        for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            if entry.file_name().to_string_lossy() == name {
                found.push(entry.path().display().to_string());
            } else if depth > 0 {
                look(&entry.path(), depth - 1, name, found);
            }
        }
    }
    let mut found = Vec::new();
    look(Path::new("/sys/fs/cgroup"), 3, &sandbox.bare(), &mut found);
    found
}

fn trees_that_are_not_ours_are_refused(place: &Place) {
    let layers = place.path("layers");
    std::fs::create_dir_all(layers.join("good")).unwrap();
    std::fs::write(layers.join("good/file"), "shown").unwrap();
    std::os::unix::fs::symlink("/root", layers.join("sly")).unwrap();
    std::fs::create_dir_all(place.path("notes")).unwrap();
    std::fs::write(place.path("notes/layers"), layers.display().to_string()).unwrap();
    place.live(life!(|host| {
        let layers = Path::new(&host.told("layers")).to_owned();
        let spec = SandboxSpec { enforcement: Enforcement::BestEffort, ..SandboxSpec::default() };
        let with = |source: &Path| CreateOptions {
            mounts: vec![HostMount { source: source.to_owned(), target: "/opt/layer".into() }],
            ..CreateOptions::default()
        };
        let good = host.provider.create(&host.cx, &spec, with(&layers.join("good"))).await.unwrap().id;
        assert_eq!(host.output(&good, "cat /opt/layer/file").await, "shown");
        for source in ["/root", "/etc/shadow", "/var/../root"] {
            let refused = host.provider.create(&host.cx, &spec, with(Path::new(source))).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Conflict, "{source}: {refused:?}");
        }
        for source in ["sly", "sly/x", "good/../sly"] {
            let refused = host.provider.create(&host.cx, &spec, with(&layers.join(source))).await;
            assert!(refused.is_err(), "{source} is shown");
        }
        assert_eq!(host.output(&good, "echo lives").await, "lives\n");
    }));
}

/// The launcher is root, the trees are those of a server that is not, in directories that nobody else may enter.
fn trees_of_the_servers_user_are_shown(place: &Place) {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let layers = place.path("layers");
    std::fs::create_dir_all(layers.join("closed/layer")).unwrap();
    std::fs::write(layers.join("closed/layer/file"), "shown").unwrap();
    std::fs::write(layers.join("closed/layer/private"), "secret").unwrap();
    symlink("/root", layers.join("closed/sly")).unwrap();
    symlink("layer", layers.join("closed/alias")).unwrap();
    for (name, mode) in
        [("closed/layer/private", 0o600), ("closed/layer", 0o755), ("closed", 0o700), ("", 0o700)]
    {
        let path = layers.join(name);
        chown(&path, Some(54_321), Some(54_321)).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    std::fs::create_dir_all(place.path("notes")).unwrap();
    std::fs::write(place.path("notes/layers"), layers.display().to_string()).unwrap();
    place.live(life!(|host| {
        let closed = Path::new(&host.told("layers")).join("closed");
        let spec = SandboxSpec { enforcement: Enforcement::BestEffort, ..SandboxSpec::default() };
        let with = |source: &str| CreateOptions {
            mounts: vec![HostMount { source: closed.join(source), target: "/opt/layer".into() }],
            ..CreateOptions::default()
        };
        let sandbox = host.provider.create(&host.cx, &spec, with("layer")).await.unwrap().id;
        assert_eq!(host.output(&sandbox, "cat /opt/layer/file").await, "shown");
        // What may be read is still the matter of who asks.
        assert_eq!(host.output(&sandbox, "cat /opt/layer/private; echo $?").await, "1\n");
        let options = "grep ' /opt/layer ' /proc/self/mountinfo | cut -d' ' -f 6,7";
        let options = host.output(&sandbox, options).await;
        let words: Vec<&str> = options.trim().split([',', ' ']).collect();
        for word in ["ro", "nosuid", "nodev", "-"] {
            assert!(words.contains(&word), "{word} is missing: {options}");
        }
        for source in ["sly", "alias", "alias/file"] {
            let refused = host.provider.create(&host.cx, &spec, with(source)).await;
            assert!(refused.is_err(), "{source} is shown");
        }
    }));
}

fn strangers_and_garbage_do_not_disturb(place: &Place) {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let host = place.fork_host(life!(|host| {
        let sandbox = host.sandbox().await;
        host.tell("sandbox", sandbox);
        tokio::time::sleep(Duration::from_millis(700)).await;
        host.tell("answer", host.output(&sandbox, "echo undisturbed").await);
    }));
    place.note("sandbox");
    let address = SocketAddrUnix::new(place.path("launcher.sock")).unwrap();
    let sockets: Vec<_> = (0..40)
        .map(|n| {
            let socket = rustix::net::socket_with(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::CLOEXEC,
                None,
            )
            .unwrap();
            // A crowd that says nothing, and some that say nonsense.
            if rustix::net::connect(&socket, &address).is_ok() && n % 2 == 0 {
                let _ = rustix::net::send(&socket, &[0xff; 100], rustix::net::SendFlags::NOSIGNAL);
            }
            socket
        })
        .collect();
    assert_eq!(place.note("answer"), "undisturbed\n");
    drop(sockets);
    another_user_is_not_heard(place);
    kill(host);
}

/// The address is closed to others by its mode; if that is ever lost, the launcher still knows its user.
fn another_user_is_not_heard(place: &Place) {
    use std::os::unix::fs::PermissionsExt;

    use sandstorm_sys::fork::{Forked, exit_now, fork};
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let path = place.path("launcher.sock");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    for open in [path.parent().unwrap(), &path] {
        std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let reaped = match fork().unwrap() {
        Forked::Parent { pid } => sandstorm_sys::process::reap(pid).unwrap(),
        Forked::Child => {
            let stranger = rustix::process::Uid::from_raw(54_321);
            rustix::thread::set_thread_res_uid(stranger, stranger, stranger).unwrap();
            let heard = sandstorm_jail::launcher::resident::connect(&path);
            exit_now(if heard.is_err() { 0 } else { 1 })
        }
    };
    assert_eq!(reaped.ending, sandstorm_sys::process::Ending::Code(0), "a stranger was welcome");
}

fn what_another_version_left_is_told(place: &Place) {
    // A launcher that speaks nothing of ours, as the frozen words allow.
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    use sandstorm_sys::fork::{Forked, exit_now, fork};
    let path = place.path("launcher.sock");
    let listener =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 4).unwrap();
    let old = match fork().unwrap() {
        Forked::Parent { pid } => Pid::from_raw(pid).unwrap(),
        Forked::Child => {
            let mut word = [0; 300];
            let client = rustix::net::accept(&listener).unwrap();
            rustix::io::read(&client, &mut word).unwrap();
            rustix::io::write(&client, b"SL\x01\x00\x00\x00\x07\x00\x00\x00\x03old").unwrap();
            let client = rustix::net::accept(&listener).unwrap();
            let n = rustix::io::read(&client, &mut word).unwrap();
            exit_now(if &word[..n] == b"SL\x02" { 0 } else { 1 })
        }
    };
    drop(listener);
    let error =
        sandstorm_jail::launcher::resident::connect_or_start(&place.config()).unwrap_err().to_string();
    for word in ["process 7", "build old", "another version", "told to end"] {
        assert!(error.contains(word), "{error}");
    }
    let reaped = sandstorm_sys::process::reap(old.as_raw_nonzero().get()).unwrap();
    assert_eq!(reaped.ending, sandstorm_sys::process::Ending::Code(0), "it was not told to drain");
    std::fs::remove_file(path).unwrap();
}
