"""The official Python client drives every tool: over pipes and over HTTP, on both wires of the protocol.

Answers are checked by the client itself against the schemas that the server gives.

    python_client.py BINARY     with a server in SANDSTORM_URL and SANDSTORM_API_KEY
"""

import asyncio
import os
import sys
import tempfile

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from served import TOOLSETS
from steps import STEPS, TOOLS, Conversation

WIRES = ["legacy", "2026-07-28"]


async def drive(client, way, wire):
    listed = {tool.name for tool in (await client.list_tools()).tools}
    conversation = Conversation(way)
    for step in STEPS:
        result = await client.call_tool(step["tool"], conversation.arguments(step))
        words = result.content[0].text if result.content else ""
        conversation.check(step, result.is_error, words, result.structured_content or {})
    assert TOOLS == listed, TOOLS ^ listed
    assert len((await client.list_prompts()).prompts) == 3
    assert len((await client.list_resource_templates()).resource_templates) == 3
    print(f"python client over {way}, {wire}: {len(listed)} tools")


async def over_pipes(binary, wire):
    toolsets = [argument for name in TOOLSETS for argument in ("--toolset", name)]
    with tempfile.TemporaryDirectory() as folder:
        server = StdioServerParameters(command=binary, args=["mcp", "--state-dir", f"{folder}/state", *toolsets])
        async with Client(server, mode=wire) as client:
            await drive(client, "pipes", wire)


async def over_http(wire):
    headers = {"Authorization": f"Bearer {os.environ['SANDSTORM_API_KEY']}"}
    async with httpx2.AsyncClient(headers=headers, timeout=120) as http:
        transport = streamable_http_client(f"{os.environ['SANDSTORM_URL']}/mcp", http_client=http)
        async with Client(transport, mode=wire) as client:
            await drive(client, "http", wire)


async def main(binary):
    for wire in WIRES:
        await over_pipes(binary, wire)
        await over_http(wire)


asyncio.run(main(*sys.argv[1:]))
