#!/usr/bin/env bash
# E2B's official SDKs, unmodified, against the debug build: our own programs, in Python and TypeScript.
# With names of programs only those are run: python_sync, python_walls, python_async, python_interpreter, typescript,
# python_restart, python_older (the SDK before its second API), python_domain (hosts below a domain, TLS), python_elsewhere
# (the code interpreter on another server, behind a router that has no place of its own).
set -euo pipefail
cd "$(dirname "$0")/../.."
target=$(cargo metadata --no-deps --format-version 1 --offline |
  /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
binary=${BINARY:-$target/debug/sandstorm}
programs=("$@")
[ $# -gt 0 ] || programs=(python_sync python_walls python_async python_interpreter typescript python_restart
  python_older python_domain python_elsewhere)

python=$target/e2b-python
[ -x "$python/bin/pip" ] || /usr/bin/python3 -m venv "$python"
"$python/bin/pip" install --quiet --disable-pip-version-check 'e2b==2.63.0' 'e2b-code-interpreter==2.11.5'
older=$target/e2b-python-older
[ -x "$older/bin/pip" ] || /usr/bin/python3 -m venv "$older"
"$older/bin/pip" install --quiet --disable-pip-version-check 'e2b==2.45.1'
node=$target/e2b-node
mkdir -p "$node"
# Node finds packages beside the programs, so they run from a copy there. The SDK wants a newer Node than some systems have.
rm -f "$node"/*.ts
cp tests/e2b/typescript/* "$node"
(cd "$node" && npm install --no-audit --no-fund --silent && node_modules/.bin/tsc --project .)

work=$(mktemp -d)
# As root the server becomes another user, who has to get to its folder.
chmod 711 "$work"
server=
router=
stop() {
  # Not SIGTERM: that would keep the sandboxes for the next server.
  for one in $router $server; do kill -INT "$one" && wait "$one" || true; done
  rm -rf "$work"
}
trap stop EXIT
state=$work/state
free_port() {
  /usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
port=$(free_port)
domain=sandbox.test:$port
# Waits until the server with this process id says in this file that it listens.
listens() {
  for _ in $(seq 150); do
    grep -q listening "$2" && return
    kill -0 "$1" || break
    sleep 0.2
  done
  cat "$work/log"
  exit 1
}
# With `domain`, hosts are below it and behind TLS.
start() {
  local settings=(SANDSTORM_QUOTAS_SANDBOXES=8)
  [ "${1:-}" != domain ] || settings+=(SANDSTORM_DIALECTS_E2B_DOMAIN="$domain"
    SANDSTORM_SERVE_TLS_CERT="$work/tls.pem" SANDSTORM_SERVE_TLS_KEY="$work/tls.key")
  env "${settings[@]}" "$binary" serve --state-dir "$state" --listen "127.0.0.1:$port" \
    >"$work/out" 2>>"$work/log" &
  server=$!
  listens "$server" "$work/out"
}
start

secret() { /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)["key"])'; }
key() { "$binary" keys create --state-dir "$state" --form e2b --json "$@" | secret; }
"$binary" tenants create other --state-dir "$state" >/dev/null
export E2B_API_URL=http://127.0.0.1:$port E2B_SANDBOX_URL=http://127.0.0.1:$port
E2B_API_KEY=$(key)
OTHER_E2B_API_KEY=$(key --tenant other)
export E2B_API_KEY OTHER_E2B_API_KEY

# A router over this server; its address replaces that of the server.
start_router() {
  local far near=$work/router
  near_port=$(free_port)
  far=$("$binary" keys create --state-dir "$state" --json | secret)
  mkdir -m 755 "$near"
  cat >"$near/sandstorm.yaml" <<EOF
providers:
  local: {kind: local, enabled: false}
  far: {kind: sandstorm, url: "http://127.0.0.1:$port", key: "env:FAR_KEY"}
EOF
  FAR_KEY=$far "$binary" serve --config "$near/sandstorm.yaml" --state-dir "$near/state" \
    --listen "127.0.0.1:$near_port" >"$near/out" 2>>"$work/log" &
  router=$!
  listens "$router" "$near/out"
  near_key=$("$binary" keys create --state-dir "$near/state" --form e2b --json | secret)
}

failed=0
for program in "${programs[@]}"; do
  echo "== $program"
  case $program in
    python_restart)
      "$python/bin/python" -W ignore tests/e2b/python_restart.py before "$work/kept" || failed=1
      kill -KILL "$server" && wait "$server" || true
      start
      "$python/bin/python" -W ignore tests/e2b/python_restart.py after "$work/kept" || failed=1
      ;;
    python_older) "$older/bin/python" -W ignore tests/e2b/python_older.py || failed=1 ;;
    python_domain)
      kill -KILL "$server" && wait "$server" || true
      openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority \
        -keyout "$work/ca.key" -out "$work/ca.pem" 2>/dev/null
      openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=sandbox.test \
        -keyout "$work/tls.key" -out "$work/tls.csr" 2>/dev/null
      printf 'subjectAltName=DNS:sandbox.test,DNS:*.sandbox.test\nbasicConstraints=CA:FALSE\n' >"$work/tls.ext"
      openssl x509 -req -in "$work/tls.csr" -CA "$work/ca.pem" -CAkey "$work/ca.key" -CAcreateserial -days 2 \
        -extfile "$work/tls.ext" -out "$work/tls.pem" 2>/dev/null
      chmod 644 "$work/tls.key"
      start domain
      echo nameserver 127.0.0.153 >"$work/resolv.conf"
      # Only root can have a name server of its own.
      unshare --mount sh -c 'mount --bind "$1" /etc/resolv.conf && shift && exec "$@"' sh "$work/resolv.conf" \
        env -u E2B_API_URL -u E2B_SANDBOX_URL NAME_SERVER=127.0.0.153 E2B_DOMAIN="$domain" SSL_CERT_FILE="$work/ca.pem" \
        "$python/bin/python" -W ignore tests/e2b/python_domain.py || failed=1
      kill -KILL "$server" && wait "$server" || true
      start
      ;;
    python_elsewhere)
      start_router
      ELSEWHERE=1 E2B_API_URL=http://127.0.0.1:$near_port E2B_SANDBOX_URL=http://127.0.0.1:$near_port E2B_API_KEY=$near_key \
        "$python/bin/python" -W ignore tests/e2b/python_interpreter.py ${CASES:-} || failed=1
      ;;
    typescript) "$node/node_modules/node/bin/node" "$node/main.ts" ${CASES:-} || failed=1 ;;
    *) "$python/bin/python" -W ignore "tests/e2b/$program.py" ${CASES:-} || failed=1 ;;
  esac
done
[ "$failed" = 0 ] || { tail -n 30 "$work/log"; exit 1; }
