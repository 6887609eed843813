"""A server for as long as a command runs, which finds its address and key in SANDSTORM_URL and SANDSTORM_API_KEY.

    served.py BINARY COMMAND...
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

TOOLSETS = ["files", "forks", "packages", "sandboxrunner"]


@contextlib.contextmanager
def serving(binary, *arguments, **variables):
    """Gives the address and, where the server asks for keys, its first one."""
    with tempfile.TemporaryDirectory() as folder:
        # The server becomes another user, who has to get to its state.
        pathlib.Path(folder).chmod(0o755)
        config = pathlib.Path(folder) / "sandstorm.yaml"
        config.write_text(f"dialects:\n  mcp:\n    toolsets: [{', '.join(TOOLSETS)}]\nlog:\n  level: error\n")
        command = [binary, "serve", "--listen", "127.0.0.1:0", "--state-dir", f"{folder}/state", "--config", config]
        environment = {"PATH": "/usr/bin:/bin", **variables}
        server = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True, env=environment)
        try:
            yield announced(server)
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)


def announced(server):
    key = None
    for line in server.stdout:
        if "first key" in line:
            key = line.split()[-1]
        if found := re.search(r"listening on (http://\S+)", line):
            return found[1], key
    raise SystemExit("the server ended before it listened")


def main(binary, *command):
    with serving(binary) as (url, key):
        environment = {**os.environ, "SANDSTORM_URL": url, "SANDSTORM_API_KEY": key}
        return subprocess.run(command, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
