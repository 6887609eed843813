"""Can a tenant tell by the time of a refusal whether an id is another's or nobody's?

One tenant owns sandboxes. Another asks for them and, in turns, for ids that never were. Both get the same answer; this
measures how long each takes, and how often a guess by time would be right: 50 % is as good as a coin.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import time

from server import Connection, Server

ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


def stranger(server, binary):
    """A key of another tenant."""
    def run(*words):
        where = ["--state-dir", os.path.join(server.state.name, "state")]
        done = subprocess.run([binary, *words, *where], check=True, capture_output=True, text=True,
                              env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"})
        return done.stdout
    run("tenants", "create", "stranger")
    return json.loads(run("keys", "create", "--tenant", "stranger", "--json"))["key"]


async def measure(server, binary, rounds):
    owner = Connection(server)
    theirs = [(await owner.call("POST", "/v1/sandboxes", {"on_end": "delete"}))["id"] for _ in range(4)]
    owner.close()
    server.key = stranger(server, binary)
    asking, taken = Connection(server), {"another's": [], "nobody's": []}
    for turn in range(rounds + 50):
        order = list(taken)
        random.shuffle(order)
        for kind in order:
            # The last of 26 characters carries three bits.
            never = "sbx_" + "".join(random.choices(ALPHABET, k=25)) + random.choice("aeimquy4")
            sandbox = random.choice(theirs) if kind == "another's" else never
            began = time.perf_counter_ns()
            status, headers = await asking.send("GET", f"/v1/sandboxes/{sandbox}")
            async for _ in asking.pieces(headers):
                pass
            ended = time.perf_counter_ns()
            if status != 404:
                raise SystemExit(f"{kind} got {status}")
            if turn >= 50:
                taken[kind].append((ended - began) / 1000)
    asking.close()
    return taken


def guessed_right(one, other):
    """How often the larger of two times is of the first kind: the area under the curve of the best guess by time."""
    ranked = sorted([(value, 1) for value in one] + [(value, 0) for value in other])
    ranks = sum(place for place, (_, first) in enumerate(ranked, 1) if first)
    area = (ranks - len(one) * (len(one) + 1) / 2) / (len(one) * len(other))
    return max(area, 1 - area)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--out", required=True, help="Markdown file; the samples go beside it as JSON")
    options = parser.parse_args()
    server = Server(options.binary, "SANDSTORM_QUOTAS_REQUESTS_PER_SECOND=100000", "SANDSTORM_LOG_LEVEL=warn")
    try:
        taken = asyncio.run(measure(server, options.binary, options.rounds))
    finally:
        server.stop()
    at = lambda values, part: sorted(values)[int(len(values) * part)]
    lines = ["# Ids of others and of nobody", "",
             f"{options.rounds} requests for each, in turns, over one connection.", "",
             "| id | p50 | p90 | p99 |", "|---|---|---|---|"]
    lines += [f"| {kind} | " + " | ".join(f"{at(values, part):.0f} us" for part in (0.5, 0.9, 0.99)) + " |"
              for kind, values in taken.items()]
    right = guessed_right(*taken.values())
    lines += ["", f"Who guesses by the time of one answer is right {right:.1%} of the time; a coin is 50 %."]
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    with open(options.out, "w") as file:
        file.write(text)
    with open(options.out.removesuffix(".md") + ".json", "w") as file:
        json.dump({"guessed_right": right, "microseconds": taken}, file)


if __name__ == "__main__":
    main()
