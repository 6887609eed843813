//! Writes the files that are made from the configuration: its JSON schema and its reference pages.
//!
//! `cargo run -p sandstorm-config --example generate`

use std::path::Path;

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (path, text) in [
        ("api/config.schema.json", sandstorm_config::schema_json()),
        ("docs/reference/configuration.md", sandstorm_config::configuration_page()),
        ("docs/reference/environment.md", sandstorm_config::environment_page()),
    ] {
        let path = root.join(path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, text)?;
    }
    Ok(())
}
