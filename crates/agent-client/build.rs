//! Builds the program that PID 1 of every sandbox is, the agent, as a static one, so that the engine can carry it.
//!
//! A build of its own, in a folder of its own: the outer build holds the lock of the shared one.
//!
//! With musl where the toolchain has it (`rustup target add x86_64-unknown-linux-musl`): glibc asks the processor some forty
//! questions before `main`, each of which leaves a virtual machine, and takes more memory, of which each sandbox has a copy.

#![expect(clippy::disallowed_methods, reason = "a build script reads cargo's variables and starts cargo")]

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn main() {
    let variable = |name: &str| env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"));
    let crates = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("..");
    for name in ["agent", "jail", "pid1", "sys"] {
        println!("cargo::rerun-if-changed={}", crates.join(name).join("src").display());
        println!("cargo::rerun-if-changed={}", crates.join(name).join("Cargo.toml").display());
    }
    let out = PathBuf::from(variable("OUT_DIR"));
    let target = lean(&variable("RUSTC"), &variable("TARGET"));
    let status = Command::new(variable("CARGO"))
        .args(["build", "--quiet", "--locked", "--package", "sandstorm-pid1", "--bin", "sandstorm-pid1"])
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
    let built = out.join("agent-build").join(&target).join("agent/sandstorm-pid1");
    fs::copy(&built, out.join("sandstorm-agent")).expect("the built agent could not be copied");
}

/// The same target with musl, if the toolchain has its library; else the target itself.
fn lean(rustc: &str, target: &str) -> String {
    let musl = target.replace("-linux-gnu", "-linux-musl");
    let asked = Command::new(rustc).args(["--print", "target-libdir", "--target", &musl]).output();
    let library = asked.ok().filter(|asked| asked.status.success());
    let library = library.and_then(|asked| String::from_utf8(asked.stdout).ok());
    let Some(library) = library.map(|path| PathBuf::from(path.trim())) else { return target.to_owned() };
    if library.is_dir() { musl } else { target.to_owned() }
}
