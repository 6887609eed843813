"""Takes one wall away at a time and sees its test turn red.

    run.py check                    every mutation fits the tree, and its test exists
    run.py run [--from N] [ITEM…]   applies each mutation alone, builds, and runs its test, which has to fail

A mutation is an entry of a TOML file in this folder: the item that it belongs to, what it takes away, the text to find (once)
and the text to put there, and the arguments of `cargo test`. `run` works on a copy of the last commit under the target folder,
so the tree itself never changes. It prints one line for each mutation and keeps it in tests/results/mutations.md.
Exit codes: 0 every test turned red, 1 one did not, 2 bad usage.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import time
import tomllib

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


def cargo(tree, words):
    """The exit code and what was said; no exit code after too long a time."""
    environment = dict(os.environ, CARGO_TARGET_DIR=str(TARGET / "build"))
    command = ["timeout", "--kill-after=20", str(PATIENCE if "--no-run" not in words else 3600), "cargo", "test", "--locked", *words]
    done = subprocess.run(command, cwd=tree, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return None if done.returncode in (124, 137) else done.returncode, done.stdout + done.stderr


def judge(tree, mutation):
    """`red` with the test's own words, or why not."""
    words = shlex.split(mutation.test)
    own = words[: words.index("--")] if "--" in words else words
    code, said = cargo(tree, ["--no-run", *own])
    if code != 0:
        error = re.search(r"^error.*$", said, re.M)
        return "does not build", error[0] if error else ""
    code, said = cargo(tree, words)
    if code is None:
        return "hangs", ""
    ran = sum(int(passed) + int(failed) for passed, failed in re.findall(r"(\d+) passed; (\d+) failed", said))
    if code == 0:
        return ("green", "") if ran or "test result" not in said else ("no test ran", "")
    panic = re.search(r"panicked at ([^\n]*)\n([^\n]*)", said)
    failed = re.search(r"^test (\S+) \.\.\. FAILED", said, re.M)
    words = panic[2] if panic else (failed[1] if failed else said.strip().splitlines()[-1])
    return "red", " ".join(words.split())[:160]


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
    wrong = 0
    known = read_results()
    # Those that need the whole binary come last.
    for number, mutation in enumerate(sorted(mutations(items), key=lambda mutation: "sandstorm-cli" in mutation.test)):
        if number < first:
            continue
        problems = list(mutation.problems(tree))
        began = time.monotonic()
        if problems:
            verdict, words = "does not fit", "; ".join(problems)
        else:
            mutation.apply(tree)
            try:
                verdict, words = judge(tree, mutation)
            finally:
                subprocess.run(["git", "checkout", "-q", "--force", "."], cwd=tree, check=True)
        wrong += verdict != "red"
        print(f"{number}: {mutation.item}: {mutation.takes}: {verdict} after {time.monotonic() - began:.0f} s: {words}", flush=True)
        known[mutation.item, mutation.takes] = (mutation.test_name(), verdict, words)
        write_results(known)
    return 1 if wrong else 0


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
