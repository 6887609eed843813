"""The memory of a server whose programs write far more than anybody reads.

First runs that print 90 MiB each, for clients that ask for the whole result, or for events, and then read nothing. Then
thousands of programs that print 300 KB and end, in sandboxes that live on. The sandboxes have memory of their own: what
is counted here is the server's.
"""

import argparse
import asyncio
import json
import re
import socket
import sys
import time

from server import Connection, Server

MIB = 2**20
PROGRAM = "import sys\nfor _ in range({count}): sys.stdout.write({piece!r} * 1024)"


def peak_bytes(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read())[1]) * 1024


def ask(server, accept, printed):
    """Sends a run and never reads."""
    body = json.dumps({"language": "python", "code": PROGRAM.format(count=printed, piece="x" * 1024),
                       "limits": {"output": "100M", "memory": "64M", "wall": "10m"}}).encode()
    client = socket.create_connection(("127.0.0.1", server.port))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.sendall((f"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {server.key}\r\n"
                    f"Accept: {accept}\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n").encode() + body)
    return client


async def unread(server, count, printed):
    """Resident memory while `count` whole results and as many streams of events are not read."""
    connection = Connection(server)
    results = [ask(server, "application/json", printed) for _ in range(count)]
    while True:
        ended = (await connection.call("GET", f"/v1/runs?limit={count}"))["items"]
        if len(ended) == count and all(run["ended_at"] for run in ended):
            break
        await asyncio.sleep(1)
    bad = [run for run in ended if run["status"] != "ok" or run["result"]["metrics"]["stdout_bytes"] != printed * MIB]
    if bad:
        raise SystemExit(f"{len(ended)} runs ended, {len(bad)} of them badly: {bad[:1]}")
    await asyncio.sleep(2)
    of_results = server.resident_bytes()
    streams = [ask(server, "text/event-stream", printed) for _ in range(count)]
    deadline = time.time() + 60
    while len((await connection.call("GET", "/v1/runs?running=true"))["items"]) < count and time.time() < deadline:
        await asyncio.sleep(0.5)
    await asyncio.sleep(5)
    of_streams = server.resident_bytes()
    for client in results + streams:
        client.close()
    while (await connection.call("GET", "/v1/runs?running=true"))["items"]:
        await asyncio.sleep(0.5)
    connection.close()
    return of_results, of_streams


async def ended(server, count, sandboxes, at_once):
    """Resident memory with that many programs that have ended."""
    left = iter(range(count))

    async def one(path):
        connection = Connection(server)
        for _ in left:
            result = await connection.call("POST", f"{path}/exec", {
                "command": ["/bin/sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x"]})
            if result["status"] != "ok" or len(result["stdout"]) != 300_000:
                raise SystemExit(f"an exec failed: {str(result)[:300]}")
        connection.close()

    connection = Connection(server)
    made = [await connection.call("POST", "/v1/sandboxes", {
        "lifetime": "2h", "limits": {"memory": "64M", "disk": "16M"}}) for _ in range(sandboxes)]
    await asyncio.gather(*(one(f"/v1/sandboxes/{made[n % sandboxes]['id']}") for n in range(at_once)))
    await asyncio.sleep(2)
    connection.close()
    return server.resident_bytes()


async def measure(server, options):
    fresh = server.resident_bytes()
    of_results, of_streams = await unread(server, options.runs, options.printed)
    after = server.resident_bytes()
    of_ended = await ended(server, options.execs, options.sandboxes, options.at_once)
    return {"fresh": fresh, "results": of_results, "streams": of_streams, "after": after, "ended": of_ended}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--runs", type=int, default=30, help="runs that print for nobody, of each kind")
    parser.add_argument("--printed", type=int, default=90, help="MiB that each of them prints")
    parser.add_argument("--execs", type=int, default=7000, help="programs of 300 KB that end")
    parser.add_argument("--sandboxes", type=int, default=8)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--limit", type=int, default=400, help="MiB that must be enough")
    parser.add_argument("--out", help="Markdown file; the figures go beside it as JSON")
    options = parser.parse_args()
    server = Server(options.binary, "SANDSTORM_QUOTAS_RUNS_PER_MINUTE=1000000", "SANDSTORM_QUOTAS_SANDBOXES=1000",
                    "SANDSTORM_QUOTAS_REQUESTS_PER_SECOND=1000000", "SANDSTORM_QUOTAS_CPUS=100000",
                    "SANDSTORM_QUOTAS_MEMORY=1T", "SANDSTORM_ADMISSION_MEMORY=1T", "SANDSTORM_LOG_LEVEL=warn")
    began = time.time()
    try:
        figures = asyncio.run(measure(server, options))
        figures["peak"] = peak_bytes(server)
    finally:
        server.stop()
    shown = {
        "fresh": "at the start",
        "results": f"{options.runs} results of {options.printed} MiB that nobody reads",
        "streams": f"and {options.runs} streams of the same that nobody reads",
        "after": "when their clients have gone",
        "ended": f"{options.execs:,} ended programs of 300 KB in {options.sandboxes} sandboxes",
        "peak": "the most at any time",
    }
    lines = ["# Memory of the server", "",
             "Resident memory of `sandstorm serve`, without its sandboxes, which have 64 MiB each.", "",
             "| when | resident |", "|---|---|"]
    lines += [f"| {what} | {figures[name] / MIB:.0f} MiB |" for name, what in shown.items()]
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    print(f"took {time.time() - began:.0f} s", file=sys.stderr)
    if options.out:
        with open(options.out, "w") as file:
            file.write(text)
        with open(options.out.removesuffix(".md") + ".json", "w") as file:
            json.dump({name: round(value / MIB, 1) for name, value in figures.items()}, file, indent=1)
    return 1 if figures["peak"] > options.limit * MIB else 0


if __name__ == "__main__":
    sys.exit(main())
