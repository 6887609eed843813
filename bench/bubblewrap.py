"""The arguments that make bubblewrap show a program the same mounts as the jail does."""

import subprocess

DEVICES = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/pts"}
LOOK = "cat /proc/self/mountinfo; echo --; find / -maxdepth 1 -type l -printf '%l %p\\n'; echo --; " \
    "find /etc -xdev -type f -perm 0644 -size -2 -printf '%p\\n'"


def same_mounts(sandstorm, folder):
    """Looks into a jail and returns (arguments, files to be found open from descriptor 10 on)."""
    shown = subprocess.run([sandstorm, "run", "-l", "bash", "-c", LOOK], check=True, capture_output=True, text=True)
    mounts, links, files = (part.strip().splitlines() for part in shown.stdout.split("--\n"))
    arguments = ["--unshare-all", "--proc", "/proc", "--dev", "/dev"]
    for line in mounts:
        fields, _, kind = line.partition(" - ")
        root, point, kind = fields.split()[3], fields.split()[4], kind.split()[0]
        if point in ("/", "/proc") or point in DEVICES:
            continue
        elif point.startswith("/proc/") and root == "/null":
            arguments += ["--dev-bind", "/dev/null", point]
        elif kind == "tmpfs":
            arguments += ["--tmpfs", point]
        else:
            arguments += ["--ro-bind", point, point]
    for line in links:
        arguments += ["--symlink", *line.split(" ")]
    inputs = []
    points = {line.split()[4] for line in mounts}
    for path in files:
        if path in points:
            continue
        copy = folder / path.replace("/", "_")
        copy.write_bytes(subprocess.run([sandstorm, "run", "-l", "bash", "-c", f"cat {path}"], check=True, capture_output=True).stdout)
        copy.chmod(0o644)
        arguments += ["--file", str(10 + len(inputs)), path]
        inputs.append(str(copy))
    return [*arguments, "--chdir", "/workspace"], inputs


PLAIN = [
    "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
    "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
]
