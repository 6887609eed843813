//! Writes the description of the API that is made from the code.
//!
//! `cargo run -p sandstorm-gateway --example generate`

use std::path::Path;

fn main() -> std::io::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../api/openapi.json");
    std::fs::write(path, sandstorm_gateway::openapi_json())
}
