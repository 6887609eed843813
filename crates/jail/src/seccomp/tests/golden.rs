//! The table as text beside the code, so that a review shows each changed answer. After a wanted change:
//! `cargo run -p sandstorm-jail --example seccomp_golden`.

use std::path::Path;

use super::every;

#[test]
fn golden_files_hold_the_table() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/seccomp/golden");
    for (profile, arch) in every() {
        let file = folder.join(format!("{}.{}.txt", profile.name(), arch.name()));
        let stored = std::fs::read_to_string(&file).unwrap();
        let current = profile.describe(arch);
        let changed: Vec<_> =
            current.lines().filter(|line| !stored.lines().any(|old| old == *line)).collect();
        assert!(current == stored, "{} drifted: {changed:#?}", file.display());
    }
}
