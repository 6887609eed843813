# /dev is the list below and nothing else.
import stat

NODES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
         "ptmx": "pts/ptmx"}
check("the listing", sorted(os.listdir("/dev")), sorted([*NODES, *LINKS, "pts", "shm"]))
for name, numbers in NODES.items():
    status = os.stat(f"/dev/{name}")
    check(f"/dev/{name}", (stat.S_ISCHR(status.st_mode), os.major(status.st_rdev), os.minor(status.st_rdev)), (True, *numbers))
for name, target in LINKS.items():
    check(f"/dev/{name}", os.readlink(f"/dev/{name}"), target)
check("terminals", sorted(os.listdir("/dev/pts")), ["ptmx"])
check("shared memory", os.listdir("/dev/shm"), [])
refused("replace a device", lambda: os.remove("/dev/null"), "EBUSY", "EROFS", "EACCES")
refused("move a device", lambda: os.rename("/dev/null", "/dev/x"), "EBUSY", "EROFS", "EACCES", "EXDEV")
refused("link in /dev", lambda: os.symlink("/proc/kmsg", "/dev/kmsg"), "EROFS", "EACCES")
refused("change a device", lambda: os.chmod("/dev/null", 0), "EPERM", "EROFS")
with open("/dev/shm/program", "w") as program:
    program.write("#!/bin/sh\n")
os.chmod("/dev/shm/program", 0o755)
refused("execute in /dev/shm", lambda: os.execv("/dev/shm/program", ["program"]), "EACCES")
done()
