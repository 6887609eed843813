#!/usr/bin/env bash
# Fuzzes what reads hostile bytes, for a bounded time, where a nightly compiler is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}

if ! cargo +nightly --version >/dev/null 2>&1; then
  echo "fuzz: skipped: no nightly compiler (rustup toolchain install nightly)"
  exit 0
fi
command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked --version 0.13.2 --quiet
for target in frames archives; do
  cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -rss_limit_mb=2048
done
