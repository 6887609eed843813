//! Writable space on disk of jails that end.

use std::path::{Path, PathBuf};
use std::process::Command;

use sandstorm_agent::protocol::Ending;
use sandstorm_jail::launcher::{Answer, EndCause, Request};

use crate::host::{Case, Host, eventually};

pub(crate) const CASES: &[Case] =
    &[("the launcher waits for no disk when it lets go of one", a_disk_that_stands_still)];

/// A file system of the test's own, which it can stop.
struct Frozen {
    folder: PathBuf,
    is_frozen: bool,
}

impl Frozen {
    fn mount(image: &Path, folder: &Path) -> Self {
        std::fs::File::create(image).unwrap().set_len(256 << 20).unwrap();
        command(Command::new("/usr/sbin/mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(image));
        command(Command::new("mount").args(["-o", "loop"]).args([image, folder]));
        Self { folder: folder.to_owned(), is_frozen: false }
    }

    fn freeze(&mut self) {
        command(Command::new("fsfreeze").arg("-f").arg(&self.folder));
        self.is_frozen = true;
    }

    fn thaw(&mut self) {
        if std::mem::take(&mut self.is_frozen) {
            command(Command::new("fsfreeze").arg("-u").arg(&self.folder));
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.thaw();
        command(Command::new("umount").arg("-l").arg(&self.folder));
    }
}

fn command(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Everything that waits for the disk waits for as long as the test likes: what goes on meanwhile does not wait.
#[expect(clippy::print_stdout, reason = "this is a test's report")]
fn a_disk_that_stands_still(host: &mut Host) {
    let tools = ["/dev/loop-control", "/usr/sbin/mke2fs", "/usr/sbin/fsfreeze"];
    if let Some(missing) = tools.into_iter().find(|tool| !Path::new(tool).exists()) {
        assert!(std::env::var_os("SANDSTORM_REQUIRE_ALL").is_none(), "there is no {missing}");
        println!("skipped: there is no {missing}");
        return;
    }
    let mut place = Frozen::mount(&host.path("image"), &host.path("space"));
    let mut spec = Host::spec("on-disk");
    spec.root.scratch_on_disk = true;
    host.launch_spec(spec).unwrap();
    host.launch("beside");
    let code = "for i in range(200): open(f'/workspace/{i}', 'w').write('x' * 20000)\n";
    let ran = host.python("on-disk", None, code);
    assert_eq!(ran.ending, Ending::Code(0), "{ran:?}");
    place.freeze();
    host.hang_up("on-disk");
    assert_eq!(host.kill("on-disk").cause, EndCause::Asked);
    for _ in 0..3 {
        host.ask(&Request::Count { name: "beside".to_owned() }, &[]);
        host.hear(|answer, _| matches!(answer, Answer::Counted { counters: Some(_), .. }).then_some(()));
    }
    let launcher = host.launcher();
    let helpers = || unmounting(launcher);
    assert_eq!(helpers(), 1, "the space is let go of while its disk stands still");
    place.thaw();
    eventually("the space is never let go of", || helpers() == 0);
    assert_eq!(host.kill("beside").cause, EndCause::Asked);
}

/// How many children of the launcher are copies of it. All others execute another program.
fn unmounting(launcher: i32) -> usize {
    let program = |pid: i32| std::fs::read_link(format!("/proc/{pid}/exe"));
    let own = program(launcher).unwrap();
    let children = std::fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).unwrap();
    children
        .split_whitespace()
        .filter(|pid| program(pid.parse().unwrap()).is_ok_and(|exe| exe == own))
        .count()
}
