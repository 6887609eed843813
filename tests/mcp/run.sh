#!/usr/bin/env bash
# Other people's clients and the official conformance suite against the debug build.
set -euo pipefail
cd "$(dirname "$0")"
target=$(cargo metadata --no-deps --format-version 1 --offline |
  /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
binary=$target/debug/sandstorm

python=$target/mcp-python
[ -x "$python/bin/pip" ] || /usr/bin/python3 -m venv "$python"
"$python/bin/pip" install --quiet --disable-pip-version-check 'mcp==2.3.0'

# Node finds packages beside the script, so it runs from a copy there.
suite=$target/mcp-suite
mkdir -p "$suite"
cp package.json typescript_client.mjs steps.json "$suite"
npm install --prefix "$suite" --no-audit --no-fund --silent
modules=$suite/node_modules

served() { /usr/bin/python3 served.py "$binary" "$@"; }
/usr/bin/python3 conformance.py "$binary" "$modules"
served "$python/bin/python" python_client.py "$binary"
served "$modules/node/bin/node" "$suite/typescript_client.mjs" "$binary"
served /usr/bin/python3 inspector.py "$binary" "$modules"
