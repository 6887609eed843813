// The official TypeScript client drives every tool, over pipes and over HTTP. What is called is in `steps.json`; answers are
// checked by the client itself against the schemas that the server gives.
//
//   node typescript_client.mjs pipes BINARY STATE | http URL KEY

import { readFileSync } from "node:fs";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const steps = JSON.parse(readFileSync(new URL("steps.json", import.meta.url)));
const toolsets = ["files", "forks", "packages", "sandboxrunner"];

const found = (data, path) => path.reduce((inner, part) => inner?.[part], data);

function filled(value, kept) {
  if (value !== null && typeof value === "object" && !Array.isArray(value)) {
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, filled(inner, kept)]));
  }
  return typeof value === "string" && value[0] === "$" && value.slice(1) in kept ? kept[value.slice(1)] : value;
}

function transport([how, ...rest]) {
  if (how === "pipes") {
    const [command, state] = rest;
    const args = ["mcp", "--state-dir", state, ...toolsets.flatMap((name) => ["--toolset", name])];
    return new StdioClientTransport({ command, args });
  }
  const [url, key] = rest;
  return new StreamableHTTPClientTransport(new URL(`${url}/mcp`), {
    requestInit: { headers: { Authorization: `Bearer ${key}` } },
  });
}

const client = new Client({ name: "test", version: "1" });
await client.connect(transport(process.argv.slice(2)));
const listed = (await client.listTools()).tools.map((tool) => tool.name).sort();
const kept = {};
for (const step of steps) {
  const args = filled(step.args, kept);
  const result = await client.callTool({ name: step.tool, arguments: args }, undefined, { timeout: 120_000 });
  if (result.isError && !step.may_fail) {
    throw new Error(`${step.tool} ${JSON.stringify(args)}: ${result.content[0].text}`);
  }
  const data = result.structuredContent ?? {};
  for (const [path, wanted] of step.want ?? []) {
    const got = found(data, path);
    if (JSON.stringify(got) !== JSON.stringify(wanted)) {
      throw new Error(`${step.tool}: ${JSON.stringify(got)} instead of ${JSON.stringify(wanted)}`);
    }
  }
  for (const [name, path] of Object.entries(step.keep ?? {})) kept[name] = found(data, path);
}
const called = [...new Set(steps.map((step) => step.tool))].sort();
if (JSON.stringify(called) !== JSON.stringify(listed)) throw new Error(`not called: ${listed} but ${called}`);
console.log(`typescript client over ${process.argv[2]}: ${listed.length} tools`);
await client.close();
