//! The file interface against a hostile sandbox: what it prepares, the host neither follows nor waits for.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use sandstorm_provider::{
    ByteStream, Error, ExecRequest, ExecStatus, FileKind, FileOp, FileReply, ProviderExt, ReadRange,
    WatchOptions, WriteOptions,
};
use sandstorm_types::{ErrorKind, GuestPath, SandboxId};

use crate::world::{Case, PATIENCE, World};

pub(crate) const CASES: &[Case] = cases![
    magic_links_and_climbing_paths_lead_nowhere,
    only_regular_files_are_read,
    a_write_replaces_a_link_and_leaves_its_target,
    a_write_leaves_other_names_of_a_file_alone,
    special_mode_bits_are_never_set,
    a_growing_file_ends_where_it_was_opened,
    a_sparse_file_is_bounded_by_its_reader,
    crowded_and_deep_trees_are_bounded,
    errors_tell_nothing_of_the_host,
    search_and_watch_follow_no_links,
    a_costly_pattern_is_answered_quickly,
    an_archive_is_unpacked_as_the_guest_inside_its_quota,
    swapped_folders_never_lead_out,
    a_deep_tree_with_locked_folders_is_removed,
    names_that_are_no_text_do_not_break_a_listing,
];

impl World {
    /// A sandbox prepared by a shell script that must succeed.
    async fn prepared(&self, script: &str) -> SandboxId {
        let sandbox = self.sandbox(&[]).await;
        self.shell(&sandbox, script).await;
        sandbox
    }

    async fn shell(&self, sandbox: &SandboxId, script: &str) -> String {
        let done = self.provider.exec_collect(&self.cx, sandbox, ExecRequest::shell(script)).await.unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert_eq!(done.end.status, ExecStatus::Code(0), "{script}: {stderr}");
        stdout.into_owned()
    }

    async fn read(&self, sandbox: &SandboxId, at: &str) -> Result<Bytes, Error> {
        self.provider
            .read_file(&self.cx, sandbox, &path(at), ReadRange::default())
            .await?
            .collect(1 << 20)
            .await
    }

    async fn write(&self, sandbox: &SandboxId, at: &str, content: &'static str) -> Result<(), Error> {
        self.provider
            .write_file(&self.cx, sandbox, &path(at), WriteOptions::default(), Bytes::from(content).into())
            .await
    }

    async fn operate(&self, sandbox: &SandboxId, op: FileOp) -> Result<FileReply, Error> {
        self.provider.files(&self.cx, sandbox, op).await
    }
}

fn path(text: &str) -> GuestPath {
    text.parse().unwrap()
}

async fn magic_links_and_climbing_paths_lead_nowhere(world: &World) {
    let sandbox = world
        .prepared("ln -s /proc/self/root/etc/passwd a; ln -s /etc/passwd b; ln -s ../../../etc/shadow c")
        .await;
    // A magic link is refused, a plain one leads to the sandbox's own file, one to nothing finds nothing.
    assert!(world.read(&sandbox, "a").await.is_err());
    assert!(String::from_utf8_lossy(&world.read(&sandbox, "b").await.unwrap()).contains("user:x:1000:1000"));
    assert_eq!(world.read(&sandbox, "c").await.unwrap_err().kind(), ErrorKind::NotFound);
    for climbing in ["../etc/passwd", "/workspace/../../etc/passwd", "a/../../x"] {
        assert!(climbing.parse::<GuestPath>().is_err(), "{climbing}");
    }
    world.destroy(sandbox).await;
}

async fn only_regular_files_are_read(world: &World) {
    let sandbox = world
        .prepared("mkfifo pipe; mkdir folder; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'")
        .await;
    for name in ["pipe", "socket", "folder", "/dev/zero", "/dev/tty"] {
        let read = tokio::time::timeout(PATIENCE, world.read(&sandbox, name)).await;
        assert!(read.unwrap_or_else(|_| panic!("{name} blocked")).is_err(), "{name} was read");
    }
    let FileReply::List { entries, .. } = world
        .operate(&sandbox, FileOp::List { path: path("/workspace"), depth: 1, limit: 10 })
        .await
        .unwrap()
    else {
        panic!("not a list")
    };
    let kinds: Vec<FileKind> = entries.iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [FileKind::Directory, FileKind::Other, FileKind::Other]);
    world.destroy(sandbox).await;
}

