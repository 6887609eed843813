use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

struct Fake(TempDir);

impl Fake {
    /// A merged-usr system without any program.
    fn new() -> Self {
        let fake = Self(TempDir::new().unwrap());
        for folder in ["usr/bin", "usr/local/bin", "usr/lib", "etc/alternatives", "root", "opt"] {
            fs::create_dir_all(fake.path(folder)).unwrap();
        }
        fake.link("/bin", "usr/bin");
        fake
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    fn file(&self, path: &str, mode: u32) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        symlink(target, self.path(path)).unwrap();
    }

    fn roots(&self) -> Roots {
        Roots::at(self.0.path())
    }
}

fn found(path: &str) -> Option<PathBuf> {
    Some(PathBuf::from(path))
}

#[test]
fn programs_are_found_in_order() {
    let fake = Fake::new();
    assert_eq!(fake.roots().program("tool"), None);
    fake.file("/usr/bin/tool", 0o755);
    assert_eq!(fake.roots().program("tool"), found("/usr/bin/tool"));
    fake.file("/usr/local/bin/tool", 0o755);
    assert_eq!(fake.roots().program("tool"), found("/usr/local/bin/tool"));
    fake.file("/usr/local/go/bin/go", 0o755);
    assert_eq!(fake.roots().program("go"), None);
    assert_eq!(fake.roots().program("/usr/local/go/bin/go"), found("/usr/local/go/bin/go"));
}

#[test]
fn only_what_the_payload_may_start_counts() {
    let fake = Fake::new();
    fake.file("/usr/local/bin/tool", 0o700);
    fs::create_dir(fake.path("/usr/bin/tool")).unwrap();
    assert_eq!(fake.roots().program("tool"), None);
}

#[test]
fn alternatives_are_followed() {
    let fake = Fake::new();
    fake.file("/usr/lib/jvm/java-17/bin/java", 0o755);
    fake.link("/etc/alternatives/java", "/usr/lib/jvm/java-17/bin/java");
    fake.link("/usr/bin/java", "/etc/alternatives/java");
    assert_eq!(fake.roots().program("java"), found("/usr/bin/java"));
    assert_eq!(fake.roots().program("/bin/java"), found("/bin/java"));
}

#[test]
fn links_that_leave_what_is_visible_are_absent() {
    let fake = Fake::new();
    fake.file("/root/.pyenv/shims/python3", 0o755);
    fake.file("/opt/python/bin/python3", 0o755);
    fake.link("/usr/local/bin/python3", "/root/.pyenv/shims/python3");
    assert_eq!(fake.roots().program("python3"), None);
    fake.link("/usr/bin/python3", "../../opt/python/bin/python3");
    assert_eq!(fake.roots().program("python3"), None);
    // A way out and back in is no way either: the link outside is not there to be followed.
    fake.file("/usr/bin/python3.11", 0o755);
    fake.link("/opt/back", "/usr/bin/python3.11");
    fake.link("/usr/bin/python", "/opt/back");
    assert_eq!(fake.roots().program("python"), None);
    assert_eq!(fake.roots().program("/usr/../root/.pyenv/shims/python3"), None);
}

#[test]
fn loops_and_dead_links_are_absent() {
    let fake = Fake::new();
    fake.link("/usr/bin/a", "b");
    fake.link("/usr/bin/b", "a");
    fake.link("/usr/bin/c", "nowhere");
    for name in ["a", "b", "c"] {
        assert_eq!(fake.roots().program(name), None);
    }
}

#[test]
fn a_configured_toolchain_comes_first_and_is_visible() {
    let fake = Fake::new();
    fake.file("/usr/bin/rustc", 0o755);
    fake.file("/opt/rust/bin/rustc", 0o755);
    fake.link("/usr/local/bin/cargo", "/opt/rust/bin/rustc");
    assert_eq!(fake.roots().program("cargo"), None);
    let roots = fake.roots().with_toolchain("/opt/rust");
    assert_eq!(roots.program("rustc"), found("/opt/rust/bin/rustc"));
    assert_eq!(roots.program("cargo"), found("/usr/local/bin/cargo"));
    fake.link("/opt/rust/bin/escape", "/root/x");
    fake.file("/root/x", 0o755);
    assert_eq!(roots.program("escape"), None);
}

#[test]
fn trees_by_pattern_without_following_links() {
    let fake = Fake::new();
    for folder in
        ["etc/java-17-openjdk", "etc/java-21-openjdk", "etc/java", "etc/php/8.2/cli", "etc/php/8.2/fpm"]
    {
        fs::create_dir_all(fake.path(folder)).unwrap();
    }
    fake.link("/etc/java-99-openjdk", "/root");
    fake.file("/etc/java-1-openjdk", 0o644);
    let roots = fake.roots();
    let java = [
        PathBuf::from("/etc/java-1-openjdk"),
        PathBuf::from("/etc/java-17-openjdk"),
        PathBuf::from("/etc/java-21-openjdk"),
    ];
    assert_eq!(roots.trees("/etc/java-*-openjdk"), java);
    assert_eq!(roots.trees("/etc/php/*/cli"), [PathBuf::from("/etc/php/8.2/cli")]);
    assert!(roots.trees("/etc/R").is_empty());
}
