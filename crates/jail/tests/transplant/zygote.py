"""A zygote for tests: forks guests into user, pid and mount namespaces, behind the payload's filter.

Arguments: the address to which guests connect, a file with the filter. Each line on stdin is the number of process ids
to use up in the guest's namespace before it is made, then a guest is made. A guest sends WARM, the inode of its socket
and the outer ends of its three streams, waits for a job of four bytes, and then serves code: a length and the text come
in, a length and the repr of the value go out.
"""

import ctypes
import fcntl
import os
import signal
import socket
import struct
import sys
import traceback

# Whoever starts the tests in the background has the interrupt ignored; an interpreter that inherits that does not catch it.
signal.signal(signal.SIGINT, signal.default_int_handler)

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]


def must(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), "a call of the zygote failed")


def keeper(ready, go, address, steps, use_up):
    """Parent of a namespace's first process and of the guest."""
    must(LIBC.unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS))
    os.write(ready, b"1")
    os.read(go, 1)
    first = os.fork()
    if first == 0:
        LIBC.prctl(PR_SET_PDEATHSIG, 9)
        while True:
            LIBC.pause()
    for _ in range(use_up):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    guest = os.fork()
    if guest == 0:
        run_guest(address, steps)
    os.waitpid(guest, 0)
    os.kill(first, 9)
    os._exit(0)


def run_guest(address, steps):
    side = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    side.connect(address)
    os.setresgid(1000, 1000, 1000)
    os.setresuid(1000, 1000, 1000)
    streams = [os.pipe(), os.pipe(), os.pipe()]
    outer = [streams[0][1], streams[1][0], streams[2][0]]
    word = b"WARM" + struct.pack("<Q", os.fstat(side.fileno()).st_ino)
    socket.send_fds(side, [word], outer)
    inner = [streams[0][0], streams[1][1], streams[2][1], side.detach()]
    parked = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in inner]
    for number, fd in enumerate(parked):
        os.dup2(fd, number)
    os.closerange(4, 4096)
    LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    program = Program(len(steps) // 8, steps)
    must(LIBC.prctl(PR_SET_SECCOMP, 2, ctypes.byref(program), 0, 0))
    if read(3, 4) is not None:
        serve(3)
    os._exit(0)


def read(fd, size):
    data = b""
    while len(data) < size:
        more = os.read(fd, size - len(data))
        if not more:
            return None
        data += more
    return data


def serve(fd):
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 200)
    os.close(fd)
    names = {"__name__": "__main__"}
    while True:
        header = read(moved, 4)
        if header is None:
            return
        text = read(moved, struct.unpack("<I", header)[0]).decode()
        answer = evaluate(text, names).encode()
        os.write(moved, struct.pack("<I", len(answer)) + answer)


def evaluate(text, names):
    try:
        try:
            code = compile(text, "<cell>", "eval")
        except SyntaxError:
            exec(compile(text, "<cell>", "exec"), names)
            return "done"
        return repr(eval(code, names))
    except BaseException:
        return traceback.format_exc()


def main():
    address, steps = sys.argv[1], open(sys.argv[2], "rb").read()
    # What is run once here need not be made anew in every guest.
    evaluate("1 + 1", {})
    block = 200000
    while line := sys.stdin.readline():
        block += 65536
        ready, go = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            keeper(ready[1], go[0], address, steps, int(line))
        os.read(ready[0], 1)
        for kind in ("gid", "uid"):
            with open("/proc/%d/%s_map" % (child, kind), "w") as file:
                file.write("0 %d 65536\n" % block)
        os.write(go[1], b"1")
        for fd in (*ready, *go):
            os.close(fd)


main()
