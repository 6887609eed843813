"""Many sandboxes, each with a program that writes and a client that reads as it is written.

Two questions. How long after a program wrote a line does its client have it? The line carries the time at which it was
written, and both ends read one clock. And does the server's memory stay flat while it passes everything on?
"""

import argparse
import asyncio
import json
import statistics
import sys
import time

from server import Connection, Server

# Writes the time in nanoseconds, sleeps, and does so again until told otherwise.
PROGRAM = """exec 9<> <(:)
while :; do
  read -r -t {pause} -u 9 _
  now=$EPOCHREALTIME; echo "${{now/./}}"
  [ "${{now%.*}}" -ge {until} ] && exit 0
done"""


async def one(server, gate, pause, until, delays, failures):
    connection = Connection(server)
    try:
        async with gate:
            sandbox = await connection.call("POST", "/v1/sandboxes", {
                "lifetime": 600, "on_end": "delete",
                "limits": {"memory": "32M", "disk": "16M", "processes": 16, "wall": "300s"}})
        path = f"/v1/sandboxes/{sandbox['id']}/exec"
        program = PROGRAM.format(pause=pause, until=until)
        waiting = ""
        async for event in connection.events(path, {"command": ["/bin/bash", "-c", program]}):
            if event["type"] == "stdout":
                now = time.time_ns() // 1000
                waiting += event["text"]
                *lines, waiting = waiting.split("\n")
                delays.extend((now / 1e6, (now - int(line)) / 1000) for line in lines if line)
            elif event["type"] == "end" and not event["success"]:
                failures.append(event)
    except Exception as error:  # One client's trouble is a finding, not the end of the bench.
        failures.append(repr(error))
    finally:
        connection.close()


async def memory(server, started, samples):
    while True:
        samples.append((time.time() - started, server.resident_bytes()))
        await asyncio.sleep(1)


async def measure(server, count, seconds, pause):
    gate, delays, failures, samples = asyncio.Semaphore(8), [], [], []
    began = time.time()
    # Creations come first; the minute counts from when the last sandbox had time to start.
    until = int(began + count * 0.05 + seconds + 10)
    clients = [asyncio.create_task(one(server, gate, pause, until, delays, failures)) for _ in range(count)]
    await asyncio.sleep(until - seconds - time.time())
    started = time.time()
    watching = asyncio.create_task(memory(server, started, samples))
    await asyncio.gather(*clients)
    watching.cancel()
    window = [delay for at, delay in delays if at >= started]
    return window, failures, samples


def rank(values, part):
    return values[min(len(values) - 1, int(len(values) * part))]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--sandboxes", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two lines of one program")
    parser.add_argument("--out", required=True, help="Markdown file; the figures go beside it as JSON")
    options = parser.parse_args()
    server = Server(options.binary, "SANDSTORM_QUOTAS_SANDBOXES=100000", "SANDSTORM_QUOTAS_CPUS=100000",
                    "SANDSTORM_QUOTAS_MEMORY=1T", "SANDSTORM_QUOTAS_REQUESTS_PER_SECOND=100000",
                    "SANDSTORM_ADMISSION_MEMORY=1T", "SANDSTORM_LOG_LEVEL=warn")
    try:
        delays, failures, samples = asyncio.run(
            measure(server, options.sandboxes, options.seconds, options.pause))
    finally:
        server.stop()
    delays.sort()
    at = lambda second: min(samples, key=lambda sample: abs(sample[0] - second))[1]
    early, late = at(10), at(options.seconds)
    figures = {
        "sandboxes": options.sandboxes, "seconds": options.seconds, "lines": len(delays),
        "failures": len(failures), "examples": [str(failure) for failure in failures[:3]],
        "delay_ms": {"p50": statistics.median(delays), "p99": rank(delays, 0.99), "max": delays[-1]},
        "resident_mib": {"after 10 s": early / 2**20, f"after {options.seconds} s": late / 2**20},
    }
    lines = ["# Streams under load", "",
             f"{options.sandboxes} sandboxes, each with a program that writes a line every {options.pause} s and a client "
             f"that reads it, for {options.seconds} s.", "",
             "| what | figure |", "|---|---|",
             f"| lines | {len(delays):,} |", f"| failures | {len(failures)} |",
             f"| from written to received, p50 | {figures['delay_ms']['p50']:.2f} ms |",
             f"| from written to received, p99 | {figures['delay_ms']['p99']:.2f} ms |",
             f"| the slowest | {figures['delay_ms']['max']:.1f} ms |",
             f"| server's resident memory after 10 s | {early / 2**20:.1f} MiB |",
             f"| server's resident memory after {options.seconds} s | {late / 2**20:.1f} MiB ({late / early:.2f} x) |"]
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    with open(options.out, "w") as file:
        file.write(text)
    with open(options.out.removesuffix(".md") + ".json", "w") as file:
        json.dump(figures, file, indent=1)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
