# Keys of another run or of the host.
refused("add_key", lambda: syscall("add_key", b"user", b"mark", b"x", 1, -3), "ENOSYS", "EPERM")
refused("request_key", lambda: syscall("request_key", b"user", b"mark", 0, -3), "ENOSYS", "EPERM")
for operation in range(0, 33):
    refused(f"keyctl {operation}", lambda: syscall("keyctl", operation, -3, 0, 0, 0), "ENOSYS", "EPERM")
check("keys", read("/proc/keys"), b"")
check("key users", read("/proc/key-users"), b"")
done()
