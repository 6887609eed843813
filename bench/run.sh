#!/usr/bin/env bash
# Measures the promised numbers, and what a cold `sandstorm run` costs beside bubblewrap with the same mounts and beside no
# sandbox at all.
#
#   bench/run.sh [ROUNDS]
#
# Then what an honest sandbox notices of a hostile one beside it, how a server passes on the output of 500 programs at
# once, how much memory it takes while nobody reads what programs write, and whether the time of a refusal tells another tenant's id from nobody's. Prints tables and keeps them, the raw
# samples and a chart in bench/results/. The method is in bench/README.md.
set -euo pipefail
cd "$(dirname "$0")/.."

binary=${CARGO_TARGET_DIR:-target}/release/sandstorm
if [[ ! -x $binary ]]; then
  echo "bench: $binary is missing; \`make bench\` builds it" >&2
  exit 1
fi
if [[ $(id -u) -ne 0 ]]; then
  echo "bench: run as root: the figures with control groups and as other users need it" >&2
  exit 1
fi
"$binary" bench --keep bench/results ${1:+--rounds "$1"}
# The interpreter by its full name: a shim on the PATH starts many times slower.
/usr/bin/python3 -B bench/cold_start.py --binary "$binary" --rounds "${1:-200}"
/usr/bin/python3 -B bench/neighbour.py --binary "$binary" --out "bench/results/$(date +%F)-neighbour.md"
/usr/bin/python3 -B bench/streams.py --binary "$binary" --out "bench/results/$(date +%F)-streams.md"
/usr/bin/python3 -B bench/memory.py --binary "$binary" --out "bench/results/$(date +%F)-memory.md"
/usr/bin/python3 -B bench/absent.py --binary "$binary" --out "bench/results/$(date +%F)-absent.md"
