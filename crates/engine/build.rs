//! Builds the agent as a static program, so that the engine can carry it and put it into any sandbox.
//!
//! A build of its own, in a folder of its own: the outer build holds the lock of the shared one.

#![expect(clippy::disallowed_methods, reason = "a build script reads cargo's variables and starts cargo")]

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn main() {
    let variable = |name: &str| env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"));
    let crates = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("..");
    for name in ["agent", "sys"] {
        println!("cargo::rerun-if-changed={}", crates.join(name).join("src").display());
        println!("cargo::rerun-if-changed={}", crates.join(name).join("Cargo.toml").display());
    }
    let out = PathBuf::from(variable("OUT_DIR"));
    let target = variable("TARGET");
    let status = Command::new(variable("CARGO"))
        .args(["build", "--quiet", "--locked", "--package", "sandstorm-agent", "--bin", "sandstorm-agent"])
        .args(["--profile", "agent", "--target", &target])
        .arg("--target-dir")
        .arg(out.join("agent-build"))
        .current_dir(crates.join(".."))
        .env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static\u{1f}-Crelocation-model=static")
        // The outer build's wrappers and flags are not this build's.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("CARGO_MAKEFLAGS")
        .status()
        .expect("cargo could not be started to build the agent");
    assert!(status.success(), "the agent did not build: {status}");
    let built = out.join("agent-build").join(&target).join("agent/sandstorm-agent");
    fs::copy(&built, out.join("sandstorm-agent")).expect("the built agent could not be copied");
}
