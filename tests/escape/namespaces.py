# New namespaces, and those of others.
import fcntl
import subprocess

KINDS = {"mnt": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000,
         "net": 0x40000000, "time": 0x80}
SIGCHLD = 17
for kind, flag in KINDS.items():
    refused(f"unshare {kind}", lambda: syscall("unshare", flag), "EPERM")
    if kind != "time":
        refused(f"clone {kind}", lambda: syscall("clone", flag | SIGCHLD, 0, 0, 0, 0), "EPERM")
        refused(f"clone {kind}, high bits", lambda: syscall("clone", flag | SIGCHLD | 1 << 32, 0, 0, 0, 0), "EPERM")
    arguments = (ctypes.c_uint64 * 11)(flag, 0, 0, 0, SIGCHLD)
    refused(f"clone3 {kind}", lambda: syscall("clone3", arguments, 88), "ENOSYS", "EPERM")
    own = os.open(f"/proc/self/ns/{kind}", os.O_RDONLY)
    refused(f"setns {kind}", lambda: syscall("setns", own, flag), "EPERM")
    os.close(own)
    refused(f"namespaces of PID 1: {kind}", lambda: os.open(f"/proc/1/ns/{kind}", os.O_RDONLY), "ENOENT", "EACCES", "EPERM")
# The parent of a guest interpreter is the launcher, outside: a sibling of it would be a child there that nobody collects.
CLONE_PARENT = 0x8000


def make_sibling():
    made = syscall("clone", CLONE_PARENT | SIGCHLD, 0, 0, 0, 0)
    return made or os._exit(0)


refused("a sibling", make_sibling, "EPERM")
for kind in ("user", "pid", "net", "mnt", "ipc", "uts", "cgroup", "time"):
    check(f"{kind} namespaces that may be made", read(f"/proc/sys/user/max_{kind}_namespaces").strip(), b"0")
# A guest interpreter has its parent outside and sees none: then PID 1 it is.
parent = syscall("pidfd_open", os.getppid() or 1, 0)
refused("setns by pidfd", lambda: syscall("setns", parent, KINDS["user"] | KINDS["mnt"]), "EPERM")
NS_GET_PARENT = 0xB702
user = os.open("/proc/self/ns/user", os.O_RDONLY)
refused("parent of the user namespace", lambda: fcntl.ioctl(user, NS_GET_PARENT), "EPERM", "EACCES")
pid = os.open("/proc/self/ns/pid", os.O_RDONLY)
refused("parent of the pid namespace", lambda: fcntl.ioctl(pid, NS_GET_PARENT), "EPERM", "EACCES")
tool = subprocess.run(["unshare", "--user", "--map-root-user", "id", "-u"], capture_output=True)
check("unshare(1)", (tool.returncode != 0, tool.stdout), (True, b""))
done()
