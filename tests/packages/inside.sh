#!/bin/bash
# What tests/packages/run.sh does in a fresh Debian, where no systemd runs.
#
#   inside.sh static|dynamic
set -euo pipefail

linked=$1
server=

fail() {
  echo "packages: $1" >&2
  exit 1
}

finish() {
  if [[ -n $server ]]; then
    # Ends the sandboxes with the server.
    kill -INT "$server" 2>/dev/null || true
    wait "$server" || true
    server=
  fi
}
trap finish EXIT

# Every file of the system but those that dpkg, passwd and man keep for themselves.
files() {
  find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /given -o -path /tmp -o -path /var/lib/dpkg \
    -o -path /var/log -o -path /var/cache/man -o -path '/etc/*shadow*' -o -path '/etc/passwd-' -o -path '/etc/group-' -o -path /etc/.pwd.lock \) \
    -prune -o -printf '%p %y %m %U:%G\n' | sort
}

# nothing_left WHAT: the system is as it was before.
nothing_left() {
  files >/tmp/after
  diff /tmp/before /tmp/after || fail "$1 leaves something behind"
  ! grep sandstorm /etc/passwd /etc/group || fail "$1 leaves the user behind"
}

# run_one COMMAND: a program in a sandbox of the installed binary.
run_one() {
  local said
  # shellcheck disable=SC2016
  said=$("$1" run -l bash -c 'echo hi $(id -un)' 2>&1)
  [[ $said == "hi user" ]] || fail "$1 run said: $said"
}

