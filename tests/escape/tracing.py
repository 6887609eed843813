# Looking into and writing to other processes.
import signal

PTRACE_ATTACH, PTRACE_SEIZE, PTRACE_TRACEME = 16, 0x4206, 0
child = os.fork()
if child == 0:
    signal.pause()
buffer = ctypes.create_string_buffer(64)
local = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 64)
for pid in (1, os.getppid(), child):
    refused(f"ptrace attach {pid}", lambda: syscall("ptrace", PTRACE_ATTACH, pid, 0, 0), "EPERM")
    refused(f"ptrace seize {pid}", lambda: syscall("ptrace", PTRACE_SEIZE, pid, 0, 0), "EPERM")
    refused(f"process_vm_readv {pid}", lambda: syscall("process_vm_readv", pid, local, 1, local, 1, 0), "EPERM")
    refused(f"process_vm_writev {pid}", lambda: syscall("process_vm_writev", pid, local, 1, local, 1, 0), "EPERM")
    refused(f"kcmp {pid}", lambda: syscall("kcmp", os.getpid(), pid, 0, 0, 0), "EPERM")
refused("traceme", lambda: syscall("ptrace", PTRACE_TRACEME, 0, 0, 0), "EPERM")
refused("write to PID 1", lambda: os.open("/proc/1/mem", os.O_RDWR), "ENOENT", "EACCES", "EPERM")
first = syscall("pidfd_open", 1, 0)
for number in range(8):
    refused(f"descriptor {number} of PID 1", lambda: syscall("pidfd_getfd", first, number, 0), "EPERM")
refused("process_madvise", lambda: syscall("process_madvise", first, local, 1, 20, 0), "EPERM")
PR_SET_PTRACER, PR_SET_MM, PR_SET_DUMPABLE = 0x59616D61, 35, 4


def prctl(*arguments):
    if _libc.prctl(*arguments) == -1:
        raise OSError(ctypes.get_errno(), "prctl")


refused("PR_SET_PTRACER", lambda: prctl(PR_SET_PTRACER, -1, 0, 0, 0), "EPERM")
refused("PR_SET_MM", lambda: prctl(PR_SET_MM, 1, 0, 0, 0), "EPERM")
os.kill(child, signal.SIGKILL)
done()
