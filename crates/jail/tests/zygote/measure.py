"""What a join and a job cost: `python3 measure.py [modules to preload…]`. Not a test; needs root."""

import os
import statistics
import sys
import time

from harness import ENVIRONMENT, INTERPRETER, Jail, Zygote, encode_job, folder

ROUNDS = 300
WALL = 0x40000000


def report(name, values, unit="us"):
    values = sorted(values)
    p99 = values[int(len(values) * 0.99)]
    print("%-34s p50 %8.0f   p99 %8.0f %s" % (name, statistics.median(values), p99, unit))


def main():
    zygote = Zygote(preload=sys.argv[1:])
    print(zygote.answer)
    jail = Jail()
    place = folder()
    script = os.path.join(place, "main.py")
    with open(script, "w") as file:
        file.write("print(1)\n")
    kept = {name: [] for name in ("answered", "warm", "byte", "end", "faults", "warm faults", "cpu", "warm cpu")}
    for turn in range(2 * ROUNDS):
        before = time.perf_counter()
        answer, descriptors, side = zygote.ask(jail)
        answered = time.perf_counter()
        word, streams, _, _ = __import__("socket").recv_fds(side, 4096, 4)
        warm = time.perf_counter()
        assert word[:4] == b"WARM", word
        if turn % 2:
            time.sleep(0.02)
            start = time.perf_counter()
            side.sendall(encode_job([INTERPRETER, "main.py"], ENVIRONMENT, place, (), False))
            assert os.read(streams[1], 100)
            byte = time.perf_counter()
            # Nobody closes the streams of a program that still writes.
            while os.read(streams[1], 100):
                pass
        for descriptor in streams:
            os.close(descriptor)
        side.close()
        _, status, usage = os.wait4(answer["pid"], WALL)
        end = time.perf_counter()
        os.close(descriptors[0])
        cpu = (usage.ru_utime + usage.ru_stime) * 1e6
        if turn % 2:
            kept["byte"].append((byte - start) * 1e6)
            kept["end"].append((end - byte) * 1e6)
            kept["faults"].append(usage.ru_minflt)
            kept["cpu"].append(cpu)
        else:
            kept["answered"].append((answered - before) * 1e6)
            kept["warm"].append((warm - before) * 1e6)
            kept["warm faults"].append(usage.ru_minflt)
            kept["warm cpu"].append(cpu)
    report("join to the zygote's answer", kept["answered"])
    report("join to warm", kept["warm"])
    report("job to first byte", kept["byte"])
    report("first byte to reaped", kept["end"])
    report("guest without a job: faults", kept["warm faults"], "minor faults")
    report("guest with print(1): faults", kept["faults"], "minor faults")
    report("guest without a job: cpu", kept["warm cpu"])
    report("guest with print(1): cpu", kept["cpu"])
    jail.end()
    zygote.end()


if __name__ == "__main__":
    main()
