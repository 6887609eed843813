"""Runs the blocks of Markdown pages that are marked ```console run.

Lines after `$ ` are commands and lines after `> ` continue them. What follows is their output, the lines of both streams
merged in any way that keeps the order within each, since two pipes have none between them: `…` stands for anything within
a line, and alone on a line for any number of lines. The blocks of a page share a folder, empty at first, and their
commands share a shell within a block. Blocks marked ```console run root show limits that need
control groups; for other users they are skipped, or fail where SANDSTORM_REQUIRE_ALL is set. Blocks marked ```console run
server find a server of their page's own at SANDSTORM_URL, with a key in SANDSTORM_API_KEY.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

START, END = "```console run", "```"
NEEDS = ("", "root", "server")
MARK = "\x1e"
# Every command gets a mark before its output; the exit code of the one before stays in `$?`.
PRELUDE = f"mark() {{ local code=$?; printf '{MARK}'; printf '{MARK}' >&2; return $code; }}\n"


def blocks(text):
    """Yields (line number, what it needs, [(command, expected lines)])."""
    block, start, need = None, 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if block is None:
            if line.strip().startswith(START):
                block, start, need = [], number, line.strip().removeprefix(START).strip()
                if need not in NEEDS:
                    sys.exit(f"check-docs: line {number}: a block cannot need {need}")
        elif line.strip() == END:
            yield start, need, block
            block = None
        elif line.startswith("$ "):
            block.append((line[2:], []))
        elif line.startswith("> ") and block and not block[-1][1]:
            block[-1] = (block[-1][0] + "\n" + line[2:], [])
        elif block:
            block[-1][1].append(line)
        else:
            sys.exit(f"check-docs: line {number}: a block starts with a command")
    if block is not None:
        sys.exit(f"check-docs: line {start}: the block does not end")


def matches(expected, out, err):
    """Whether the lines of both streams can be merged into what the page says."""
    patterns = [None if line.strip() == "…" else re.compile(".*".join(map(re.escape, line.rstrip().split("…")))) for line in expected]
    # How many lines of each stream the page's lines so far may have stood for.
    reached = {(0, 0)}
    for pattern in patterns:
        if pattern is None:
            reached = {(o, e) for first, second in reached for o in range(first, len(out) + 1) for e in range(second, len(err) + 1)}
        else:
            from_out = {(o + 1, e) for o, e in reached if o < len(out) and pattern.fullmatch(out[o])}
            from_err = {(o, e + 1) for o, e in reached if e < len(err) and pattern.fullmatch(err[e])}
            reached = from_out | from_err
    return (len(out), len(err)) in reached


def outputs(commands, folder, environment):
    """Yields the lines of standard output and of standard error of each command."""
    script = PRELUDE + "".join(f"mark\n{command}\n" for command, _ in commands)
    run = ["bash", "-c", script]
    done = subprocess.run(run, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
    streams = (stream.decode(errors="replace").split(MARK)[1:] for stream in (done.stdout, done.stderr))
    for parts in zip(*streams, strict=True):
        yield tuple([line.rstrip() for line in part.splitlines()] for part in parts)


@contextlib.contextmanager
def server(binary):
    """A server with a state directory of its own; gives the variables that lead to it."""
    with tempfile.TemporaryDirectory(prefix="sandstorm-docs-server-") as folder, socket.socket() as probe:
        # The server's own user must be able to get through to its state.
        os.chmod(folder, 0o755)
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        probe.close()
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": folder, "SANDSTORM_STATE_DIR": f"{folder}/state"}
        key = json.loads(subprocess.run([binary, "keys", "create", "--json"], env=environment, check=True, capture_output=True, timeout=60).stdout)["key"]
        with open(f"{folder}/log", "wb") as log:
            running = subprocess.Popen([binary, "serve", "--listen", address], env=environment, stdout=subprocess.DEVNULL, stderr=log)
        try:
            answers(f"http://{address}/readyz", running, pathlib.Path(folder, "log"))
            yield {"SANDSTORM_URL": f"http://{address}", "SANDSTORM_API_KEY": key}
        finally:
            # Not SIGTERM: that would keep the sandboxes for the next server.
            running.send_signal(signal.SIGINT)
            running.wait(timeout=60)


def answers(address, running, log):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5):
            return
        if running.poll() is not None:
            sys.exit(f"{log.read_text()}check-docs: the server ended with {running.returncode}")
        time.sleep(0.02)
    sys.exit(f"{log.read_text()}check-docs: the server is not ready after 120 s")


def check(page, binary):
    failures = count = 0
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sandstorm-docs-"))
        environment = {"PATH": f"{folder}/bin:/usr/local/bin:/usr/bin:/bin", "HOME": folder, "LANG": "C.UTF-8"}
        os.mkdir(f"{folder}/bin")
        os.symlink(binary, f"{folder}/bin/sandstorm")
        work = pathlib.Path(folder, "work")
        work.mkdir()
        for number, need, commands in blocks(page.read_text()):
            if need == "root" and os.geteuid() != 0:
                print(f"{page}:{number}: skipped: only root can make control groups here")
                failures += "SANDSTORM_REQUIRE_ALL" in os.environ
                continue
            if need == "server" and "SANDSTORM_URL" not in environment:
                environment |= stack.enter_context(server(binary))
            for (command, expected), (out, err) in zip(commands, outputs(commands, work, environment), strict=True):
                count += 1
                if matches(expected, out, err):
                    continue
                failures += 1
                print(f"{page}:{number}: {command}\n  the page says:", *expected, sep="\n    ")
                print("  it printed:", *out, sep="\n    ")
                print("  and as errors:", *err, sep="\n    ")
    print(f"{page}: {count} commands, {failures} wrong")
    return failures, count


def main():
    binary, *pages = sys.argv[1:]
    checked = [check(pathlib.Path(page), binary) for page in pages]
    if not sum(count for _, count in checked):
        sys.exit("check-docs: there is no example to run")
    sys.exit(1 if any(failures for failures, _ in checked) else 0)


if __name__ == "__main__":
    main()
