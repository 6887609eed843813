#!/usr/bin/env bash
# Runs the examples of the documentation and fails when one does not do what the page says.
#
#   scripts/check-docs.sh [SANDSTORM]
#
# An example is a fenced block marked ```console run. Its lines after `$ ` are typed, its other lines are what must come
# out; see scripts/check_docs.py.
set -euo pipefail
cd "$(dirname "$0")/.."

binary=${1:-${CARGO_TARGET_DIR:-target}/debug/sandstorm}
if [[ ! -x $binary ]]; then
  echo "check-docs: $binary is missing; build it or name another" >&2
  exit 1
fi
/usr/bin/python3 -B tests/kernels/table.py check
exec /usr/bin/python3 -B scripts/check_docs.py "$(realpath "$binary")" README.md docs/getting-started.md docs/guides/*.md docs/concepts/*.md
