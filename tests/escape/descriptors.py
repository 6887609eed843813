# What the program was born with: three descriptors of its own and an environment that was built for it.
import stat

# An interpreter that was forked into the sandbox says on this one how it ends; nothing can be had from it.
LAST_WORD = 1023
for number in range(3, 1024):
    if number == LAST_WORD and stat.S_ISSOCK(os.fstat(number).st_mode if os.path.exists(f"/proc/self/fd/{number}") else 0):
        import socket

        word = socket.socket(fileno=os.dup(number))
        check("the family of the last word", word.family, socket.AF_UNIX)
        refused("reading the last word", lambda: word.recv(1, socket.MSG_DONTWAIT), "EAGAIN")
        continue
    refused(f"descriptor {number}", lambda: os.fstat(number), "EBADF")
for number in (0, 1, 2):
    mode = os.fstat(number).st_mode
    kind = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.fstat(number).st_rdev == os.makedev(1, 3)
    check(f"descriptor {number} is a pipe, a socket or null", kind, True)
    refused(f"descriptor {number} as a folder", lambda: os.listdir(f"/proc/self/fd/{number}/.."), "ENOTDIR", "ENOENT", "EACCES")
# Opened again for reading, a pipe of one's own holds what one wrote oneself; the search for markers looks at it.
for number in (1, 2):
    try:
        again = os.open(f"/proc/self/fd/{number}", os.O_RDONLY | os.O_NONBLOCK)
        print(os.read(again, 1 << 16))
    except OSError as error:
        check(f"descriptor {number} again", error.errno in (errno.EAGAIN, errno.ENXIO, errno.EACCES, errno.ENOENT), True)
check("the working folder", os.getcwd(), "/workspace")
expected = {"HOME", "LANG", "LOGNAME", "PATH", "USER", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONUTF8"}
check("names in the environment", sorted(set(os.environ) - expected), [])
print(dict(os.environ))
with open("/proc/self/environ", "rb") as environment:
    print(environment.read())
check("a session of its own", os.getsid(0) in (os.getpid(), os.getppid()), True)
done()
