//! Markers: random words in places that no attack may reach.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};

use super::{attack_file, unique};
use crate::support::{Who, sandstorm};

/// Folders of the host that hold a planted file.
const FOLDERS: [&str; 7] = ["/root", "/home", "/etc", "/var/lib", "/run", "/tmp", "/dev/shm"];

/// A mark in files of the host and all over a neighbouring sandbox. Goes away when dropped.
pub(super) struct Canaries {
    mark: String,
    files: Vec<PathBuf>,
    neighbour: Child,
}

impl Canaries {
    pub(super) fn plant(who: Who) -> Self {
        let (mark, name) = (unique(), unique());
        let files: Vec<PathBuf> =
            FOLDERS.iter().map(|folder| Path::new(folder).join(format!("planted-{name}"))).collect();
        let files: Vec<PathBuf> =
            files.into_iter().filter(|path| std::fs::write(path, &mark).is_ok()).collect();
        assert!(!files.is_empty(), "no file could be planted");
        for path in &files {
            // Open to all: what keeps it from the guest must be the walls alone.
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
        }
        let script = std::fs::read_to_string(attack_file("neighbour.sh")).unwrap();
        let variable = format!("MARK={mark}");
        let mut neighbour = sandstorm(who)
            .args(["run", "-l", "bash", "--env", &variable, "-c", &script, "--", &mark])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(neighbour.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n", "the neighbour did not start");
        Self { mark, files, neighbour }
    }

    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// The planted files; their names tell nothing.
    pub(super) fn paths(&self) -> Vec<String> {
        self.files.iter().map(|path| path.display().to_string()).collect()
    }

    pub(super) fn absent_from(&self, output: &Output, what: &str) {
        for (stream, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
            self.absent_from_text(&String::from_utf8_lossy(bytes), &format!("{what}, {stream}"));
        }
    }

    pub(super) fn absent_from_text(&self, text: &str, what: &str) {
        assert!(!text.contains(&self.mark), "{what}: a marker leaked: {text}");
        for path in &self.files {
            let content = std::fs::read_to_string(path).unwrap_or_default();
            assert_eq!(content, self.mark, "{what}: {} was changed", path.display());
        }
    }
}

impl Drop for Canaries {
    fn drop(&mut self) {
        let _ = self.neighbour.kill();
        let _ = self.neighbour.wait();
        for path in &self.files {
            let _ = std::fs::remove_file(path);
        }
    }
}
