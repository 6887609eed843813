"""Plays the launcher and the agent, so that the zygote's program can be tested without either.

A jail here is a process in namespaces of its own whose root is the host's. Needs root.
"""

import base64
import ctypes
import json
import os
import re
import signal
import socket
import struct
import tempfile
import unittest


def skip(reason):
    """Leaves a test out; where nothing may be left out, fails."""
    if "SANDSTORM_REQUIRE_ALL" in os.environ:
        raise AssertionError("nothing may be skipped here, but: " + reason)
    raise unittest.SkipTest(reason)


if os.geteuid() != 0:
    skip("makes namespaces with several ids: needs root")

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src")


def joined_program():
    """The zygote's program in one file of its own folder, joined as it is for the launcher."""
    with open(os.path.join(SOURCE, "zygote.rs")) as file:
        parts = re.findall(r'include_str!\("(.+?)"\)', file.read())
    place = tempfile.TemporaryDirectory(prefix="zygote-program-")
    path = os.path.join(place.name, "python.py")
    with open(path, "wb") as file:
        for part in parts:
            with open(os.path.join(SOURCE, part), "rb") as source:
                file.write(source.read())
    return place, path


PLACE, PROGRAM = joined_program()
INTERPRETER = os.environ.get("ZYGOTE_TEST_INTERPRETER", "/usr/bin/python3")
LIBC = ctypes.CDLL(None, use_errno=True)
NAMESPACES = {"mnt": 0x20000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000}
# As the launcher leaves them to a zygote: SETGID, SETUID, SETPCAP, SYS_CHROOT, SYS_ADMIN.
CAPABILITIES = {6, 7, 8, 18, 21}
PATIENCE = 60
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/home/user",
    "USER": "user",
    "LOGNAME": "user",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONUTF8": "1",
}
# As the agent sends it.
ENVIRONMENT = dict(sorted(ENVIRONMENT.items()))
OF_ZYGOTE = {**ENVIRONMENT, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def call(name, *arguments):
    result = getattr(LIBC, name)(*arguments)
    if result == -1:
        raise OSError(ctypes.get_errno(), name)
    return result


def filter_program(arch=None):
    """A filter in the shape of the payload's: a few calls refused with EPERM, `clone3` with ENOSYS, the rest allowed."""
    machine = arch or os.uname().machine
    audit, numbers, clone3 = {
        # mount, unshare, setns, ptrace
        "x86_64": (0xC000003E, (165, 272, 308, 101), 435),
        "aarch64": (0xC00000B7, (40, 97, 268, 117), 435),
    }[machine]
    program = [(0x20, 0, 0, 4), (0x15, 1, 0, audit), (0x06, 0, 0, 0x80000000), (0x20, 0, 0, 0)]
    for number in numbers:
        program += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | 1)]
    program += [(0x15, 0, 1, clone3), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7FFF0000)]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


class Jail:
    """A PID 1 that sleeps in namespaces of its own, and descriptors of them."""

    def __init__(self, id_map="0 100000 65536"):
        up, down = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        up.settimeout(PATIENCE)
        self.outer = os.fork()
        if self.outer == 0:
            self._build(up, down)
        down.close()
        assert up.recv(1) == b"u", "no user namespace"
        for name in ("uid_map", "gid_map"):
            with open("/proc/%d/%s" % (self.outer, name), "w") as file:
                file.write(id_map)
        up.send(b"m")
        # One word of PID 1 and one of its parent, in any order.
        words = {word[:1]: word[1:] for word in (up.recv(16), up.recv(16))}
        assert set(words) == {b"p", b"r"}, "no PID 1"
        self.pid = pid = int(words[b"p"])
        self.link, self.guests = up, []
        self.namespaces = {
            name: os.open("/proc/%d/ns/%s" % (pid, name), os.O_RDONLY | os.O_CLOEXEC) for name in NAMESPACES
        }

    def _build(self, up, down):
        try:
            # Above all the zygote's socket, whose end it would otherwise never see.
            os.closerange(3, down.fileno())
            os.closerange(down.fileno() + 1, 1024)
            call("prctl", 1, signal.SIGKILL, 0, 0, 0)
            call("unshare", sum(NAMESPACES.values()))
            down.send(b"u")
            down.recv(1)
            os.setgroups([])
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
            # Opened now: PID 1 is about to put a /proc of its own over this one.
            children = open("/proc/thread-self/children")
            pid = os.fork()
            if pid == 0:
                call("mount", None, b"/", None, 0x44000, None)
                call("mount", b"proc", b"/proc", b"proc", 0xE, None)
                call("prctl", 1, signal.SIGKILL, 0, 0, 0)
                down.send(b"r")
                down.recv(1)
                os._exit(0)
            down.send(b"p" + children.read().split()[0].encode())
            os.waitpid(pid, 0)
        finally:
            os._exit(0)

    def end(self):
        # A PID 1 cannot end before every process of its namespace has been waited for, and guests are our children.
        for guest in self.guests:
            guest.remove()
        self.link.close()
        for descriptor in self.namespaces.values():
            os.close(descriptor)
        os.waitpid(self.outer, 0)


