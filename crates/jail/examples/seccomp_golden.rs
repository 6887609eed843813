//! Writes the golden files of the seccomp profiles from the table.

use std::path::Path;

use sandstorm_jail::seccomp::{Arch, Profile};

fn main() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/seccomp/golden");
    for profile in Profile::ALL {
        for arch in Arch::ALL {
            let file = folder.join(format!("{}.{}.txt", profile.name(), arch.name()));
            std::fs::write(file, profile.describe(arch))?;
        }
    }
    Ok(())
}
