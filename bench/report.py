"""Turns samples into a table, a chart and a file of raw figures."""

import html
import json
import os
import pathlib
import platform
import subprocess

METHOD = (
    "Whole processes, from spawn to exit, by the monotonic clock. The cases take turns within each round and each round starts "
    "with another case; the first rounds are not counted. CPU is user and system time of every process that a case started, "
    "including those that outlive the command. bwrap shows the program the same mounts as the jail (read off a jail at "
    "the start), but has no control groups, seccomp filter, Landlock domain, id block, limits or captured output; \"few mounts\" is "
    "the short command line that people type. A ratio compares with bwrap by the same caller: \"root, no control groups\" is root "
    "with /sys/fs/cgroup taken away, \"user\" is an ordinary one with a single id, \"user with ids\" has a subordinate range."
)


def facts(sandstorm, bwrap, before, after):
    def first_line(*argv):
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()[0]

    def field(path, key):
        lines = pathlib.Path(path).read_text().splitlines()
        return next((line.split(":", 1)[-1].split("=", 1)[-1].strip(' "\t') for line in lines if line.startswith(key)), "?")

    filesystems = {line.split()[2] for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()}
    groups = {"cgroup", "cgroup2"} & filesystems
    return {
        "system": field("/etc/os-release", "PRETTY_NAME="),
        "kernel": platform.release(),
        "processor": field("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory": field("/proc/meminfo", "MemTotal"),
        "control groups": "hybrid" if len(groups) == 2 else " ".join(groups) or "none",
        "sandstorm": first_line(sandstorm, "--version"),
        "bwrap": first_line(bwrap, "--version"),
        "load before and after": f"{before[0]:.1f}, {after[0]:.1f}",
    }


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def summary(case, made):
    walls = [wall for wall, _ in case.samples]
    cpus = [cpu for _, cpu in case.samples]
    row = {f"p{share}": percentile(walls, share / 100) for share in (50, 90, 99)}
    row |= {"min": min(walls), "cpu": sum(cpus) / len(cpus)}
    if case.against:
        reference = next(other for other in made if other.name == case.against)
        row["ratio"] = row["p50"] / percentile([wall for wall, _ in reference.samples], 0.5)
    return row


def keep(stem, made, facts, rounds):
    rows = {case.name: summary(case, made) for case in made}
    table = markdown(rows, facts, rounds)
    stem.parent.mkdir(parents=True, exist_ok=True)
    raw = {case.name: {"wall_ms": [round(w, 3) for w, _ in case.samples], "cpu_ms": [round(c, 3) for _, c in case.samples]} for case in made}
    data = {"facts": facts, "method": METHOD, "rounds": rounds, "summary": rows, "samples": raw}
    stem.with_suffix(".json").write_text(json.dumps(data) + "\n")
    stem.with_suffix(".md").write_text(table)
    stem.with_suffix(".svg").write_text(chart(rows))
    print(table)
    if float(facts["load before and after"].split(", ")[0]) > facts["cores"]:
        print("The machine was busy before this began: repeat it on a quiet one before believing a ratio.")
    print(f"kept as {stem}.json, .md and .svg")


def markdown(rows, facts, rounds):
    lines = [f"# Cold start, {rounds} rounds", "", "| case | p50 ms | p90 | p99 | min | CPU ms | p50 to bwrap's |", "|---|---|---|---|---|---|---|"]
    for name, row in rows.items():
        cells = [f"{row[key]:.2f}" for key in ("p50", "p90", "p99", "min", "cpu")]
        cells.append(f"{row['ratio']:.2f}" if "ratio" in row else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "## Host", ""] + [f"- {key}: {value}" for key, value in facts.items()]
    return "\n".join(lines + ["", "## Method", "", METHOD, ""])


def chart(rows):
    """Bars of p50 with a whisker to p90."""
    left, width, bar, gap = 320, 480, 18, 10
    scale = width / max(row["p90"] for row in rows.values())
    height = 50 + len(rows) * (bar + gap)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 190}" height="{height}" font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{left}" y="24" fill="#555">milliseconds from spawn to exit: bar p50, line p90</text>',
    ]
    for number, (name, row) in enumerate(rows.items()):
        y = 40 + number * (bar + gap)
        middle, end, far = y + bar / 2, left + row["p50"] * scale, left + row["p90"] * scale
        color = "#c2571a" if "sandstorm" in name else "#8a8f98"
        label = f"{row['p50']:.1f} ms" + (f"  ({row['ratio']:.2f} × bwrap)" if "ratio" in row else "")
        parts += [
            f'<text x="{left - 10}" y="{y + 14}" text-anchor="end" fill="#222">{html.escape(name)}</text>',
            f'<rect x="{left}" y="{y}" width="{end - left:.1f}" height="{bar}" fill="{color}"/>',
            f'<line x1="{end:.1f}" y1="{middle}" x2="{far:.1f}" y2="{middle}" stroke="#444"/>',
            f'<text x="{far + 8:.1f}" y="{y + 14}" fill="#222">{html.escape(label)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
