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
for name in ("uid_map", "gid_map", "setgroups"):
    refused(f"write {name}", lambda: write(f"/proc/self/{name}", b"0 0 1"), "EPERM", "EACCES", "EINVAL")
refused("sysfs", lambda: os.listdir("/sys"), "ENOENT")
done()
