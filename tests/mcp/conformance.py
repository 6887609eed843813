"""The official conformance suite of the Model Context Protocol against our server, both requirement sets.

The suite demands named fixtures, which a hidden switch puts beside the real tools on the same stack. It has no option for
headers, so the server asks for no keys. Needs npm; the package `node` brings the Node that the suite wants.
"""

import pathlib
import re
import signal
import subprocess
import sys
import tempfile

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
NODE = "node@22"
# Each with the fewest checks that have to pass: a suite that tests nothing passes nothing.
REQUIREMENTS = {"2025-11-25": 83, "2026-07-28": 197}


def install(folder):
    """Once for each checkout; npm leaves alone what is there."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "package.json").exists():
        (folder / "package.json").write_text('{"private": true}\n')
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent", NODE, SUITE], cwd=folder, check=True)
    modules = folder / "node_modules"
    return [modules / "node/bin/node", modules / "@modelcontextprotocol/conformance/dist/index.js"]


def address_of(server):
    for line in server.stdout:
        found = re.search(r"listening on (http://\S+)", line)
        if found:
            return found[1]
    raise SystemExit("the server ended before it listened")


def judge(suite, url, requirements, least):
    with tempfile.TemporaryDirectory() as results:
        command = [*suite, "server", "--url", f"{url}/mcp", "--requirements", requirements, "-o", results]
        done = subprocess.run(command, capture_output=True, text=True)
    total = re.search(r"Total: (\d+) passed, (\d+) failed", done.stdout)
    if done.returncode != 0 or total is None or int(total[2]) > 0 or int(total[1]) < least:
        raise SystemExit(f"{requirements}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    print(f"conformance {requirements}: {total[1]} checks passed")


def main():
    binary, folder = sys.argv[1:]
    suite = install(pathlib.Path(folder))
    with tempfile.TemporaryDirectory() as state:
        # The server becomes another user, who has to get to its state.
        pathlib.Path(state).chmod(0o755)
        arguments = ["serve", "--dev-no-auth", "--conformance-fixtures", "--listen", "127.0.0.1:0"]
        server = subprocess.Popen(
            [binary, *arguments, "--state-dir", f"{state}/state"], stdout=subprocess.PIPE, text=True,
            env={"PATH": "/usr/bin:/bin", "SANDSTORM_QUOTAS_REQUESTS_PER_SECOND": "10000", "SANDSTORM_LOG_LEVEL": "error"},
        )
        try:
            url = address_of(server)
            for requirements, least in REQUIREMENTS.items():
                judge(suite, url, requirements, least)
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)


main()
