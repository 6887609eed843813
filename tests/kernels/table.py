"""The table of tested kernels in README.md, from tests/results/kernels.json.

    table.py write    puts it into README.md
    table.py check    fails when README.md has another one

It shows what was booted and held, and nothing else.
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
README = ROOT / "README.md"
BEGIN, END = "<!-- kernels: made by tests/kernels/table.py -->\n", "<!-- end of kernels -->\n"

CALLERS = {"root": "root", "single": "a user", "ranged": "a user with subordinate ids", "delegated": "a user with delegated groups"}
GROUPS = {"v2": "version 2", "hybrid": "hybrid"}


def value(words, key):
    found = re.search(rf"\b{key}=(\S+)", words)
    return found[1] if found else "-"


def tried(boot):
    named = [words for key, words in (("attacks", "the attacks"), ("matrix", "doctor's matrix")) if boot.get(key)]
    return f", {' and '.join(named)} among them" if named else ""


def row(boot):
    columns = [boot["release"], GROUPS[boot["groups"]]]
    if boot["starts"]:
        root = boot["walls"]["root"]
        landlock, missing = value(root, "landlock"), value(root, "missing")
        held = f"{boot['checks']} checks held" + tried(boot)
        callers = ", ".join(CALLERS[caller] for caller in boot["walls"])
        columns += [callers, landlock, "nothing" if missing == "-" else missing.replace(",", ", "), held]
    else:
        columns += ["root", "-", "everything", "refused, and `doctor` says why: older than 5.15"]
    return "| " + " | ".join(columns) + " |\n"


def table():
    boots = json.loads((ROOT / "tests/results/kernels.json").read_text())["boots"]
    head = "| kernel | control groups | run as | Landlock | missing as root | result |\n|---|---|---|---|---|---|\n"
    return head + "".join(map(row, boots))


def main(what):
    text = README.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    wanted = text[:begin] + "\n" + table() + "\n" + text[end:]
    if what == "write":
        README.write_text(wanted)
    elif wanted != text:
        sys.exit("kernels: the table in README.md is not that of tests/results/kernels.json: run tests/kernels/table.py write")


if __name__ == "__main__":
    if sys.argv[1:] not in (["write"], ["check"]):
        sys.exit(__doc__)
    main(sys.argv[1])
