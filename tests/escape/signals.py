# Signals to PID 1 and to numbers that could be anybody's on the host. Whoever gets them must still report how this ended.
import signal

for number in range(1, 65):
    try:
        os.kill(1, number)
    except OSError as error:
        check(f"signal {number} to PID 1", error.errno in (errno.EPERM, errno.ESRCH, errno.EINVAL), True)
others = [pid for pid in range(2, 5000) if pid not in (os.getpid(), os.getppid())]
for pid in others:
    refused(f"signal {pid}", lambda: os.kill(pid, signal.SIGKILL), "ESRCH")
refused("a group of the host", lambda: os.killpg(1, signal.SIGKILL), "ESRCH", "EPERM")
first = syscall("pidfd_open", 1, 0)
try:
    signal.pidfd_send_signal(first, signal.SIGKILL)
except OSError as error:
    check("a signal by pidfd", error.errno in (errno.EPERM, errno.ESRCH), True)
# Only this process is spared: it is the sender.
for number in set(signal.valid_signals()) - {signal.SIGSTOP, signal.SIGCHLD}:
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_IGN)
try:
    os.kill(-1, signal.SIGKILL)
except OSError as error:
    check("a signal to all", error.errno in (errno.EPERM, errno.ESRCH), True)
check("PID 1 is there", os.path.exists("/proc/self"), True)
done()
