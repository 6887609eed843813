"""The official conformance suite of the Model Context Protocol against our server, both requirement sets.

The suite demands named fixtures, which a hidden switch puts beside the real tools on the same stack. It has no option for
headers, so the server asks for no keys.

    conformance.py BINARY NODE_MODULES
"""

import pathlib
import re
import subprocess
import sys
import tempfile

from served import serving

# Each with the fewest checks that have to pass: a suite that tests nothing passes nothing.
REQUIREMENTS = {"2025-11-25": 83, "2026-07-28": 197}


def judge(suite, url, requirements, least):
    with tempfile.TemporaryDirectory() as results:
        command = [*suite, "server", "--url", f"{url}/mcp", "--requirements", requirements, "-o", results]
        done = subprocess.run(command, capture_output=True, text=True)
    total = re.search(r"Total: (\d+) passed, (\d+) failed", done.stdout)
    if done.returncode != 0 or total is None or int(total[2]) > 0 or int(total[1]) < least:
        raise SystemExit(f"{requirements}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    print(f"conformance {requirements}: {total[1]} checks passed")


def main(binary, modules):
    modules = pathlib.Path(modules)
    suite = [modules / "node/bin/node", modules / "@modelcontextprotocol/conformance/dist/index.js"]
    options = ["--dev-no-auth", "--conformance-fixtures"]
    with serving(binary, *options, SANDSTORM_QUOTAS_REQUESTS_PER_SECOND="10000") as (url, _):
        for requirements, least in REQUIREMENTS.items():
            judge(suite, url, requirements, least)


main(*sys.argv[1:])
