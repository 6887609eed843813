"""Takes one wall away at a time and sees its test turn red.

    run.py check                    every mutation fits the tree, and its test exists
    run.py run [--from N] [ITEM…]   runs each test while its mutation alone is set: it has to fail

A mutation is an entry of a TOML file in this folder: the item that it belongs to, what it takes away, the text to find (once)
and the text to put there, and the arguments of `cargo test`. `run` works on a copy of the last commit under the target folder,
so the tree itself never changes. It compiles all mutations into one build, each behind a switch (switch.py), sees every test pass
while none is set, and then sets one after another; what no switch can hold it builds alone. It prints one line for each mutation
and keeps it in tests/results/mutations.md.
Exit codes: 0 every test turned red, 1 one did not, 2 bad usage.
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time
import tomllib

import switch

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULTS = ROOT / "tests/results/mutations.md"
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "mutations"

HEAD = """# One wall taken away at a time

Each row is a run of `tests/mutations/run.py run`: what was taken away from the product, the test that has to notice, and the
first words of its failure. `red` is what is wanted.

| item | taken away | test | result | what the test said |
|---|---|---|---|---|
"""

# A test that hangs without its wall counts as red, but is no good proof: it is told apart.
PATIENCE = 300
# For all programs, or all tests of one.
PATIENCE_TOGETHER = 7200


class Mutation:
    def __init__(self, entry):
        self.item, self.takes, self.test = entry["item"], entry["takes"], entry["test"]
        self.edits = [(edit["file"], edit["find"], edit["put"]) for edit in [entry, *entry.get("more", [])]]

    def problems(self, root):
        """What keeps it from being applied to this tree."""
        for file, find, put in self.edits:
            path = root / file
            count = path.read_text().count(find) if path.exists() else 0
            if count != 1:
                yield f"{file} has the text to find {count} times"
            if find == put:
                yield "it changes nothing"
        if not self.test_exists(root):
            yield f"there is no test {self.test_name()}"

    def test_name(self):
        return next(word for word in reversed(shlex.split(self.test.split(" -- ")[0])) if not word.startswith("-"))

    def test_exists(self, root):
        name = self.test_name().rsplit("::", 1)[-1]
        found = subprocess.run(["git", "grep", "-qE", rf"\b{re.escape(name)}\b", "--", "crates/*.rs", "tests/*"], cwd=root)
        return found.returncode == 0

    def apply(self, root):
        for file, find, put in self.edits:
            path = root / file
            path.write_text(path.read_text().replace(find, put))


def mutations(items=()):
    found = []
    for path in sorted(HERE.glob("*.toml")):
        found += [Mutation(entry) for entry in tomllib.loads(path.read_text()).get("mutation", [])]
    return [mutation for mutation in found if not items or mutation.item in items or mutation.item.split()[0] in items]


def check():
    wrong = 0
    for mutation in mutations():
        for problem in mutation.problems(ROOT):
            wrong += 1
            print(f"mutations: {mutation.item} ({mutation.takes}): {problem}", file=sys.stderr)
    return 1 if wrong else 0


def copy_tree():
    """The last commit, in a work tree of its own that keeps its path, so that little is built again."""
    tree = TARGET / "tree"
    if tree.exists():
        subprocess.run(["git", "checkout", "-q", "--force", "--detach", git("rev-parse", "HEAD")], cwd=tree, check=True)
    else:
        subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
        subprocess.run(["git", "worktree", "add", "-q", "--force", "--detach", tree, "HEAD"], cwd=ROOT, check=True)
    return tree


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def cargo(tree, words, patience=PATIENCE):
    """The exit code and what was said; no exit code after too long a time."""
    environment = dict(os.environ, CARGO_TARGET_DIR=str(TARGET / "build"))
    command = ["timeout", "--kill-after=20", str(patience), "cargo", "test", "--locked", *words]
    done = subprocess.run(command, cwd=tree, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return None if done.returncode in (124, 137) else done.returncode, done.stdout + done.stderr


def build(tree, words):
    """The programs, or the first thing that the compiler said against them."""
    code, said = cargo(tree, ["--no-run", "--message-format=json-diagnostic-short", *words], PATIENCE_TOGETHER)
    messages = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    if code != 0:
        errors = [m["message"]["rendered"] for m in messages if m.get("message", {}).get("level") == "error"]
        raise Wrong("does not build", "".join(errors) or said[-2000:])
    return {pathlib.Path(m["executable"]) for m in messages if m.get("executable")}


class Wrong(Exception):
    """A verdict that is not `red`, and why."""


def judge(tree, mutation):
    """`red` with the test's own words, or why not."""
    code, said = cargo(tree, shlex.split(mutation.test))
    if code is None:
        raise Wrong("hangs", "")
    ran = sum(int(passed) + int(failed) for passed, failed in re.findall(r"(\d+) passed; (\d+) failed", said))
    if code == 0:
        raise Wrong(*(("green", "") if ran else ("no test ran", "")))
    if not ran:
        raise Wrong("does not start", said[-500:])
    panic = re.search(r"panicked at ([^\n]*)\n([^\n]*)", said)
    failed = re.search(r"^test (\S+) \.\.\. FAILED", said, re.M)
    words = panic[2] if panic else (failed[1] if failed else said.strip().splitlines()[-1])
    return " ".join(words.split())[:160]


