# Typing into the terminal of whoever started this.
import fcntl

TIOCSTI, TIOCLINUX, TIOCSETD, TIOCCONS = 0x5412, 0x541C, 0x5423, 0x541D
refused("a controlling terminal", lambda: os.open("/dev/tty", os.O_RDWR), "ENXIO")
for number in (0, 1, 2):
    for request in (TIOCSTI, TIOCLINUX, TIOCSETD, TIOCCONS):
        for high in (0, 1 << 32):
            answer = ctypes.c_long(request | high)
            def type_a_key():
                if _libc.ioctl(number, answer, b"!") == -1:
                    raise OSError(ctypes.get_errno(), "ioctl")
            refused(f"ioctl {request:x} on {number}", type_a_key, "EPERM")
    check(f"descriptor {number} is a terminal", os.isatty(number), False)
# In a terminal of one's own the same request is refused too.
master, slave = os.openpty()
refused("typing into an own terminal", lambda: fcntl.ioctl(slave, TIOCSTI, b"!"), "EPERM")
done()