async fn a_write_replaces_a_link_and_leaves_its_target(world: &World) {
    let sandbox =
        world.prepared("echo old > target; ln -s target link; ln -s /usr/bin/python3 outward").await;
    world.write(&sandbox, "link", "new").await.unwrap();
    world.write(&sandbox, "outward", "mine").await.unwrap();
    assert_eq!(
        world.shell(&sandbox, "cat target link outward; test ! -L link -a ! -L outward").await,
        "old\nnewmine"
    );
    world.destroy(sandbox).await;
}

async fn a_write_leaves_other_names_of_a_file_alone(world: &World) {
    let sandbox = world.prepared("echo old > one; ln one two").await;
    world.write(&sandbox, "one", "new").await.unwrap();
    assert_eq!(world.shell(&sandbox, "cat one two").await, "newold\n");
    world.destroy(sandbox).await;
}

async fn special_mode_bits_are_never_set(world: &World) {
    let sandbox = world.prepared("touch f").await;
    for mode in [0o4755, 0o2755, 0o1777, 0o100_644] {
        let set = world.operate(&sandbox, FileOp::SetMode { path: path("f"), mode }).await;
        assert_eq!(set.unwrap_err().kind(), ErrorKind::InvalidRequest, "{mode:o}");
    }
    world.operate(&sandbox, FileOp::SetMode { path: path("f"), mode: 0o755 }).await.unwrap();
    assert_eq!(world.shell(&sandbox, "stat -c %a f").await, "755\n");
    world.destroy(sandbox).await;
}

async fn a_growing_file_ends_where_it_was_opened(world: &World) {
    let sandbox = world.prepared("head -c 300000 /dev/zero > log").await;
    let mut writer = ExecRequest::shell("while :; do head -c 100000 /dev/zero >> log; sleep 0.01; done");
    writer.background = true;
    let exec = world.provider.exec(&world.cx, &sandbox, writer).await.unwrap();
    let content =
        world.provider.read_file(&world.cx, &sandbox, &path("log"), ReadRange::default()).await.unwrap();
    let read = tokio::time::timeout(PATIENCE, content.collect(1 << 30)).await;
    assert!(read.expect("it never ended").unwrap().len() >= 300_000);
    drop(exec);
    world.destroy(sandbox).await;
}

async fn a_sparse_file_is_bounded_by_its_reader(world: &World) {
    let sandbox = world.prepared("truncate -s 1T huge").await;
    let error = world.read(&sandbox, "huge").await.unwrap_err();
    assert!(error.to_string().contains("more bytes than allowed"), "{error}");
    // Whoever gave up left nothing behind that keeps the next operation from working.
    world.write(&sandbox, "after", "x").await.unwrap();
    world.destroy(sandbox).await;
}

async fn crowded_and_deep_trees_are_bounded(world: &World) {
    let deep = "import os\nfor i in range(2000):\n    os.mkdir('d'); os.chdir('d')\n";
    let sandbox = world
        .prepared(&format!("mkdir many; cd many; seq 3000 | xargs touch; cd ..; python3 -c \"{deep}\""))
        .await;
    let list = |at: &str, depth, limit| FileOp::List { path: path(at), depth, limit };
    let FileReply::List { entries, more } = world.operate(&sandbox, list("many", 1, 100)).await.unwrap()
    else {
        panic!("not a list")
    };
    assert_eq!((entries.len(), more), (100, true));
    let FileReply::List { entries, .. } =
        world.operate(&sandbox, list("d", u32::MAX, 100_000)).await.unwrap()
    else {
        panic!("not a list")
    };
    assert!(entries.len() < 100, "{} levels were listed", entries.len());
    world.destroy(sandbox).await;
}

