# Everything that a neighbour may have left, printed for the search for its mark.
import glob

for pattern in ("/tmp/**", "/dev/shm/**", "/workspace/**", "/home/**", "/var/**", "/run/**", "/proc/*/environ",
                "/proc/*/cmdline", "/proc/*/cwd/mark", "/proc/*/root/tmp/mark", "/proc/*/root/workspace/mark",
                "/proc/net/unix", "/proc/sysvipc/*"):
    for path in glob.glob(pattern, recursive=True):
        show(path)
check("processes", sorted(set(filter(str.isdigit, os.listdir("/proc"))) - {str(os.getpid()), str(os.getppid())}), [])
for line in read("/proc/net/unix").decode().splitlines()[1:]:
    print(line)
refused("signal a process of the host", lambda: os.kill(4_000_000, 9), "ESRCH")
done()
