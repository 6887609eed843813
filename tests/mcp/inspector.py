"""MCP Inspector's two command-line programs: `--cli` judges the schemas, its companion that keeps a connection open drives
every tool, over pipes and over HTTP.

    inspector.py BINARY NODE_MODULES     with a server in SANDSTORM_URL and SANDSTORM_API_KEY
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from served import TOOLSETS
from steps import STEPS, TOOLS, Conversation

WIRES = ["legacy", "modern"]


class Inspector:
    def __init__(self, modules, home):
        self.modules = pathlib.Path(modules)
        # Its daemon, its catalogue and its sockets are its own.
        self.environment = {"PATH": f"{self.modules}/node/bin:/usr/bin:/bin", "HOME": home, "MCP_INSPECTOR_SECRET_STORE": "memory"}

    def run(self, program, *arguments):
        command = [self.modules / ".bin" / program, *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=120)

    def once(self, target, *arguments):
        done = self.run("mcp-inspector", "--cli", *arguments, "--format", "json", "-q", *target)
        if done.returncode != 0:
            raise SystemExit(f"{arguments}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return json.loads(done.stdout)["result"]

    def connect(self, *arguments):
        done = self.run("mcpdo", "--format", "json", "connect", *arguments)
        if done.returncode != 0:
            raise SystemExit(f"connect {arguments}: {done.stdout}{done.stderr}")
        return json.loads(done.stdout)["name"]

    def call(self, connection, tool, arguments):
        done = self.run(
            "mcpdo", "--format", "json", "--connection", connection,
            "tools/call", tool, "--tool-args-json", json.dumps(arguments),
        )
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError:
            raise SystemExit(f"{tool} {arguments}: exit {done.returncode}\n{done.stdout}{done.stderr}") from None


def judge(inspector, way, target):
    """Strict mode fails where a schema would not work with every assistant."""
    for wire in WIRES:
        era = ["--protocol-era", wire]
        listed = inspector.once(target, *era, "--method", "tools/list", "--strict")
        assert {tool["name"] for tool in listed["tools"]} == TOOLS
        code = json.dumps({"code": "print(6 * 7)"})
        ran = inspector.once(target, *era, "--method", "tools/call", "--tool-name", "run_code", "--tool-args-json", code)
        assert ran["structuredContent"]["stdout"] == "42\n", ran
        print(f"inspector over {way}, {wire}: {len(listed['tools'])} schemas")


def drive(inspector, way, target):
    connection = inspector.connect(*target)
    conversation = Conversation(way)
    for step in STEPS:
        result = inspector.call(connection, step["tool"], conversation.arguments(step))
        words = result["content"][0].get("text", "") if result["content"] else ""
        conversation.check(step, result.get("isError", False), words, result.get("structuredContent", {}))
    print(f"inspector over {way}: {len(TOOLS)} tools")


def nothing_is_left(records):
    """A server ends when its client is gone, and takes its records along."""
    patience = time.monotonic() + 60
    while left := list(records.glob("*")):
        if time.monotonic() > patience:
            raise SystemExit(f"left behind: {left}")
        time.sleep(0.1)


def main(binary, modules):
    toolsets = [argument for name in TOOLSETS for argument in ("--toolset", name)]
    url, key = os.environ["SANDSTORM_URL"], os.environ["SANDSTORM_API_KEY"]
    with tempfile.TemporaryDirectory() as home:
        inspector = Inspector(modules, home)
        pipes = ["--", binary, "mcp", "--state-dir", f"{home}/state", *toolsets]
        http = ["--transport", "http", "--header", f"Authorization: Bearer {key}"]
        try:
            judge(inspector, "pipes", pipes)
            judge(inspector, "http", ["--server-url", f"{url}/mcp", *http])
            drive(inspector, "pipes", pipes)
            drive(inspector, "http", [f"{url}/mcp", "--era", "modern", *http])
        finally:
            inspector.run("mcpdo", "daemon", "stop")
            nothing_is_left(pathlib.Path(home) / "state/mcp")


main(*sys.argv[1:])
