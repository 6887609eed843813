#!/usr/bin/env bash
# Shows `sandstorm run` at work: two languages, a limit being hit, the walls that stood. Called by `make run`.
set -euo pipefail
cd "$(dirname "$0")/.."

sandstorm=${CARGO_TARGET_DIR:-target}/release/sandstorm
if [[ ! -x $sandstorm ]]; then
  echo "demo: $sandstorm is missing; \`make run\` builds it" >&2
  exit 1
fi

bold='' dim='' plain=''
if [[ -t 1 && -z ${NO_COLOR:-} && ${TERM:-dumb} != dumb ]]; then
  bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'
fi

# Prints what is about to happen, runs it, and insists on how it ends.
show() {
  local title=$1 expected=$2 code=0
  shift 2
  printf '\n%s%s%s\n' "$bold" "$title" "$plain"
  printf '%s$ sandstorm %s%s\n' "$dim" "$(quoted "$@")" "$plain"
  "$sandstorm" "$@" </dev/null 2>&1 || code=$?
  if [[ $code -ne $expected ]]; then
    echo "demo: that should have ended with exit code $expected, but it was $code" >&2
    echo "demo: \`$sandstorm doctor\` says what this machine allows" >&2
    exit 1
  fi
  [[ $code -eq 0 ]] || printf '%sexit code %s%s\n' "$dim" "$code" "$plain"
}

# The arguments as one would type them, long programs shortened to their first line.
quoted() {
  local word line=()
  for word in "$@"; do
    [[ $word == *$'\n'* ]] && word="${word%%$'\n'*} …"
    [[ $word =~ ^[A-Za-z0-9_./:=-]+$ ]] || word="'$word'"
    line+=("$word")
  done
  echo "${line[*]}"
}

python='import os, platform, socket
print("Python", platform.python_version(), "as uid", os.getuid(), "in", os.getcwd())
print("sees of the host:", " ".join(sorted(os.listdir("/"))))
for what, attempt in {
    "read /etc/shadow": lambda: open("/etc/shadow"),
    "write to /usr": lambda: open("/usr/mine", "w"),
    "reach the network": lambda: socket.create_connection(("192.0.2.1", 80), 1),
}.items():
    try:
        attempt()
        raise SystemExit("could " + what)
    except OSError as error:
        print(f"may not {what}: {error.strerror}")'

javascript='const primes = []
for (let n = 2; primes.length < 10; n++) if (primes.every(p => n % p)) primes.push(n)
console.log("Node", process.version, "says", primes.join(" "))'

# Reads a result and prints its walls; it runs in a sandbox like everything else here.
walls='import json, sys
result = json.load(sys.stdin)
walls, metrics = result["walls"], result["metrics"]
names = {"userns": "user", "pidns": "pid", "mountns": "mount", "netns": "net", "ipcns": "ipc", "utsns": "uts", "cgroupns": "cgroup"}
print("  namespaces    ", " ".join(short for key, short in names.items() if walls[key]))
print("  ids of its own", "yes" if walls["uid_wall"] else "no")
print("  capabilities  ", "none" if not any(walls["caps"].values()) else walls["caps"])
print("  no new rights ", "yes" if walls["nnp"] else "no")
print("  seccomp       ", walls["seccomp"]["profile"], walls["seccomp"]["hash"][:12])
print("  landlock      ", "ABI", walls["landlock"]["abi"])
print("  control groups", " ".join([walls["cgroup"]["version"], *walls["cgroup"]["controllers"]]))
print("  limits        ", " ".join(walls["limits"]["enforced"]))
print("  missing       ", ", ".join(wall["name"] for wall in walls["missing"]) or "nothing")
print("  took          ", round(metrics["total_ms"]), "ms, of which creating the sandbox", round(metrics["create_ms"]), "ms")'

show "A Python program, and what it may not do" 0 run -l python -c "$python"
show "A JavaScript program" 0 run -l javascript -c "$javascript"
show "A program that never ends, with one second to live" 124 run --timeout 1s -l python -c 'while True: pass'

if "$sandstorm" run --json -l bash -c true | grep -qF '"enforced":["wall","cpus","memory"'; then
  show "A program that wants more memory than it may have" 137 run --memory 64M -l python -c 'b"x" * 10**9'
else
  printf '\n%sMemory is not limited here%s: this user can make no control groups; try it as root.\n' "$bold" "$plain"
fi

printf '\n%sThe walls around such a run%s\n' "$bold" "$plain"
printf "%s\$ sandstorm run --json -l bash -c 'echo hello'%s\n" "$dim" "$plain"
"$sandstorm" run --json -l bash -c 'echo hello' </dev/null | "$sandstorm" run -l python -c "$walls"

cat <<END

${bold}Now you${plain}
  $sandstorm run -l python -c 'print(6 * 7)'
  $sandstorm run program.py
  $sandstorm languages
  $sandstorm doctor
  $sandstorm run --help
END
