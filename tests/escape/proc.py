# /proc: other processes, PID 1, kernel-wide files, settings of the host.
own = {str(os.getpid()), str(os.getppid())}
pids = [name for name in os.listdir("/proc") if name.isdigit()]
check("visible processes", sorted(set(pids) - own), [])
check("the highest pid of a fresh namespace is small", max(map(int, pids)) < 50, True)

for name in ("environ", "mem", "maps", "auxv", "exe", "cmdline", "status", "stat", "comm"):
    refused(f"/proc/1/{name}", lambda: read(f"/proc/1/{name}"), "ENOENT", "EACCES", "EPERM")
for name in ("root", "cwd", "fd", "fdinfo", "map_files", "ns", "task"):
    refused(f"/proc/1/{name}", lambda: os.listdir(f"/proc/1/{name}"), "ENOENT", "EACCES", "EPERM")
for name in ("exe", "root", "cwd", "ns/mnt", "fd/0", "fd/3"):
    refused(f"follow /proc/1/{name}", lambda: os.open(f"/proc/1/{name}", os.O_RDONLY), "ENOENT", "EACCES", "EPERM")
    refused(f"link /proc/1/{name}", lambda: os.readlink(f"/proc/1/{name}"), "ENOENT", "EACCES", "EPERM")

for pid in range(1, 64):
    for name in ("environ", "cmdline", "status", "comm"):
        show(f"/proc/{pid}/{name}")
for name in ("net/unix", "net/tcp", "net/tcp6", "locks", "mounts", "partitions", "swaps", "diskstats"):
    show(f"/proc/{name}")

for name in ("cmdline", "config.gz", "kallsyms", "kcore", "key-users", "keys", "kmsg", "kpagecgroup", "kpagecount",
             "kpageflags", "latency_stats", "modules", "sched_debug", "slabinfo", "sysrq-trigger", "timer_list",
             "timer_stats", "vmallocinfo"):
    if os.path.exists(f"/proc/{name}"):
        check(f"/proc/{name} is empty", read(f"/proc/{name}"), b"")
        check(f"/proc/{name} is the null device", os.stat(f"/proc/{name}").st_rdev, os.makedev(1, 3))
for name in ("acpi", "asound", "scsi", "driver"):
    if os.path.exists(f"/proc/{name}"):
        check(f"/proc/{name} is empty", os.listdir(f"/proc/{name}"), [])

settings = [os.path.join(at, name) for at, _, names in os.walk("/proc/sys") for name in names]
check("there are settings to try", len(settings) > 100, True)
for path in settings:
    refused(f"write {path}", lambda: os.open(path, os.O_WRONLY), "EROFS", "EACCES", "EPERM", "ENOENT")
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/user/max_user_namespaces",
             "/proc/sys/vm/panic_on_oom"):
    refused(f"write {path}", lambda: write(path), "EROFS", "EACCES", "ENOENT")
refused("write /proc/irq", lambda: os.open("/proc/irq/default_smp_affinity", os.O_WRONLY), "EROFS", "EACCES", "ENOENT")
refused("lower oom_score_adj", lambda: write("/proc/self/oom_score_adj", b"-1000"), "EACCES", "EPERM")
# Landlock, of which the kernel is asked the version (landlock_create_ruleset), lets nothing below /proc be opened for writing.
if _libc.syscall(ctypes.c_long(444), ctypes.c_void_p(None), ctypes.c_size_t(0), ctypes.c_uint32(1)) > 0:
    for score in (0, 399, 1000):
        refused(f"set oom_score_adj to {score}", lambda: write("/proc/self/oom_score_adj", b"%d" % score), "EACCES")
    for name in ("comm", "mem", "clear_refs", "coredump_filter", "timerslack_ns", f"task/{os.getpid()}/comm"):
        refused(f"write {name}", lambda: os.open(f"/proc/self/{name}", os.O_WRONLY), "EACCES", "ENOENT")
# The links there lead to what is open, with the rights of its own place.
reader, writer = os.pipe()
check("write to a pipe by its link", write(f"/proc/self/fd/{writer}"), 1)
check("write to the null device by its link", write("/dev/fd/%d" % os.open("/dev/null", os.O_WRONLY)), 1)
for place in ("/workspace", "/tmp", "/dev/shm"):
    opened = os.open(f"{place}/opened", os.O_RDWR | os.O_CREAT, 0o600)
    check(f"write to a file of {place} by its link", write(f"/proc/self/fd/{opened}"), 1)
    os.unlink(f"{place}/opened")
    check(f"write to a deleted file of {place} by its link", write(f"/proc/self/fd/{opened}"), 1)
check("write to memory by its link", write(f"/proc/self/fd/{os.memfd_create('memory')}"), 1)
check("make a file below the link to a folder", os.close(os.open("/proc/self/cwd/made", os.O_WRONLY | os.O_CREAT)), None)
for name in ("uid_map", "gid_map", "setgroups"):
    refused(f"write {name}", lambda: write(f"/proc/self/{name}", b"0 0 1"), "EPERM", "EACCES", "EINVAL")
refused("sysfs", lambda: os.listdir("/sys"), "ENOENT")
done()
