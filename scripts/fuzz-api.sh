#!/usr/bin/env bash
# Fuzzes the HTTP API of a server of its own by its description, with schemathesis. It fails on an answer of 500 or more,
# on an answer that the description does not allow, on a wrong request that is accepted, and when an operation was never
# answered with success: then nothing behind its checks was tried.
#
#   scripts/fuzz-api.sh [EXAMPLES [SANDSTORM]]
#
# EXAMPLES is the number of random requests for each operation, beside those that cover each rule of its schema.
set -euo pipefail
cd "$(dirname "$0")/.."

version=4.32.5
seed=7300
examples=${1:-12}
binary=$(realpath "${2:-${CARGO_TARGET_DIR:-target}/debug/sandstorm}")
if [[ ! -x $binary ]]; then
  echo "fuzz-api: $binary is missing; build it or name another" >&2
  exit 1
fi

tools=${CARGO_TARGET_DIR:-target}/fuzz-api
if [[ $("$tools/bin/schemathesis" --version 2>/dev/null) != *" $version" ]]; then
  rm -rf "$tools"
  /usr/bin/python3 -m venv "$tools"
  "$tools/bin/pip" install --quiet --disable-pip-version-check --retries 10 --timeout 60 "schemathesis==$version"
fi
schemathesis=$(realpath "$tools/bin/schemathesis")

place=$(mktemp -d -t sandstorm-fuzz-XXXXXX)
# The server's own user must be able to get through to its state.
chmod 755 "$place"
server=
finish() {
  if [[ -n $server ]]; then
    # Not SIGTERM: that would keep the sandboxes for the next server.
    kill -INT "$server" 2>/dev/null || true
    wait "$server" || true
  fi
  rm -rf "$place"
}
trap finish EXIT

# Forks fill a machine quickly: a refusal for lack of memory would be honest, and is not what is looked for here.
admin=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print("127.0.0.1:%d" % s.getsockname()[1])')
env -i PATH=/usr/local/bin:/usr/bin:/bin HOME="$place" SANDSTORM_QUOTAS_REQUESTS_PER_SECOND=100000 \
  SANDSTORM_QUOTAS_RUNS_PER_MINUTE=100000 SANDSTORM_ADMISSION_MEMORY=1TiB \
  "$binary" serve --listen 127.0.0.1:0 --admin-listen "$admin" --state-dir "$place/state" >"$place/said" 2>"$place/log" &
server=$!
for _ in $(seq 1200); do
  grep -q 'listening on' "$place/said" && break
  kill -0 "$server" 2>/dev/null || { cat "$place/log" >&2; exit 1; }
  sleep 0.1
done
SANDSTORM_URL=$(grep -o 'http://.*' "$place/said")
SANDSTORM_API_KEY=$(grep -o 'ss_[^ ]*' "$place/said")
export SANDSTORM_URL SANDSTORM_API_KEY SANDSTORM_ADMIN_URL=http://$admin SANDSTORM_FUZZ_REACHED=$place/reached
export PYTHONPATH=$PWD/tests/api PYTHONDONTWRITEBYTECODE=1 SCHEMATHESIS_HOOKS=living_ids

fuzz() {
  local url=$1
  shift
  (cd "$place" && "$schemathesis" --no-color run "$SANDSTORM_URL/openapi.json" --url "$url" \
    --header "X-API-Key: $SANDSTORM_API_KEY" --generation-with-security-parameters false \
    --checks not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,negative_data_rejection,unsupported_method,events_are_as_described \
    --phases examples,coverage,fuzzing --max-examples "$examples" --seed "$seed" --generation-database none \
    --continue-on-failure --request-timeout 60 --suppress-health-check all --warnings off "$@")
}

# Streams that never end, terminals and what programs answer on their ports are not requests with one answer.
endless='^/v1/events$|^/v1/sandboxes/\{sandbox\}/events$|/watch$|/pty$|/ports/|/tunnel/'
fuzz "$SANDSTORM_URL" --exclude-path-regex "$endless|^/v1/admin/"
fuzz "http://$admin" --include-path-regex '^/v1/admin/'

if ! kill -0 "$server" 2>/dev/null; then
  echo "fuzz-api: the server ended" >&2
  exit 1
fi
/usr/bin/python3 - "$endless" api/openapi.json "$place/reached" <<'PY'
import json, re, sys

endless, document, reached = sys.argv[1:]
reached = set(open(reached).read().splitlines())
every = {method.upper() + " " + path for path, item in json.load(open(document))["paths"].items() for method in item}
never = sorted(each for each in every - reached if not re.search(endless, each.split(" ")[1]))
if never:
    sys.exit("fuzz-api: never answered with success: " + ", ".join(never))
print("fuzz-api: each of %d operations was reached" % len(reached & every))
PY