class Zygote:
    """A zygote process, started with the rights that the launcher leaves it."""

    def __init__(self, preload=(), known=(), landlock=False, filter=None, interpreter=INTERPRETER, **hello):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.command, self.number = ours, 0
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._execute(theirs, interpreter)
            finally:
                os._exit(1)
        theirs.close()
        ours.settimeout(60)
        program = filter_program() if filter is None else filter
        text = base64.b64encode(program).decode()
        self.send({"hello": 1, "filter": text, "preload": list(preload), "known": list(known), "landlock": landlock, **hello})
        self.answer, _ = self.receive()
        self.landlock = landlock

    def _execute(self, command, interpreter):
        call("unshare", NAMESPACES["mnt"] | NAMESPACES["net"] | NAMESPACES["ipc"] | NAMESPACES["uts"])
        call("mount", None, b"/", None, 0x44000, None)
        program = os.path.realpath(PROGRAM)
        null = os.open("/dev/null", os.O_RDWR)
        errors = os.environ.get("ZYGOTE_TEST_ERRORS")
        for number in (0, 1, 2):
            os.dup2(null, number)
        if errors:
            os.dup2(os.open(errors, os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
        os.dup2(command.fileno(), 3)
        os.closerange(4, 1024)
        # There is no /proc in a zygote.
        while LIBC.umount2(b"/proc", 2) == 0:
            pass
        for capability in range(64):
            if capability not in CAPABILITIES:
                LIBC.prctl(24, capability, 0, 0, 0)
        call("prctl", 38, 1, 0, 0, 0)
        call("prctl", 1, signal.SIGKILL, 0, 0, 0)
        os.execve(interpreter, [interpreter, program], OF_ZYGOTE)

    def send(self, message, descriptors=()):
        socket.send_fds(self.command, [json.dumps(message).encode()], list(descriptors))

    def receive(self):
        data, descriptors, _, _ = socket.recv_fds(self.command, 1 << 16, 4)
        return (json.loads(data) if data else None), descriptors

    def ask(self, jail, uid=1000, gid=1000, rlimits=(), leave_out=(), replace=None, **extra):
        """Asks for a guest and gives the answer with both what belongs to it."""
        ours, theirs = socket.socketpair()
        ours.settimeout(PATIENCE)
        named = {"side": theirs.fileno(), **jail.namespaces, **extra, **(replace or {})}
        order = [(name, fd) for name, fd in named.items() if name not in leave_out]
        self.number += 1
        request = {"join": self.number, "uid": uid, "gid": gid, "rlimits": list(rlimits), "fds": [n for n, _ in order]}
        self.send(request, [fd for _, fd in order])
        theirs.close()
        answer, descriptors = self.receive()
        return answer, descriptors, ours

    def join(self, jail, **options):
        answer, descriptors, side = self.ask(jail, **options)
        if answer is None or "joined" not in answer:
            raise AssertionError("no guest: %r" % (answer,))
        guest = Guest(descriptors[0], side)
        jail.guests = [other for other in jail.guests if other.pidfd is not None] + [guest]
        return guest

    def end(self):
        self.command.close()
        return os.waitpid(self.pid, 0)[1]


class Guest:
    """A guest as the agent sees it."""

    def __init__(self, pidfd, side):
        self.pidfd, self.side, self.streams = pidfd, side, []
        data, self.streams, _, _ = socket.recv_fds(side, 4096, 4)
        self.word = data
        if data[:4] == b"WARM":
            self.pid, self.uid, self.gid, self.capabilities, self.no_new_privs, self.seccomp = struct.unpack(
                "<IIIQBI", data[4:]
            )

    @property
    def failure(self):
        assert self.word[:4] == b"FAIL", self.word
        return self.word[8:].decode(), struct.unpack("<I", self.word[4:8])[0]

    def start(self, argv, env=None, cwd="/", files=(), keep_side=False):
        self.side.sendall(encode_job(argv, ENVIRONMENT if env is None else env, cwd, files, keep_side))

    def status(self):
        """Nothing when the program is about to run, else (step, errno)."""
        (size,) = struct.unpack("<I", self._exactly(4))
        if size == 0:
            return None
        body = self._exactly(size)
        return body[4:].decode(), struct.unpack("<I", body[:4])[0]

    def _exactly(self, size):
        data = b""
        while len(data) < size:
            piece = self.side.recv(size - len(data))
            assert piece, "the guest has gone"
            data += piece
        return data

    def finish(self, stdin=b"", close_stdout=False):
        """Gives it its input and collects (status, stdout, stderr); a status below zero is a signal."""
        into, out, err = self.streams
        self.streams = []
        feeder = None
        if stdin:
            import threading

            feeder = threading.Thread(target=lambda: (write_all(into, stdin), os.close(into)))
            feeder.start()
        else:
            os.close(into)
        if close_stdout:
            os.close(out)
        output = read_both(() if close_stdout else (out,), err)
        if feeder:
            feeder.join()
        return (self.wait(), *output)

    def wait(self):
        result = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | 0x40000000)
        os.close(self.pidfd)
        self.pidfd = None
        self.side.close()
        return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status

    def remove(self):
        """What is left of it when a test has failed."""
        if self.pidfd is not None:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            self.wait()

    def abandon(self):
        """Ends it as the loss of its agent does."""
        self.side.close()
        for descriptor in self.streams:
            os.close(descriptor)
        return self.wait()


def write_all(descriptor, data):
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except BrokenPipeError:
        pass


def read_both(outs, err):
    import select

    poll, parts = select.poll(), {fd: [] for fd in (*outs, err)}
    for descriptor in parts:
        poll.register(descriptor, select.POLLIN)
    left = set(parts)
    while left:
        events = poll.poll(PATIENCE * 1000)
        assert events, "no output and no end"
        for descriptor, _ in events:
            data = os.read(descriptor, 65536)
            parts[descriptor].append(data)
            if not data:
                poll.unregister(descriptor)
                os.close(descriptor)
                left.discard(descriptor)
    return b"".join(parts[outs[0]]) if outs else b"", b"".join(parts[err])


def encode_job(argv, env, cwd, files, keep_side, untouched=False):
    def string(value):
        data = os.fsencode(value)
        return struct.pack("<I", len(data)) + data

    body = struct.pack("<I", len(argv)) + b"".join(map(string, argv))
    pairs = list(env.items() if isinstance(env, dict) else env)
    body += struct.pack("<I", len(pairs)) + b"".join(string(name) + string(value) for name, value in pairs)
    body += string(cwd) + bytes([(1 if keep_side else 0) | (4 if untouched else 0)])
    body += struct.pack("<I", len(files)) + b"".join(string(path) + string(content) for path, content in files)
    return struct.pack("<I", len(body)) + body


def folder():
    """A folder that the payload may write to."""
    path = tempfile.mkdtemp(prefix="zygote-test-")
    os.chmod(path, 0o777)
    return path
