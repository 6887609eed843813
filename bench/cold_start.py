"""The cold start of `sandstorm run`, measured beside bubblewrap and beside no sandbox, interleaved in one run."""

import argparse
import datetime
import os
import pathlib
import pwd
import shutil
import tempfile

import bubblewrap
import report
from spawner import Spawner

BWRAP = "/usr/bin/bwrap"
PROGRAMS = {"bash": ["/bin/bash", "-c", "true"], "python": ["/usr/bin/python3", "-c", "print(1)"]}
RANGED_USER = "sandstorm-test"
# Rounds that are run and not counted: the first ones read binaries from the disk.
WARM_UP = 5


class Case:
    """One command of one caller. `against` names the case that it is compared with."""

    def __init__(self, name, caller, argv, against=None, inputs=()):
        self.name, self.caller, self.argv, self.against, self.inputs = name, caller, argv, against, inputs
        self.samples = []

    def run(self):
        return self.caller.run(self.argv, self.inputs)


def cases(sandstorm, callers, mounts, inputs):
    made = []
    for program, argv in PROGRAMS.items():
        made.append(Case(f"{program}: no sandbox", callers["root"], argv))
        made.append(Case(f"{program}: bwrap, few mounts", callers["root"], [BWRAP, *bubblewrap.PLAIN, *argv]))
        for caller in callers:
            if caller == "user with ids":
                reference = f"{program}: bwrap, user"
            else:
                reference = f"{program}: bwrap, {caller}"
                made.append(Case(reference, callers[caller], [BWRAP, *mounts, *argv], inputs=inputs))
            run = [sandstorm, "run", "-l", program, "-c", argv[-1]]
            made.append(Case(f"{program}: sandstorm, {caller}", callers[caller], run, reference))
    return made


def measure(made, rounds):
    for number in range(WARM_UP + rounds):
        # Each round starts elsewhere, so that no case always follows the same other.
        turn = number % len(made)
        for case in made[turn:] + made[:turn]:
            sample = case.run()
            if number >= WARM_UP:
                case.samples.append(sample)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("bench/results"))
    options = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="sandstorm-bench-") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        # A place that every user can reach: a checkout may lie in somebody's home.
        sandstorm = str(shutil.copy(options.binary, folder / "sandstorm"))
        mounts, inputs = bubblewrap.same_mounts(sandstorm, folder)
        home = folder / "home"
        home.mkdir()
        home.chmod(0o777)
        callers = {
            "root": Spawner(home=str(home)),
            "root, no control groups": Spawner(control_groups=False, home=str(home)),
            "user": Spawner(user="nobody", home=str(home)),
        }
        if any(entry.pw_name == RANGED_USER for entry in pwd.getpwall()):
            callers["user with ids"] = Spawner(user=RANGED_USER, home=str(home))
        made = cases(sandstorm, callers, mounts, inputs)
        before = os.getloadavg()
        measure(made, options.rounds)
        facts = report.facts(sandstorm, BWRAP, before, os.getloadavg())
        for caller in callers.values():
            caller.close()
    date = datetime.date.today().isoformat()
    report.keep(options.results / f"{date}-cold-start", made, facts, options.rounds)


if __name__ == "__main__":
    main()
