// The official TypeScript client drives every tool, over pipes and over HTTP. Answers are checked by the client itself
// against the schemas that the server gives.
//
//   node typescript_client.mjs BINARY     with a server in SANDSTORM_URL and SANDSTORM_API_KEY

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const steps = JSON.parse(readFileSync(new URL("steps.json", import.meta.url)));
const toolsets = ["files", "forks", "packages", "sandboxrunner"];

const found = (data, path) => path.reduce((inner, part) => inner?.[part], data);

// With what earlier answers gave in the place of their names.
function filled(args, kept) {
  const value = (given) => (typeof given === "string" && given[0] === "$" ? (kept[given.slice(1)] ?? given) : given);
  return Object.fromEntries(Object.entries(args).map(([name, given]) => [name, value(given)]));
}

function check(step, way, result) {
  // What cannot be had everywhere is refused in these words, there and nowhere else.
  const allowed = step.refused?.[way];
  const words = result.content[0]?.text;
  if (result.isError && !(allowed && words.includes(allowed))) {
    throw new Error(`${step.tool} over ${way}: ${words}`);
  }
  for (const [path, wanted] of step.want ?? []) {
    const got = found(result.structuredContent, path);
    if (!isDeepStrictEqual(got, wanted)) {
      throw new Error(`${step.tool} over ${way}: ${JSON.stringify(got)} instead of ${JSON.stringify(wanted)}`);
    }
  }
}

async function drive(way, transport) {
  const client = new Client({ name: "test", version: "1" });
  await client.connect(transport);
  const listed = (await client.listTools()).tools.map((tool) => tool.name).sort();
  const kept = {};
  for (const step of steps) {
    const call = { name: step.tool, arguments: filled(step.args, kept) };
    const result = await client.callTool(call, undefined, { timeout: 120_000 });
    check(step, way, result);
    for (const [name, path] of Object.entries(step.keep ?? {})) kept[name] = found(result.structuredContent, path);
  }
  const called = [...new Set(steps.map((step) => step.tool))].sort();
  if (!isDeepStrictEqual(called, listed)) throw new Error(`called ${called}, but there are ${listed}`);
  console.log(`typescript client over ${way}: ${listed.length} tools`);
  await client.close();
}

const folder = mkdtempSync(join(tmpdir(), "mcp-"));
try {
  const args = ["mcp", "--state-dir", join(folder, "state"), ...toolsets.flatMap((name) => ["--toolset", name])];
  await drive("pipes", new StdioClientTransport({ command: process.argv[2], args }));
  const headers = { Authorization: `Bearer ${process.env.SANDSTORM_API_KEY}` };
  const url = new URL(`${process.env.SANDSTORM_URL}/mcp`);
  await drive("http", new StreamableHTTPClientTransport(url, { requestInit: { headers } }));
} finally {
  rmSync(folder, { recursive: true, force: true });
}
