# Becoming somebody else, or more.
import resource
import shutil
import subprocess

ME = 1000
check("ids", (os.getresuid(), os.getresgid()), ((ME, ME, ME), (ME, ME, ME)))
for uid in (0, 1, 999, 1001, 65534):
    for call in ("setuid", "setgid"):
        refused(f"{call} {uid}", lambda: syscall(call, uid), "EPERM", "EINVAL")
    for call in ("setresuid", "setresgid"):
        refused(f"{call} {uid}", lambda: syscall(call, uid, uid, uid), "EPERM", "EINVAL")
refused("setgroups", lambda: os.setgroups([0]), "EPERM")
refused("setgroups to none", lambda: os.setgroups([]), "EPERM")

status = dict(line.split(":\t", 1) for line in read("/proc/self/status").decode().splitlines() if ":\t" in line)
for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
    check(name, status[name], "0" * 16)
check("NoNewPrivs", status["NoNewPrivs"], "1")
check("Seccomp", status["Seccomp"], "2")
PR_GET_SECUREBITS, PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 27, 28, 38, 47
# NOROOT, NO_SETUID_FIXUP, NO_CAP_AMBIENT_RAISE and the locks of these and of KEEP_CAPS.
check("secure bits", _libc.prctl(PR_GET_SECUREBITS, 0, 0, 0, 0), 0xEF)


def prctl(*arguments):
    if _libc.prctl(*arguments) == -1:
        raise OSError(ctypes.get_errno(), "prctl")


refused("secure bits off", lambda: prctl(PR_SET_SECUREBITS, 0, 0, 0, 0), "EPERM")
refused("no_new_privs off", lambda: prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0), "EINVAL", "EPERM")
refused("ambient capability", lambda: prctl(PR_CAP_AMBIENT, 2, 21, 0, 0), "EPERM")
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
full = (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)
refused("capset", lambda: syscall("capset", header, full), "EPERM")

for tool in ("/usr/bin/su", "/usr/bin/passwd", "/usr/bin/newgrp", "/usr/bin/mount"):
    if os.path.exists(tool):
        mode = os.stat(tool).st_mode
        check(f"{tool} is set-id on the host", bool(mode & 0o4000), True)
shutil.copy("/usr/bin/id", "/tmp/id")
os.chmod("/tmp/id", 0o6777)
check("a set-id copy", subprocess.run(["/tmp/id", "-u"], capture_output=True).stdout, b"%d\n" % ME)
refused("give a file to root", lambda: os.chown("/tmp/id", 0, 0), "EPERM", "EINVAL")
refused("file capabilities", lambda: os.setxattr("/tmp/id", "security.capability", bytes(20)), "EPERM", "EOPNOTSUPP", "EINVAL")
refused("trusted attributes", lambda: os.setxattr("/tmp/id", "trusted.x", b"1"), "EPERM", "EOPNOTSUPP")
if os.path.exists("/usr/bin/su"):
    asked = subprocess.run(["/usr/bin/su", "-c", "id -u"], capture_output=True, stdin=subprocess.DEVNULL)
    check("su gives root", b"0\n" == asked.stdout, False)

S_IFCHR, S_IFBLK = 0o020000, 0o060000
for kind, device in ((S_IFCHR, os.makedev(1, 1)), (S_IFCHR, os.makedev(1, 3)), (S_IFBLK, os.makedev(254, 0))):
    for folder in ("/tmp", "/workspace", "/dev/shm", "/dev"):
        refused(f"mknod in {folder}", lambda: os.mknod(f"{folder}/node", kind | 0o666, device), "EPERM", "EACCES", "EROFS")
refused("nice", lambda: os.setpriority(os.PRIO_PROCESS, 0, -20), "EACCES", "EPERM")
refused("real time", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)), "EPERM")
for limit in (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC):
    def raise_limit():
        try:
            resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        except ValueError:
            raise OSError(errno.EPERM, "setrlimit")
    refused(f"raise limit {limit}", raise_limit, "EPERM")
done()
