# Mounting by every call that there is.
MS_BIND, MS_REC, MS_REMOUNT, MS_PRIVATE, MNT_DETACH = 4096, 16384, 32, 1 << 18, 2
AT_FDCWD, OPEN_TREE_CLONE, AT_RECURSIVE = -100, 1, 0x8000
before = read("/proc/self/mountinfo")
for kind in (b"tmpfs", b"proc", b"sysfs", b"cgroup", b"cgroup2", b"overlay", b"devtmpfs", b"debugfs", b"bpf", b"ext4"):
    refused(f"mount {kind}", lambda: syscall("mount", b"none", b"/tmp", kind, 0, b""), "EPERM")
    refused(f"fsopen {kind}", lambda: syscall("fsopen", kind, 0), "EPERM")
refused("bind", lambda: syscall("mount", b"/usr", b"/tmp", b"", MS_BIND | MS_REC, b""), "EPERM")
refused("make / writable", lambda: syscall("mount", b"", b"/", b"", MS_REMOUNT | MS_BIND, b""), "EPERM")
refused("propagation", lambda: syscall("mount", b"", b"/", b"", MS_PRIVATE | MS_REC, b""), "EPERM")
for path in (b"/proc/sys", b"/proc/kmsg", b"/dev/null", b"/usr", b"/", b"/workspace"):
    refused(f"umount {path}", lambda: syscall("umount2", path, MNT_DETACH), "EPERM")
refused("pivot_root", lambda: syscall("pivot_root", b"/tmp", b"/tmp"), "EPERM")
refused("chroot", lambda: syscall("chroot", b"/tmp"), "EPERM")
refused("open_tree", lambda: syscall("open_tree", AT_FDCWD, b"/", OPEN_TREE_CLONE | AT_RECURSIVE), "EPERM")
refused("open_tree_attr", lambda: syscall("open_tree_attr", AT_FDCWD, b"/", 1, 0, 0), "EPERM", "ENOSYS")
refused("move_mount", lambda: syscall("move_mount", AT_FDCWD, b"/usr", AT_FDCWD, b"/tmp", 0), "EPERM")
refused("fspick", lambda: syscall("fspick", AT_FDCWD, b"/", 0), "EPERM")
refused("fsconfig", lambda: syscall("fsconfig", 0, 6, 0, 0, 0), "EPERM")
refused("fsmount", lambda: syscall("fsmount", 0, 0, 0), "EPERM")
attributes = ctypes.create_string_buffer(32)
refused("mount_setattr", lambda: syscall("mount_setattr", AT_FDCWD, b"/", 0, attributes, 32), "EPERM")
check("the mounts are as before", read("/proc/self/mountinfo"), before)
kinds = {line.split(b" - ")[1].split()[0] for line in before.splitlines()}
check("kinds of file systems", sorted(kinds & {b"cgroup", b"cgroup2", b"sysfs", b"debugfs", b"tracefs", b"securityfs", b"mqueue"}), [])
done()
