#!/usr/bin/env bash
# Runs a command beside endless loops, two for each processor: tests have to hold on a loaded machine too.
#
#   scripts/busy.sh cargo test --workspace --locked
#
# The exit code is the command's.
set -euo pipefail

[[ $# -gt 0 ]] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }

loops=()
stop() {
  kill "${loops[@]}" 2>/dev/null || true
}
trap stop EXIT
for _ in $(seq $(($(nproc) * 2))); do
  (while :; do :; done) &
  loops+=($!)
done
"$@"
