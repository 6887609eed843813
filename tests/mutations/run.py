"""Takes one wall away at a time and sees its test turn red.

    run.py check                    every mutation fits the tree, and its test exists
    run.py run [--from N] [ITEM…]   runs each test while its mutation alone is set: it has to fail

A mutation is an entry of a TOML file in this folder: the item that it belongs to, what it takes away, the text to find (once)
and the text to put there, and the test as `cargo test` would name it. `run` works on a copy of the last commit under the target
folder, so the tree itself never changes. It compiles all mutations into one build, each behind a switch (switch.py), sees every
test pass while none is set, and then sets one after another; what no switch can hold it builds alone. It prints one line for each
mutation and keeps it in tests/results/mutations.md.
Exit codes: 0 every test turned red, 1 one did not, 2 bad usage.
"""

import json
import os
import pathlib
import re
import shutil
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


class Mutation:
    def __init__(self, entry):
        self.item, self.takes = entry["item"], entry["takes"]
        self.edits = [(edit["file"], edit["find"], edit["put"]) for edit in [entry, *entry.get("more", [])]]
        # `-p PACKAGE --lib TEST` or `-p PACKAGE --test PROGRAM TEST`
        self.place, _, self.test = entry["test"].rpartition(" ")
        self.package = self.place.split()[1]

    def problems(self, root):
        """What keeps it from being applied to this tree."""
        for file, find, put in self.edits:
            path = root / file
            count = path.read_text().count(find) if path.exists() else 0
            if count != 1:
                yield f"{file} has the text to find {count} times"
            if find == put:
                yield "it changes nothing"
        if not self.test_exists():
            yield f"there is no test {self.test}"

    def test_exists(self):
        name = self.test.rsplit("::", 1)[-1]
        found = subprocess.run(["git", "grep", "-qE", rf"\b{re.escape(name)}\b", "--", "crates/*.rs", "tests/*"], cwd=ROOT)
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


def copy_commit(stage):
    """The last commit, without what is not committed."""
    stage.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", stage], input=archive, check=True)


def files_below(folder):
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_symlink() or path.is_file()}


def sync(stage, tree):
    """Makes the tree equal to the stage. A file that is equal keeps its time, so that little is built again."""
    wanted = files_below(stage)
    for name in files_below(tree) - wanted:
        (tree / name).unlink()
    for name in wanted:
        new, old = stage / name, tree / name
        if not new.is_symlink() and not old.is_symlink() and old.exists() and new.read_bytes() == old.read_bytes():
            continue
        old.parent.mkdir(parents=True, exist_ok=True)
        old.unlink(missing_ok=True)
        shutil.copyfile(new, old, follow_symlinks=False)
        if not new.is_symlink():
            shutil.copymode(new, old)


