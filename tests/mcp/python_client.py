"""The official Python client drives every tool: over pipes and over HTTP, on both wires of the protocol.

What is called is in `steps.json`. Answers are checked by the client itself against the schemas that the server gives.
"""

import asyncio
import json
import pathlib
import subprocess
import sys
import tempfile

from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

TOOLSETS = ["files", "forks", "packages", "sandboxrunner"]


STEPS = json.loads((pathlib.Path(__file__).parent / "steps.json").read_text())


def found(data, path):
    for part in path:
        data = data[part]
    return data


def filled(value, kept):
    """With what earlier answers gave in the place of their names."""
    if isinstance(value, dict):
        return {name: filled(inner, kept) for name, inner in value.items()}
    return kept[value[1:]] if isinstance(value, str) and value[1:] in kept and value[0] == "$" else value


async def drive(client):
    listed = {tool.name for tool in (await client.list_tools()).tools}
    kept = {}
    for step in STEPS:
        tool, arguments = step["tool"], filled(step["args"], kept)
        result = await client.call_tool(tool, arguments)
        words = result.content[0].text if result.content else ""
        if result.is_error and not step.get("may_fail"):
            raise SystemExit(f"{tool} {arguments}: {words}")
        data = result.structured_content or {}
        for path, wanted in step.get("want", []):
            assert found(data, path) == wanted, (tool, data)
        kept.update({name: found(data, path) for name, path in step.get("keep", {}).items()})
    called = {step["tool"] for step in STEPS}
    assert called == listed, called ^ listed
    assert len((await client.list_prompts()).prompts) == 3
    assert len((await client.list_resource_templates()).resource_templates) == 3
    return len(listed)


async def over_pipes(binary, mode, state):
    arguments = ["mcp", "--state-dir", state]
    for name in TOOLSETS:
        arguments += ["--toolset", name]
    server = StdioServerParameters(command=binary, args=arguments)
    async with Client(server, mode=mode) as client:
        return await drive(client)


async def over_http(url, key, mode):
    import httpx2

    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=120) as http:
        async with Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client:
            return await drive(client)


def serve(binary, state):
    config = pathlib.Path(state) / "sandstorm.yaml"
    config.write_text(f"dialects:\n  mcp:\n    toolsets: [{', '.join(TOOLSETS)}]\nlog:\n  level: error\n")
    command = [binary, "serve", "--listen", "127.0.0.1:0", "--state-dir", f"{state}/state", "--config", config]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"PATH": "/usr/bin:/bin"})
    key = None
    for line in server.stdout:
        if "first key" in line:
            key = line.split()[-1]
        if "listening on" in line:
            return server, line.split()[-1], key
    raise SystemExit("the server ended before it listened")


async def main(binary):
    for mode in ("legacy", "2026-07-28"):
        with tempfile.TemporaryDirectory() as state:
            tools = await over_pipes(binary, mode, f"{state}/state")
            print(f"python client over pipes, {mode}: {tools} tools")
    with tempfile.TemporaryDirectory() as state:
        pathlib.Path(state).chmod(0o755)
        server, url, key = serve(binary, state)
        try:
            for mode in ("legacy", "2026-07-28"):
                tools = await over_http(url, key, mode)
                print(f"python client over HTTP, {mode}: {tools} tools")
        finally:
            server.send_signal(2)
            server.wait(30)


asyncio.run(main(sys.argv[1]))
