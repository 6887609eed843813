# Control groups: seeing them, changing them, leaving them.
for line in read("/proc/self/cgroup").decode().splitlines():
    check(f"the group of {line}", line.split(":", 2)[2], "/")
refused("/sys/fs/cgroup", lambda: os.listdir("/sys/fs/cgroup"), "ENOENT")
for kind in (b"cgroup", b"cgroup2"):
    for options in (b"", b"memory", b"none,name=x", b"rdma"):
        refused(f"mount {kind} {options}", lambda: syscall("mount", b"none", b"/tmp", kind, 0, options), "EPERM")
found = []
for top, folders, names in os.walk("/", followlinks=False):
    if top.startswith("/proc") or top.startswith("/usr"):
        folders.clear()
        continue
    found += [os.path.join(top, name) for name in names if name in ("release_agent", "cgroup.procs", "tasks", "notify_on_release")]
check("files of control groups", found, [])
done()
