# Files of the host by path, by climbing, through links, descriptors and handles. Arguments: paths of planted files.
import sys

for path in sys.argv[1:]:
    refused(f"read {path}", lambda: read(path), "ENOENT")
    refused(f"climb to {path}", lambda: read("/workspace/../../../../.." + path), "ENOENT")
    for root in ("/proc/self/root", "/proc/thread-self/root", "/proc/self/cwd/../.."):
        refused(f"{root}{path}", lambda: read(root + path), "ENOENT")
    refused(f"/proc/1/root{path}", lambda: read("/proc/1/root" + path), "ENOENT", "EACCES", "EPERM")
    link = "/tmp/link"
    os.symlink("../" * 20 + path.lstrip("/"), link)
    refused(f"link to {path}", lambda: read(link), "ENOENT")
    os.remove(link)
    top = os.open("/", os.O_PATH | os.O_DIRECTORY)
    refused(f"below a descriptor {path}", lambda: os.open("../../.." + path, os.O_RDONLY, dir_fd=top), "ENOENT")
    os.close(top)
    refused(f"hard link to {path}", lambda: os.link(path, "/tmp/hard"), "ENOENT", "EXDEV")

for path in ("/etc/shadow", "/etc/sudoers", "/etc/ssh", "/etc/machine-id", "/root", "/var", "/run", "/sys", "/boot", "/srv",
             "/mnt", "/media", "/opt"):
    refused(f"look at {path}", lambda: os.stat(path), "ENOENT")
check("the root", sorted(set(os.listdir("/")) - {"lib32", "libx32"}),
      ["bin", "dev", "etc", "home", "lib", "lib64", "proc", "sbin", "tmp", "usr", "workspace"])
check("homes", os.listdir("/home"), ["user"])
check("the parent of the root", os.stat("/..").st_ino, os.stat("/").st_ino)

for path in ("/new", "/usr/new", "/usr/bin/new", "/etc/new", "/dev/new", "/home/new", "/bin/new"):
    refused(f"create {path}", lambda: os.open(path, os.O_CREAT | os.O_WRONLY), "EROFS", "EACCES")
for path in ("/etc/passwd", "/usr/bin/env", "/usr/bin/python3", "/etc/resolv.conf"):
    refused(f"write {path}", lambda: write(path), "EROFS", "EACCES")
refused("rename /etc", lambda: os.rename("/etc", "/tmp/etc"), "EROFS", "EACCES", "EXDEV", "EBUSY")
refused("chmod /usr/bin/env", lambda: os.chmod("/usr/bin/env", 0o777), "EROFS", "EPERM")
refused("remove /workspace", lambda: os.rmdir("/workspace"), "EBUSY", "EROFS", "EACCES", "ENOTEMPTY")

handle = ctypes.create_string_buffer(b"\x08\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0", 136)
refused("open by handle", lambda: syscall("open_by_handle_at", -100, handle, 0), "EPERM")
mount = ctypes.c_int()
refused("make a handle", lambda: syscall("name_to_handle_at", -100, b"/usr", handle, ctypes.byref(mount), 0), "EPERM")
done()
