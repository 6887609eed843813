"""Boots kernels in an emulator and tries the built binary on them.

    run.py short|each|all CACHE BINARY [SERIES…]

`short` boots two kernels, `each` every kernel with both kinds of control groups and the attacks of tests/escape, `all` the same
with every caller and the matrix of `doctor`. CACHE has a folder for each series of kernels, as `scripts/kernels.sh fetch` leaves it. What `each`
and `all` find goes to tests/results/kernels.json, of which README.md has the table (`table.py`); boots that were not asked
for stay there as they were. Exit codes: 0 everything held, 1 something did not, 2 bad usage.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULTS = ROOT / "tests/results/kernels.json"

# What is tried in `make test`: the kernels of Debian 12 and 13, each with the other kind of control groups.
SHORT = [("6.1", "hybrid"), ("6.12", "v2")]
# Older than what sandboxes are built with: the only thing to hold there is that it is said plainly.
TOO_OLD = {"5.10"}
# On a hybrid host a controller that a kernel no longer has in version 1 is on the unified tree. Nothing is missing because
# of that.
LAYOUTS = ["v2", "hybrid"]

PROGRAMS = """
    bash sh python3 setpriv unshare nsenter mount umount chroot mknod ip nft env cat cp head tail wc readlink sleep true ls id rm
    mkdir touch seq tr sed grep stat dd newuidmap newgidmap timeout date mke2fs