def passes_with_every_wall(tree, wanted):
    """Before anything is taken away each test has to pass, else its failure would prove nothing."""
    together = {}
    for mutation in wanted:
        own, _, rest = mutation.test.partition(" -- ")
        *where, name = shlex.split(own)
        together.setdefault((*where, "--", *shlex.split(rest)), set()).add(name)
    wrong = 0
    for words, names in together.items():
        split = words.index("--")
        code, said = cargo(tree, [*words[:split], "--", *sorted(names), *words[split + 1 :]], PATIENCE_TOGETHER)
        if code != 0:
            wrong += 1
            print(f"mutations: fails with every wall: {' '.join(words)}: {said[-3000:]}", file=sys.stderr)
    return not wrong


def read_results():
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    rows = [re.split(r"(?<!\\) \| ", line[2:-2]) for line in lines if line.startswith("| ") and not line.startswith("| item ")]
    return {(item, takes): (test.strip("`"), verdict, words) for item, takes, test, verdict, words in rows}


def write_results(known):
    """In the order of the files, without rows of mutations that are gone."""
    text = HEAD
    for mutation in mutations():
        if found := known.get((mutation.item, mutation.takes)):
            test, verdict, words = found
            words = re.sub(r"(?<!\\)\|", r"\\|", words)
            text += f"| {mutation.item} | {mutation.takes} | `{test}` | {verdict} | {words} |\n"
    RESULTS.write_text(text)


def run(items, first):
    tree = copy_tree()
    known = read_results()
    # Those that need the whole binary come last.
    wanted = sorted(mutations(items), key=lambda mutation: "sandstorm-cli" in mutation.test)
    numbered = {number: mutation for number, mutation in enumerate(wanted, 1) if number >= first}
    unfit = {number for number, mutation in numbered.items() if any(mutation.problems(tree))}
    switched = switch.compile_in(tree, {number: m for number, m in numbered.items() if number not in unfit})
    packages = sorted({word for mutation in wanted for word in re.findall(r"-p (\S+)", mutation.test)})
    began = time.monotonic()
    try:
        programs = build(tree, [word for package in packages for word in ("-p", package)])
    except Wrong as wrong:
        print("mutations: all together:", *wrong.args, file=sys.stderr)
        return 2
    print(f"{len(switched)} mutations in one build after {time.monotonic() - began:.0f} s", flush=True)
    switches = switch.Switch(programs)
    switches.set(switch.NONE)
    if not passes_with_every_wall(tree, numbered.values()):
        return 2
    print(f"each test passes with every wall after {time.monotonic() - began:.0f} s", flush=True)
    wrong = 0
    for number in sorted(numbered, key=lambda number: number not in switched):
        mutation, began = numbered[number], time.monotonic()
        try:
            if number in unfit:
                raise Wrong("does not fit", "; ".join(mutation.problems(tree)))
            elif number in switched:
                switches.set(number)
                verdict, words = "red", judge(tree, mutation)
            else:
                verdict, words = "red", alone(tree, mutation)
        except Wrong as wrong_way:
            verdict, words = wrong_way.args
        wrong += verdict != "red"
        print(f"{number}: {mutation.item}: {mutation.takes}: {verdict} after {time.monotonic() - began:.0f} s: {words}", flush=True)
        known[mutation.item, mutation.takes] = (mutation.test_name(), verdict, " ".join(words.split())[:160])
        write_results(known)
    return 1 if wrong else 0


def alone(tree, mutation):
    """What cannot be switched, such as a constant, is built and taken back by itself."""
    files = {tree / file for file, _, _ in mutation.edits}
    before = {path: path.read_text() for path in files}
    mutation.apply(tree)
    try:
        words = shlex.split(mutation.test)
        build(tree, words[: words.index("--")] if "--" in words else words)
        return judge(tree, mutation)
    finally:
        for path, text in before.items():
            path.write_text(text)


def main(words):
    if words == ["check"]:
        return check()
    if words[:1] == ["run"]:
        first = int(words[2]) if words[1:2] == ["--from"] else 0
        return run(words[3:] if first or words[1:2] == ["--from"] else words[1:], first)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