class Program:
    """A built program. A test is started in its crate's folder, as cargo does."""

    def __init__(self, message):
        self.path = pathlib.Path(message["executable"])
        self.folder = pathlib.Path(message["manifest_path"]).parent
        package = tomllib.loads((self.folder / "Cargo.toml").read_text())["package"]["name"]
        kind, name = message["target"]["kind"][0], message["target"]["name"]
        self.place = f"-p {package} --lib" if kind == "lib" else f"-p {package} --{kind} {name}"
        self.is_test = message["profile"]["test"]

    def run(self, words):
        """The exit code and what was said; no exit code after too long a time."""
        command = ["timeout", "--kill-after=20", str(PATIENCE), self.path, *words]
        environment = dict(os.environ, CARGO_MANIFEST_DIR=str(self.folder))
        done = subprocess.run(
            command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
        return None if done.returncode in (124, 137) else done.returncode, done.stdout + done.stderr


def build(tree, packages):
    """The programs, or the first thing that the compiler said against them."""
    environment = dict(os.environ, CARGO_TARGET_DIR=str(TARGET / "build"))
    words = [word for package in packages for word in ("-p", package)]
    command = ["cargo", "test", "--locked", "--no-run", "--message-format=json-diagnostic-short", *words]
    done = subprocess.run(command, cwd=tree, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0:
        errors = [m["message"]["rendered"] for m in messages if m.get("message", {}).get("level") == "error"]
        raise Wrong("does not build", "".join(errors) or done.stderr[-2000:])
    return [Program(message) for message in messages if message.get("executable")]


class Wrong(Exception):
    """A verdict that is not `red`, and why."""


def judge(programs, mutation):
    """`red` with the test's own words, or why not."""
    program = programs.get(mutation.place)
    if program is None:
        raise Wrong("no test ran", f"there is no program {mutation.place}")
    code, said = program.run([mutation.test])
    if code is None:
        raise Wrong("hangs", "")
    # Suites without a harness say it in their own way, or end with the panic of the case that failed.
    ran = sum(int(passed) + int(failed) for passed, failed in re.findall(r"(\d+) passed[;,] (\d+) failed", said))
    if code == 0:
        raise Wrong(*(("green", "") if ran else ("no test ran", "")))
    panic = re.search(r"panicked at ([^\n]*)\n([^\n]*)", said)
    if not ran and not panic:
        raise Wrong("does not start", said[-500:])
    failed = re.search(r"^test (\S+) \.\.\. FAILED", said, re.M)
    words = panic[2] if panic else (failed[1] if failed else said.strip().splitlines()[-1])
    return " ".join(words.split())[:160]


def fail_with_every_wall(programs, wanted):
    """Before anything is taken away each test has to pass, else its failure would prove nothing. Gives those that do not."""
    failing = set()
    for place, test in sorted({(mutation.place, mutation.test) for mutation in wanted}):
        code, said = programs[place].run([test]) if place in programs else (None, "there is no such program")
        if code != 0:
            failing.add((place, test))
            print(f"mutations: fails with every wall: {place} {test}: {said[-3000:]}", file=sys.stderr, flush=True)
    return failing


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
    tree, stage = TARGET / "tree", TARGET / "stage"
    known = read_results()
    # Those that need the whole binary come last.
    wanted = sorted(mutations(items), key=lambda mutation: mutation.package == "sandstorm-cli")
    packages = sorted({mutation.package for mutation in wanted})
    numbered = {number: mutation for number, mutation in enumerate(wanted, 1) if number >= first}
    shutil.rmtree(stage, ignore_errors=True)
    copy_commit(stage)
    unfit = {number: "; ".join(found) for number, m in numbered.items() if (found := list(m.problems(stage)))}
    switched = switch.compile_in(stage, {number: m for number, m in numbered.items() if number not in unfit})
    sync(stage, tree)
    began = time.monotonic()
    try:
        programs, switches = ready(build(tree, packages))
    except Wrong as wrong:
        print("mutations: all together:", *wrong.args, file=sys.stderr)
        return 2
    print(f"{len(switched)} mutations in one build after {time.monotonic() - began:.0f} s", flush=True)
    failing = fail_with_every_wall(programs, numbered.values())
    print(f"{len(failing)} tests fail with every wall after {time.monotonic() - began:.0f} s", flush=True)
    wrong = 0
    for number in sorted(numbered, key=lambda number: number not in switched):
        mutation, began = numbered[number], time.monotonic()
        try:
            if number in unfit:
                raise Wrong("does not fit", unfit[number])
            elif (mutation.place, mutation.test) in failing:
                raise Wrong("fails with every wall", "")
            elif number in switched:
                switches.set(number)
                verdict, words = "red", judge(programs, mutation)
            else:
                verdict, words = "red", alone(tree, packages, mutation)
        except Wrong as wrong_way:
            verdict, words = wrong_way.args
        wrong += verdict != "red"
        print(f"{number}: {mutation.item}: {mutation.takes}: {verdict} after {time.monotonic() - began:.0f} s: {words}", flush=True)
        known[mutation.item, mutation.takes] = (mutation.test, verdict, " ".join(words.split())[:160])
        write_results(known)
    return 1 if wrong else 0


def ready(built):
    """The tests by their place, and the switches, of which none is set."""
    switches = switch.Switch({program.path for program in built})
    switches.set(switch.NONE)
    return {program.place: program for program in built if program.is_test}, switches


def alone(tree, packages, mutation):
    """What cannot be switched, such as a constant, is built and taken back by itself."""
    files = {tree / file for file, _, _ in mutation.edits}
    before = {path: path.read_text() for path in files}
    mutation.apply(tree)
    try:
        programs, _ = ready(build(tree, packages))
        return judge(programs, mutation)
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
