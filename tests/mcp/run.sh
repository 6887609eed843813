#!/usr/bin/env bash
# Other people's clients and the official conformance suite against the debug build.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=$(cargo metadata --no-deps --format-version 1 --offline |
  /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
binary=$target/debug/sandstorm

/usr/bin/python3 tests/mcp/conformance.py "$binary" "$target/mcp-suite"

python=$target/mcp-python
[ -x "$python/bin/pip" ] || /usr/bin/python3 -m venv "$python"
"$python/bin/pip" install --quiet --disable-pip-version-check 'mcp==2.3.0'
"$python/bin/python" tests/mcp/python_client.py "$binary"

# Node finds packages beside the script, so it runs from a copy there.
node=$target/mcp-suite
(cd "$node" && npm install --no-audit --no-fund --silent '@modelcontextprotocol/sdk@1.32.2')
cp tests/mcp/typescript_client.mjs tests/mcp/steps.json "$node"
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
node "$node/typescript_client.mjs" pipes "$binary" "$state/state"