async fn errors_tell_nothing_of_the_host(world: &World) {
    let sandbox = world.sandbox(&[]).await;
    // One of each pair exists on the host; from inside they look alike.
    for (there, absent) in [("/root/.profile", "/root/nothing"), ("/var/log/dpkg.log", "/var/log/nothing")] {
        let [a, b] =
            [world.read(&sandbox, there).await.unwrap_err(), world.read(&sandbox, absent).await.unwrap_err()];
        assert_eq!(a.kind(), b.kind());
        assert_eq!(a.to_string().replace(there, "X"), b.to_string().replace(absent, "X"));
    }
    world.destroy(sandbox).await;
}

async fn search_and_watch_follow_no_links(world: &World) {
    let sandbox = world.prepared("mkdir d; touch d/found.txt; ln -s / d/up; ln -s . d/round").await;
    let op = FileOp::Search { root: path("d"), pattern: "*.txt".to_owned(), limit: 100 };
    let FileReply::Found { paths, more } = world.operate(&sandbox, op).await.unwrap() else {
        panic!("not found")
    };
    assert_eq!((paths, more), (vec![path("/workspace/d/found.txt")], false));
    let options = WatchOptions { recursive: true };
    let mut changes = world.provider.watch(&world.cx, &sandbox, &path("d"), options).await.unwrap();
    world.shell(&sandbox, "touch /tmp/elsewhere /workspace/beside; touch d/seen").await;
    let first = tokio::time::timeout(PATIENCE, changes.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(first.path, path("/workspace/d/seen"));
    drop(changes);
    world.destroy(sandbox).await;
}

async fn a_costly_pattern_is_answered_quickly(world: &World) {
    let sandbox = world.prepared("touch $(printf 'a%.0s' $(seq 250))").await;
    let pattern = "*a".repeat(100) + "b";
    let op = FileOp::Search { root: path("/workspace"), pattern, limit: 10 };
    // Whoever tries every way is not done within a lifetime.
    let found = tokio::time::timeout(PATIENCE, world.operate(&sandbox, op)).await.expect("it never ended");
    assert!(matches!(found.unwrap(), FileReply::Found { paths, .. } if paths.is_empty()));
    world.destroy(sandbox).await;
}

async fn an_archive_is_unpacked_as_the_guest_inside_its_quota(world: &World) {
    let sandbox = world.sandbox(&[]).await;
    let unpack = |archive: Vec<u8>| FileOp::Unpack {
        path: path("/workspace"),
        archive: ByteStream::from(Bytes::from(archive)),
    };
    world.operate(&sandbox, unpack(archive("f", 0o6755, 10))).await.unwrap();
    assert_eq!(world.shell(&sandbox, "stat -c '%u %a' f").await, "1000 755\n");
    // 600 MiB do not fit into 512.
    let header = archive("big", 0o644, 600 << 20)[..512].to_vec();
    let zeroes = futures_util::stream::repeat_with(|| Ok(Bytes::from_static(&[0; 65536]))).take(600 << 4);
    let body = ByteStream::new(futures_util::stream::iter([Ok(Bytes::from(header))]).chain(zeroes));
    let full = world.operate(&sandbox, FileOp::Unpack { path: path("/workspace"), archive: body }).await;
    assert_eq!(full.unwrap_err().kind(), ErrorKind::FileSystem);
    world.write(&sandbox, "/workspace/f", "still works").await.unwrap();
    world.destroy(sandbox).await;
}

/// An archive with one file whose header states a size and whose content is as much as fits in a test.
fn archive(name: &str, mode: u32, size: u64) -> Vec<u8> {
    let mut header = vec![0u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..107].copy_from_slice(format!("{mode:07o}").as_bytes());
    header[108..115].copy_from_slice(b"0000000");
    header[116..123].copy_from_slice(b"0000000");
    header[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    header[136..147].copy_from_slice(b"00000000000");
    header[148..156].copy_from_slice(b"        ");
    header[156] = b'0';
    let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header.resize(512 + (size.min(1024) as usize).next_multiple_of(512) + 1024, 0);
    header
}

/// Rounds of the race that the ordinary tests take, and the number of swaps of each pair below which it was none. The long
/// run is asked for by `SANDSTORM_RACE_ROUNDS`.
const ROUNDS: usize = 400;
const SWAPS: u64 = 50_000;
/// Operations at the same time.
const AT_ONCE: usize = 8;
/// `ELOOP`: the agent met a link where it takes none.
const MET_A_LINK: &str = "40";

/// Swaps folders and links as fast as it can, makes what others removed, and counts the swaps of the pair that had fewer.
/// An operation may remove the link of a pair and another may make a folder in its place, which no failed swap tells: so
/// each pair is looked at regularly.
const SWAP: &str = r"
import ctypes, os, shutil
libc = ctypes.CDLL(None)
def attempt(do, *arguments):
    try: do(*arguments)
    except OSError: pass
def make(folder, link, target):
    if os.path.islink(folder):
        attempt(os.makedirs, link)
        return
    if not os.path.islink(link): shutil.rmtree(link, ignore_errors=True)
    attempt(os.makedirs, folder)
    attempt(os.symlink, target, link)
def run(pairs):
    swaps = [0] * len(pairs)
    while True:
        for _ in range(10):
            for pair in pairs: make(*pair)
            for _ in range(50):
                for number, (folder, link, target) in enumerate(pairs):
                    if libc.renameat2(-100, folder, -100, link, 2) == 0: swaps[number] += 1
                    else: make(folder, link, target)
        with open('/tmp/n', 'w') as count: count.write(str(min(swaps)))
        os.rename('/tmp/n', '/tmp/swaps')
";

/// The guest swaps a folder and a link as fast as it can, while every operation that changes something goes through that
/// name: one link is to a folder of the host that the sandbox does not have, one to a folder of the sandbox that was not
/// named.
async fn swapped_folders_never_lead_out(world: &World) {
    let rounds = std::env::var_os("SANDSTORM_RACE_ROUNDS")
        .map_or(ROUNDS, |text| text.to_str().and_then(|text| text.parse().ok()).expect("a number of rounds"));
    let host = tempfile::tempdir().unwrap();
    std::fs::set_permissions(host.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let canary = host.path().join("file");
    std::fs::write(&canary, "canary of the host").unwrap();
    std::fs::set_permissions(&canary, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let sandbox = world.prepared("mkdir beside; echo 'canary beside' > beside/kept").await;
    let swap = format!(
        "{SWAP}pairs = [(b'real', b'link', {:?}), (b'tree/in', b'tree/way', '/workspace/beside')]\nrun(pairs)\n",
        host.path()
    );
    world
        .provider
        .write_file(
            &world.cx,
            &sandbox,
            &path("/tmp/swap.py"),
            WriteOptions::default(),
            Bytes::from(swap).into(),
        )
        .await
        .unwrap();
    let mut swapper = ExecRequest::program(["/usr/bin/python3", "/tmp/swap.py"]);
    swapper.background = true;
    let exec = world.provider.exec(&world.cx, &sandbox, swapper).await.unwrap();
    let swaps = async || {
        let count = world.read(&sandbox, "/tmp/swaps").await.unwrap_or_default();
        String::from_utf8_lossy(&count).parse::<u64>().unwrap_or(0)
    };
    let give_up = std::time::Instant::now() + PATIENCE;
    while swaps().await == 0 {
        assert!(std::time::Instant::now() < give_up, "nothing is swapped");
    }
    let round = async |_: usize| {
        // The first pair's folder and link, then the second one's.
        let mut hits = [0_usize; 4];
        // What comes is what was written here, or nothing.
        if let Ok(content) = world.read(&sandbox, "real/file").await {
            assert_eq!(String::from_utf8_lossy(&content), "written");
        }
        let wrote = world.write(&sandbox, "real/file", "written").await;
        hits[usize::from(wrote.is_err())] += 1;
        let remove = || FileOp::Remove { path: path("tree/in"), recursive: true };
        let operations = [
            FileOp::SetMode { path: path("real/file"), mode: 0o600 },
            FileOp::Move { from: path("real/file"), to: path("real/other") },
            FileOp::Remove { path: path("real/file"), recursive: false },
            // What is unpacked or removed as a tree is what was named, never what a link in it leads to.
            FileOp::Unpack { path: path("tree"), archive: Bytes::from(archive("in/kept", 0o644, 4)).into() },
            // Between the look at a name and its opening lies a microsecond, so removing is tried more often.
            remove(),
            remove(),
            remove(),
            FileOp::MakeDir { path: path("tree/in") },
        ];
        for operation in operations {
            let unpacks = matches!(operation, FileOp::Unpack { .. });
            match world.operate(&sandbox, operation).await {
                Ok(_) if unpacks => hits[2] += 1,
                Err(error) if unpacks && error.context().any(|pair| pair == ("errno", MET_A_LINK)) => {
                    hits[3] += 1;
                }
                _ => {}
            }
        }
        hits
    };
    let began = swaps().await;
    let hits = futures_util::stream::iter(0..rounds).map(round).buffer_unordered(AT_ONCE);
    let add = async |mut sum: [usize; 4], met: [usize; 4]| {
        sum.iter_mut().zip(met).for_each(|(sum, met)| *sum += met);
        sum
    };
    let hits = hits.fold([0; 4], add).await;
    let give_up = std::time::Instant::now() + PATIENCE;
    while swaps().await < began + SWAPS {
        assert!(std::time::Instant::now() < give_up, "{} swaps are no race", swaps().await - began);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let [folder, link, inner_folder, inner_link] = hits;
    println!(
        "  {} swaps of each; writes met {folder} folders and {link} links, archives {inner_folder} and {inner_link}",
        swaps().await - began
    );
    // A pair that lost its link is met by chance only.
    let often = rounds / 100;
    assert!(hits.iter().all(|count| *count > often), "one of the two was hardly met: {hits:?}");
    drop(exec);
    let beside = world.shell(&sandbox, "cat beside/kept").await;
    assert_eq!(beside, "canary beside\n", "a tree that was not named was changed");
    world.destroy(sandbox).await;
    let names: Vec<_> = std::fs::read_dir(host.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(names, ["file"], "a file came to the host");
    assert_eq!(std::fs::read_to_string(&canary).unwrap(), "canary of the host");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&canary).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o666);
}

async fn a_deep_tree_with_locked_folders_is_removed(world: &World) {
    let deep = "import os\nos.mkdir('t'); os.chdir('t')\nfor i in range(3000):\n    open('f', 'w').close(); os.mkdir('d'); os.chdir('d')\n";
    let sandbox = world.prepared(&format!("python3 -c \"{deep}\"; mkdir t/locked; touch t/locked/f; chmod 000 t/locked; touch \"t/$(printf 'a\\nb')\"; ln -s /usr t/usr")).await;
    world.operate(&sandbox, FileOp::Remove { path: path("t"), recursive: true }).await.unwrap();
    assert_eq!(world.shell(&sandbox, "ls -A /workspace; ls /usr/bin/env").await, "/usr/bin/env\n");
    world.destroy(sandbox).await;
}

async fn names_that_are_no_text_do_not_break_a_listing(world: &World) {
    let sandbox = world.prepared("touch good \"$(printf 'bad\\377')\" \"$(printf 'two\\nlines')\"").await;
    let op = FileOp::List { path: path("/workspace"), depth: 1, limit: 10 };
    let FileReply::List { entries, .. } = world.operate(&sandbox, op).await.unwrap() else {
        panic!("not a list")
    };
    assert!(entries.iter().any(|e| e.path == path("/workspace/good")), "{entries:?}");
    world.destroy(sandbox).await;
}
