"""What an honest sandbox notices of a hostile one beside it.

The honest one is a short program started again and again; the hostile one uses up what it can of its own limits. The
figure is the ratio of the honest one's latency beside each attack to its latency alone, from one run.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

ATTACKS = {
    "nothing": None,
    "endless loop": "while :; do :; done",
    "fork bomb": "f() { f | f & }; f; sleep 600",
    "memory hog": "while :; do python3 -c 'x = bytearray(1 << 30)'; done",
    "disk fill": "while :; do head -c 400M /dev/zero > /tmp/x; rm /tmp/x; done",
    "output flood": "yes",
    "many files": "while :; do mkdir d; (cd d; seq 20000 | xargs touch); rm -r d; done",
}


def latencies(binary, rounds):
    samples = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run([binary, "run", "-l", "bash", "-c", "true"], check=True, stdin=subprocess.DEVNULL)
        samples.append((time.perf_counter() - began) * 1000)
    return sorted(samples)


def beside(binary, attack, rounds):
    if attack is None:
        return latencies(binary, rounds)
    # Ended by its own limit or by us; started again when it ends early, so that the honest one is never alone.
    command = [binary, "run", "--timeout", "60s", "-l", "bash", "-c", attack]
    loop = ["bash", "-c", 'trap exit TERM; while :; do "$@" & wait; done', "bash", *command]
    attacker = subprocess.Popen(loop, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                start_new_session=True)
    try:
        time.sleep(0.5)
        return latencies(binary, rounds)
    finally:
        subprocess.run(["pkill", "-TERM", "-s", str(attacker.pid)], check=False)
        attacker.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--out", required=True, help="Markdown file; the samples go beside it as JSON")
    options = parser.parse_args()
    samples = {name: beside(options.binary, attack, options.rounds) for name, attack in ATTACKS.items()}
    quiet = samples["nothing"]
    rank = lambda values, part: values[min(len(values) - 1, int(len(values) * part))]
    lines = ["# An honest sandbox beside a hostile one", "",
             f"`sandstorm run -l bash -c true`, {options.rounds} rounds beside each attack, one attack after the other.", "",
             "| beside | p50 ms | p99 ms | p99 against p99 alone |", "|---|---|---|---|"]
    for name, values in samples.items():
        ratio = rank(values, 0.99) / rank(quiet, 0.99)
        lines.append(f"| {name} | {statistics.median(values):.1f} | {rank(values, 0.99):.1f} | {ratio:.2f} |")
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    with open(options.out, "w") as file:
        file.write(text)
    with open(options.out.removesuffix(".md") + ".json", "w") as file:
        json.dump(samples, file)


if __name__ == "__main__":
    main()
