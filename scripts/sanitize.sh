#!/usr/bin/env bash
# What only a nightly compiler can do: the crates that hold unsafe code or read hostile bytes, under the address
# sanitizer, and fuzzed for a bounded time.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}

if ! cargo +nightly --version >/dev/null 2>&1; then
  if [[ -n ${SANDSTORM_REQUIRE_ALL:-} ]]; then
    echo "sanitize: no nightly compiler: rustup toolchain install nightly" >&2
    exit 1
  fi
  echo "sanitize: skipped: no nightly compiler (rustup toolchain install nightly)"
  exit 0
fi
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS=-Zsanitizer=address cargo +nightly test --quiet --lib --target "$host" --target-dir target/sanitized \
  --package sandstorm-sys --package sandstorm-agent
command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked --version 0.13.2 --quiet
for target in frames archives; do
  cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -rss_limit_mb=2048
done
