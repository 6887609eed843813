//! Writes the files that are made from the routes: the API's description and its reference page.
//!
//! `cargo run -p sandstorm-gateway --example generate`

use std::path::Path;

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::write(root.join("api/openapi.json"), sandstorm_gateway::openapi_json())?;
    std::fs::write(root.join("docs/reference/http-api.md"), sandstorm_gateway::reference_page())
}