""".split()

# A boot may take this long beside other work; then it counts as lost.
LIMIT = 1800


def copy_into(root, path):
    """A file of this machine at the same place, with the libraries that it is linked to; links are followed."""
    target = root / path.relative_to("/")
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path.resolve(), target)
    for library in libraries(path):
        copy_into(root, library)


def libraries(path):
    said = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
    for found in re.findall(r"(/\S+) \(0x", said):
        # As the loader will look for it: /lib is a link to /usr/lib on every distribution that we know of.
        yield pathlib.Path("/usr" + found) if found.startswith("/lib") else pathlib.Path(found)


def program(name):
    found = shutil.which(name, path="/usr/bin:/usr/sbin:/bin:/sbin")
    if not found:
        sys.exit(f"kernels: the program {name} is missing: run scripts/setup.sh test")
    place = pathlib.Path(found)
    return pathlib.Path("/usr") / place.relative_to("/") if place.parts[1] in ("bin", "sbin") else place


def make_disk(work, binary):
    """The root of the emulated machine: this machine's Python and tools, the binary, the checks."""
    root = work / "root"
    for name in ("proc", "sys", "sys/fs/cgroup", "dev", "run", "tmp", "root", "etc", "mnt", "srv", "var", "var/tmp", "home", "usr/bin", "usr/sbin",
                 "usr/lib", "usr/lib64"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    for name in PROGRAMS:
        copy_into(root, program(name))
    copy_into(root, program("busybox"))
    python = pathlib.Path(subprocess.run(
        ["/usr/bin/python3", "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"], capture_output=True, text=True,
        check=True).stdout.strip())
    left_out = shutil.ignore_patterns("test", "tests", "idlelib", "lib2to3", "ensurepip", "tkinter", "turtledemo", "config-*", "*.a",
                                      "dist-packages")
    shutil.copytree(python, root / python.relative_to("/"), ignore=left_out, symlinks=False, ignore_dangling_symlinks=True)
    for extension in (root / python.relative_to("/")).rglob("*.so"):
        for library in libraries(extension):
            copy_into(root, library)
    real = pathlib.Path("/usr/bin/python3").resolve()
    copy_into(root, real)
    subprocess.run(["strip", "-o", root / "usr/bin/sandstorm", binary], check=True)
    (root / "usr/bin/sandstorm").chmod(0o755)
    for library in libraries(binary):
        copy_into(root, library)
    (root / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/bin/bash\nranged:x:1000:1000::/:/bin/bash\ndelegated:x:1001:1001::/:/bin/bash\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n")
    (root / "etc/group").write_text("root:x:0:\nranged:x:1000:\ndelegated:x:1001:\nnobody:x:65534:\n")
    for name in ("subuid", "subgid"):
        (root / "etc" / name).write_text("ranged:300000:65536\n")
    (root / "etc/shadow").write_text("root:*:1::::::\n")
    (root / "etc/shadow").chmod(0o600)
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    shutil.copytree(ROOT / "tests/escape", root / "kernels/escape")
    for name in ("start", "guest.py"):
        shutil.copy2(HERE / name, root / "kernels" / name)
    disk = work / "disk"
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    with open(disk, "wb") as file:
        file.truncate(size * 5 // 4 + (256 << 20))
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-N", "60000", "-d", root, disk], check=True)
    shutil.rmtree(root)
    return disk


def make_initramfs(work, series, kernel):
    root = work / f"initramfs-{series}"
    for name in ("bin", "proc", "sys", "dev", "root"):
        (root / name).mkdir(parents=True)
    shutil.copy2(program("busybox"), root / "bin/busybox")
    applets = subprocess.run([root / "bin/busybox", "--list"], capture_output=True, text=True, check=True).stdout.split()
    for name in {"sh", "mount", "insmod", "switch_root", "seq", "usleep", "echo", "["} & set(applets):
        (root / "bin" / name).symlink_to("busybox")
    shutil.copy2(HERE / "init", root / "init")
    (root / "init").chmod(0o755)
    shutil.copytree(kernel / "modules", root / "modules")
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    packed = work / f"initramfs-{series}.cpio"
    with open(packed, "wb") as file:
        subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=root, input=names.encode(), stdout=file, check=True)
    shutil.rmtree(root)
    return packed


class Boot:
    """One machine: a kernel with one kind of control groups."""

    def __init__(self, series, groups, extent, kernel, initramfs, disk, work):
        self.series, self.groups, self.extent = series, groups, extent
        self.kernel, self.initramfs, self.disk = kernel, initramfs, disk
        self.base = work / f"{series}-{groups}"
        self.checks, self.seconds = {}, 0

    @property
    def name(self):
        return f"{self.series} {self.groups}"

    def run(self):
        """Again when the emulator itself was at fault: that a kernel panics under it says nothing about us."""
        for attempt in (1, 2, 3):
            began = time.monotonic()
            console = self.attempt()
            self.seconds = time.monotonic() - began
            if self.checks.get("end") or attempt == 3 or not re.search(r"Kernel panic|BUG: |stuck for|rcu_\w+ self-detected", console):
                return
            print(f"kernels: {self.name}: the emulated kernel panicked; again", file=sys.stderr)

    def attempt(self):
        console, results = pathlib.Path(f"{self.base}.console"), pathlib.Path(f"{self.base}.results")
        owner = "0" if os.getuid() == 0 else "1"
        words = f"console=ttyS0 quiet panic=-1 no_timer_check kernels.groups={self.groups} kernels.checks={self.extent} kernels.owner={owner}"
        command = [
            "qemu-system-x86_64", "-machine", "q35,accel=tcg", "-cpu", "max", "-smp", "2", "-m", "3072", "-nographic", "-no-reboot",
            "-nic", "none", "-monitor", "none", "-serial", f"file:{console}", "-serial", f"file:{results}",
            "-drive", f"file={self.disk},format=raw,if=virtio,snapshot=on",
            "-kernel", self.kernel / "vmlinuz", "-initrd", self.initramfs, "-append", words,
        ]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as machine:
            timer = threading.Timer(LIMIT, machine.kill)
            timer.start()
            complaint = machine.stderr.read()
            machine.wait()
            timer.cancel()
        self.checks = {}
        for line in results.read_text(errors="replace").splitlines() if results.exists() else []:
            parts = line.rstrip("\r").split("\t")
            if len(parts) == 3:
                self.checks[parts[0]] = (parts[1], parts[2])
        text = console.read_text(errors="replace") if console.exists() else ""
        self.console = text + complaint
        return self.console

    def problems(self):
        """What did not hold, and what did not report."""
        found = [f"{name}: {verdict} {words}" for name, (verdict, words) in self.checks.items()
                 if verdict != "ok" and not self.may_be_missing(name, verdict)]
        found += [f"{name}: never reported" for name in self.expected() if name not in self.checks]
        release = self.checks.get("kernel", ("", ""))[1]
        if not re.match(re.escape(self.series) + r"\D", release):
            found.append(f"kernel: {release or 'none'} came up")
        if self.extent == "all" and len(self.cases()) < 30 and not self.too_old:
            found.append(f"matrix: {len(self.cases())} cases of at least 30 reported")
        return found

    @property
    def too_old(self):
        return self.series in TOO_OLD

    def cases(self):
        return [name for name in self.checks if name.startswith("root/") and name.split("/")[1] in ("walls", "limits", "escape")]

    def callers(self):
        names = ["root", "single"]
        if self.extent == "all":
            names += ["ranged"] + (["delegated"] if self.groups == "v2" else [])
        return names

    def expected(self):
        if self.too_old:
            return ["kernel", "starts", "root/doctor", "end"]
        names = ["kernel", "starts", "end"]
        names += [f"serve/{step}" for step in ("start", "pool", "files", "context", "fork", "pause", "takeover", "end")]
        for caller in self.callers():
            names += [f"{caller}/{check}" for check in ("run", "walls", "score", "network")]
            if caller in ("root", "delegated"):
                names += [f"{caller}/memory", f"{caller}/space"]
            if self.extent == "all" or caller == "root":
                names += [f"{caller}/{check}" for check in ("strict", "time", "doctor")]
            if caller == "root":
                names += [f"{caller}/{check}" for check in ("inodes", "disk")]
            if self.extent == "all":
                names.append(f"{caller}/matrix")
            if self.extent != "short":
                names += [f"{caller}/inodes", *(f"{caller}/attack/{name}" for name in attacks())]
                if caller != "root":
                    names += [f"{caller}/serve/{step}" for step in ("start", "run", "files", "end")]
        return names

    def may_be_missing(self, name, verdict):
        if verdict != "missing":
            return False
        if self.too_old:
            return name == "starts"
        caller, _, check = name.partition("/")
        # Without groups there is nothing that could count memory or share processors; without ids of one's own no wall of
        # ids; `--strict` is refused because of either. Root gets everything, on every kernel.
        return caller in ("single", "ranged", "delegated") and (check == "strict" or check.startswith(("limits/", "walls/own-user-id")))

    def finding(self):
        """What is kept of it."""
        told = {name: words for name, (_, words) in self.checks.items()}
        return {
            "series": self.series, "groups": self.groups, "release": told.get("kernel", ""),
            "starts": self.checks["starts"][0] == "ok", "checks": len(self.checks),
            "walls": {caller: told.get(f"{caller}/walls", "") for caller in self.callers() if not self.too_old},
            "attacks": self.extent != "short" and not self.too_old, "matrix": self.extent == "all" and not self.too_old, "says": told.get("root/doctor", ""),
        }


def attacks():
    text = (HERE / "guest.py").read_text()
    return re.findall(r'"(\w+)"', re.search(r"ATTACKS = \[(.*?)\]", text, re.S)[1])


def main(extent, cache, binary, *wanted):
    cache = pathlib.Path(cache)
    there = sorted((path.name for path in cache.iterdir() if (path / "vmlinuz").exists()), key=numbers)
    plan = SHORT if extent == "short" else [(series, groups) for series in there for groups in LAYOUTS]
    plan = [boot for boot in plan if not wanted or boot[0] in wanted]
    missing = sorted({series for series, _ in plan} - set(there))
    if missing:
        sys.exit(f"kernels: not fetched: {' '.join(missing)}")
    with tempfile.TemporaryDirectory(prefix="sandstorm-kernels-") as place:
        work = pathlib.Path(place)
        disk = make_disk(work, pathlib.Path(binary))
        packed = {series: make_initramfs(work, series, cache / series) for series in {series for series, _ in plan}}
        boots = [Boot(series, groups, extent, cache / series, packed[series], disk, work) for series, groups in plan]
        wrong = 0
        with concurrent.futures.ThreadPoolExecutor(max(2, (os.cpu_count() or 2) // 2)) as threads:
            for boot, _ in zip(boots, threads.map(Boot.run, boots)):
                problems = boot.problems()
                wrong += len(problems)
                words = boot.checks.get("kernel", ("", "no kernel came up"))[1]
                print(f"kernels: {boot.name} ({words}): {len(boot.checks)} checks in {boot.seconds:.0f} s, {len(problems)} wrong", flush=True)
                for problem in problems:
                    print(f"  {problem}")
                if extent != "short" and not problems:
                    keep(boot.finding())
                if problems:
                    print("  the console's end:\n    " + "\n    ".join(boot.console.splitlines()[-15:]))
    sys.exit(1 if wrong else 0)


def keep(finding):
    """Only what held is kept: a table of what was tried shows nothing else."""
    known = json.loads(RESULTS.read_text())["boots"] if RESULTS.exists() else []
    boots = {(boot["series"], boot["groups"]): boot for boot in [*known, finding]}
    ordered = sorted(boots.values(), key=lambda boot: (numbers(boot["series"]), boot["groups"]))
    RESULTS.write_text(json.dumps({"boots": ordered}, indent=1) + "\n")


def numbers(series):
    return [int(number) for number in series.split(".")]


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[1] not in ("short", "each", "all"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
