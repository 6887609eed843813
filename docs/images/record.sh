#!/usr/bin/env bash
# Makes session.svg: types real commands into a real terminal and draws the screen that came out.
#
#   docs/images/record.sh [SANDSTORM]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$(realpath "${1:-$here/../../target/release/sandstorm}")
work=$(mktemp -d)
socket=$work/tmux
mkdir "$work/bin" "$work/session"
ln -s "$binary" "$work/bin/sandstorm"
tmux=(tmux -S "$socket" -f /dev/null)
trap '"${tmux[@]}" kill-server 2>/dev/null || true; rm -rf "$work"' EXIT

cat >"$work/session/agent.py" <<'PROGRAM'
import os, socket
print("I am uid", os.getuid(), "and see", *sorted(os.listdir("/")))
for path in ["/etc/shadow", "/root", "/var/lib"]:
    print(path, "is", "there" if os.path.exists(path) else "not there")
try:
    socket.create_connection(("192.0.2.1", 443), 2)
except OSError as error:
    print("network:", error.strerror)
PROGRAM

"${tmux[@]}" new-session -d -x 96 -y 32 -c "$work/session" \
  "env -i PATH='$work/bin:/usr/bin:/bin' HOME='$work' TERM=tmux-256color LANG=C.UTF-8 PS1='\[\e[1;32m\]\$\[\e[0m\] ' bash --norc --noprofile"

# Types one line and waits until the shell asks for the next one.
type_line() {
  "${tmux[@]}" send-keys -l "$1"
  "${tmux[@]}" send-keys Enter
  local tries
  for tries in $(seq 200); do
    sleep 0.1
    [[ $("${tmux[@]}" capture-pane -p | sed '/^ *$/d' | tail -n 1) =~ ^\$\ *$ ]] && return
  done
  echo "record: no prompt came after $tries tries: $1" >&2
  exit 1
}

sleep 0.5
type_line 'cat agent.py'
type_line 'sandstorm run agent.py'
type_line 'sandstorm run -l javascript -c '"'"'console.log([3, 1, 2].sort())'"'"
type_line 'sandstorm run --timeout 1s -l ruby -c '"'"'loop {}'"'"'; echo "exit code $?"'
type_line 'sandstorm run --memory 64M -l python -c '"'"'b"x" * 10**9'"'"'; echo "exit code $?"'
type_line 'sandstorm run -l c -c '"'"'#include <stdio.h>
int main(void) { puts("compiled and run inside"); }'"'"
"${tmux[@]}" capture-pane -e -p | python3 -B "$here/terminal_svg.py" >"$work/session.svg"
mv "$work/session.svg" "$here/session.svg"