lookups_load_nothing() {
  local code=0
  # First that the trap works for programs that are linked dynamically.
  (getent ahosts other.invalid || exit) >/dev/null 2>&1 || code=$?
  [[ $code -eq 134 ]] || fail "the trap for lookups does not work"
  if [[ $linked == static ]]; then
    code=0
    said=$(sandstorm sandbox list --url http://other.invalid:1 2>&1) || code=$?
    [[ $code -lt 128 && $said == *"lookup address"* ]] || fail "looking up a name ends it with $code: $said"
  else
    sed -i 's/ trap / /' /etc/nsswitch.conf
  fi
}

serve() {
  local key answer user trusted=/usr/local/share/ca-certificates/test.crt
  key=$(sandstorm keys create --name test 2>/dev/null)
  install -o sandstorm -m 600 /given/server.key /var/lib/sandstorm.key
  SANDSTORM_SERVE_TLS_CERT=/given/server.pem SANDSTORM_SERVE_TLS_KEY=/var/lib/sandstorm.key \
    sandstorm serve >/tmp/said 2>&1 &
  server=$!
  for _ in $(seq 600); do
    curl -sf --cacert /given/server.pem https://localhost:7300/healthz >/dev/null && break
    kill -0 "$server" 2>/dev/null || { cat /tmp/said >&2; fail "the server ended"; }
    sleep 0.1
  done
  # shellcheck disable=SC2016
  answer=$(curl -sS --cacert /given/server.pem -H "X-API-Key: $key" https://localhost:7300/v1/runs \
    --json '{"language": "bash", "code": "echo hi $((6 * 7))"}')
  [[ $answer == *'"stdout":"hi 42\n"'* ]] || fail "the server answered $answer"
  user=$(awk '$1 == "Uid:" { print $2 }' "/proc/$server/status")
  [[ $user == "$(id -u sandstorm)" && $user != 0 ]] || fail "the server is user $user"

  # Its own client trusts what the system trusts.
  export SANDSTORM_URL=https://localhost:7300 SANDSTORM_API_KEY=$key
  ! sandstorm sandbox list >/tmp/client 2>&1 || fail "the client trusts an unknown certificate"
  grep -qi certificate /tmp/client || fail "the client says of an unknown certificate: $(cat /tmp/client)"
  cp /given/server.pem "$trusted"
  update-ca-certificates >/dev/null 2>&1
  sandstorm sandbox list >/tmp/client 2>&1 || fail "the client does not trust the system's roots: $(cat /tmp/client)"
  rm "$trusted" /var/lib/sandstorm.key
  update-ca-certificates --fresh >/dev/null 2>&1
  unset SANDSTORM_URL SANDSTORM_API_KEY
  finish
}

shells_complete() {
  local said
  # shellcheck disable=SC2016
  bash -c '. /usr/share/bash-completion/bash_completion && __load_completion sandstorm &&
    COMP_WORDS=(sandstorm ru) COMP_CWORD=1 && _sandstorm sandstorm ru sandstorm && [[ " ${COMPREPLY[*]} " == *" run "* ]]' ||
    fail "bash does not complete"
  # shellcheck disable=SC2016
  [[ $(zsh -fc 'autoload -U compinit && compinit -D && autoload +X _sandstorm && echo $_comps[sandstorm]') == _sandstorm ]] ||
    fail "zsh does not complete"
  # Where a login on a desktop makes it look, and where the specification of this variable has it look.
  said=$(HOME=/tmp XDG_DATA_DIRS=/usr/local/share:/usr/share fish -c 'complete -C "sandstorm ru"')
  [[ $said == run* ]] || fail "fish does not complete: $said"
}

manual_reads() {
  local page complaints said
  [[ $(find "$1" -name 'sandstorm*.1*' | wc -l) -gt 50 ]] || fail "pages of the manual are missing in $1"
  # The linter reads no compressed file.
  for page in "$1"/sandstorm*.1*; do
    complaints=$(zcat --force "$page" | mandoc -T lint -W error 2>&1) || true
    [[ -z $complaints ]] || fail "the manual, $page: $complaints"
  done
  said=$(man -M "${1%/man1}" sandstorm-run | col -b)
  [[ $said == *--cpu-time* ]] || fail "man does not show sandstorm-run: $said"
}

files >/tmp/before

# The Debian package.
dpkg --install /given/*.deb >/tmp/dpkg 2>&1 || fail "dpkg: $(cat /tmp/dpkg)"
[[ $(stat -c '%U:%G %a' /var/lib/sandstorm) == "sandstorm:sandstorm 700" ]] || fail "the state folder: $(stat /var/lib/sandstorm)"
[[ $(sandstorm config check) == "/etc/sandstorm/sandstorm.yaml is fine" ]] || fail "the configuration is refused"
grep -q '^  #listen: 127.0.0.1:7300$' /etc/sandstorm/sandstorm.yaml || fail "the configuration does not show its defaults"
grep -v '^ *#' /etc/sandstorm/sandstorm.yaml | grep . && fail "the configuration sets something"
run_one /usr/bin/sandstorm
said=$(SSL_CERT_FILE=/dev/null SSL_CERT_DIR=/nowhere sandstorm sandbox list --url http://127.0.0.1:1 2>&1) || true
[[ $said == *"could not reach"* ]] || fail "a client without encryption needs certificates: $said"
lookups_load_nothing
serve
shells_complete
manual_reads /usr/share/man/man1

# What an administrator wrote outlives a removal, and a purge takes it.
echo "# ours" >>/etc/sandstorm/sandstorm.yaml
echo "SECRET=x" >/etc/sandstorm/sandstorm.env
dpkg --remove sandstorm >/tmp/dpkg 2>&1 || fail "dpkg: $(cat /tmp/dpkg)"
[[ -e /var/lib/sandstorm/sandstorm.db && ! -e /usr/bin/sandstorm ]] || fail "a removal takes the state or leaves the binary"
dpkg --install /given/*.deb >/tmp/dpkg 2>&1 || fail "dpkg: $(cat /tmp/dpkg)"
grep -qx "# ours" /etc/sandstorm/sandstorm.yaml || fail "the configuration did not survive"
[[ $(sandstorm keys list) == *test* ]] || fail "the keys did not survive"
dpkg --purge sandstorm >/tmp/dpkg 2>&1 || fail "dpkg: $(cat /tmp/dpkg)"
nothing_left "the package"

# The archive.
tar -xf /given/*.tar.gz -C /tmp
cd /tmp/sandstorm-*
./install.sh >/tmp/installed
run_one /usr/local/bin/sandstorm
shells_complete
manual_reads /usr/local/share/man/man1
grep -qx 'ExecStart=/usr/local/bin/sandstorm serve' /usr/local/lib/systemd/system/sandstorm.service ||
  fail "the unit starts another program"
{ systemd-sysusers 2>/dev/null && id sandstorm >/dev/null; } || fail "the archive's user cannot be made"
./install.sh --remove >/dev/null
[[ -z $(find /usr/local -name '*sandstorm*') ]] || fail "the archive leaves files behind"
