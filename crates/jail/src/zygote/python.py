"""The zygote of Python: an interpreter that is warm once and forks guests into jails that exist.

Three lives of one file:

    zygote   a child of the launcher, root with a handful of capabilities, single-threaded. It reads commands on
             descriptor 3 and does nothing but fork. No byte of a guest ever reaches it.
    guest    a fork of it in a jail's pid namespace. It walks into the jail, puts up the walls of every payload, one
             irreversible step after the other, says that it is warm, and waits on descriptor 3 for one job.
    program  the guest once it has its job: from then on it behaves as `python3 script args…` does.

A guest runs the program in this very process, so everything that an interpreter does around a script is done here by
hand: see `start_program` and `end_program`. Whatever is not an ordinary start (a folder or an archive as the script,
source that does not compile, a module of the program's that hides one of ours) is left to the real interpreter, which
the guest then executes in its own place, behind the same walls.

Standard library only; Python 3.9 and later, Linux on x86_64 and aarch64, glibc.
"""

# What the interpreter itself puts into a fresh `__main__`, and which modules it starts with. Both differ between
# versions, so they are taken down before anything else is done.
FRESH_MAIN = {name: value for name, value in globals().items() if name[:2] == "__"}
import sys

FRESH_MODULES = globals().get("FRESH_MODULES", frozenset(sys.modules))

import os
from importlib.machinery import SourceFileLoader

# The interpreter keeps the syntax tree of the script that it was given, here some three megabytes, which every fork
# would have to carry. So it starts once more with a script of a few lines, which runs this file. Before that it loads
# libraries: later ones would come to lie between pieces of the interpreter's memory, which is best in one: see `gather`.
AGAIN = """import sys
FRESH_MODULES = frozenset(sys.modules)
for name in "_bz2 _ctypes _decimal _hashlib _json _lzma _queue _typing _uuid resource".split():
    try: __import__(name)
    except ImportError: pass
with open(sys.argv[1], "rb") as file: code = compile(file.read(), file.name, "exec")
exec(code)"""
if sys.argv[0] != "-c":
    again = [sys.executable, "-c", AGAIN, os.path.abspath(__file__), *sys.argv[1:]]
    # Functions of libraries are looked up now: else each guest would do it, when it calls one for the first time.
    os.execve(sys.executable, again, {**os.environ, "LD_BIND_NOW": "1"})
del os.environ["LD_BIND_NOW"]
__file__ = sys.argv.pop(1)
# As they are when a file is the script.
FRESH_MAIN.update({"__loader__": SourceFileLoader("__main__", __file__), "__file__": __file__, "__cached__": None})
sys.path[0] = os.path.dirname(__file__)

import _socket
import _thread
import atexit
import base64
import collections
import contextlib
import ctypes
import errno
import functools
import gc
import io
import json
import marshal
import resource
import signal
import site
import socket
import stat
import struct
import time
import types
import weakref
from importlib.util import MAGIC_NUMBER
from stat import ST_INO, ST_MODE, ST_SIZE

# What a guest calls is called by a name of this file's. To look a name up in a module or an object touches the module,
# the name and the interpreter's caches, and each page that a guest touches is copied for it.
from posix import F_OK, _exit, access, chdir, close, dup2, fstat, getcwd, getcwdb, getpid, listdir, read
from posix import open as open_file
from posix import write


# What programs and the kernel of contexts use most. None of these starts a thread, keeps the folder or the
# environment that it was imported in, or makes a secret when it is imported (multiprocessing does all three).
# `random`, `tempfile`, `uuid` and `logging` keep something that must be new in each guest: see `renew_randomness`.
USUAL = """
    __future__ _thread abc argparse ast base64 binascii bisect builtins calendar codecs collections collections.abc
    contextlib copy copyreg csv dataclasses datetime decimal difflib encodings.ascii encodings.idna encodings.latin_1
    enum fcntl fnmatch fractions functools glob hashlib heapq html importlib.util inspect itertools keyword linecache locale logging math
    numbers operator pathlib pickle platform pprint queue random re reprlib select selectors shutil statistics string
    subprocess tempfile textwrap threading token tokenize traceback types typing unicodedata urllib.parse uuid warnings
    weakref zipimport zlib
""".split()

# ---------------------------------------------------------------------------------------------------------------------
# The kernel's calls that Python has no function for.

# `PyDLL` and not `CDLL`: the lock of the interpreter is kept during the call, as a fork needs it.
LIBC = ctypes.PyDLL(None, use_errno=True)
PYTHON = ctypes.pythonapi
# What compiling this file took and does not need any more.
LIBC.malloc_trim(0)

NUMBERS = {
    # These have one number everywhere.
    "pidfd_open": 434,
    "clone3": 435,
    "close_range": 436,
    "landlock_restrict_self": 446,
    **{
        "x86_64": {
            "write": 1,
            "close": 3,
            "pipe2": 293,
            "openat": 257,
            "exit_group": 231,
            "getpid": 39,
            "umask": 95,
            "geteuid": 107,
            "getegid": 108,
            "setsid": 112,
            "setgroups": 116,
            "setresuid": 117,
            "setresgid": 119,
            "capget": 125,
            "capset": 126,
            "prctl": 157,
            "keyctl": 250,
            "set_robust_list": 273,
            "get_robust_list": 274,
            "dup3": 292,
            "prlimit64": 302,
            "setns": 308,
            "seccomp": 317,
        },
        "aarch64": {
            "dup3": 24,
            "close": 57,
            "openat": 56,
            "pipe2": 59,
            "exit_group": 94,
            "write": 64,
            "capget": 90,
            "capset": 91,
            "set_robust_list": 99,
            "get_robust_list": 100,
            "setresuid": 147,
            "setresgid": 149,
            "setsid": 157,
            "setgroups": 159,
            "umask": 166,
            "prctl": 167,
            "getpid": 172,
            "geteuid": 175,
            "getegid": 177,
            "keyctl": 219,
            "prlimit64": 261,
            "setns": 268,
            "seccomp": 277,
        },
    }.get(os.uname().machine, {}),
}

CLONE_PIDFD, CLONE_PARENT, CLONE_THREAD = 0x1000, 0x8000, 0x10000
CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_INTO_CGROUP = 0x200000, 0x1000000, 0x200000000
NAMESPACES = {
    "mnt": 0x00020000,
    "cgroup": 0x02000000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_GET_SECCOMP = 1, 4, 21
PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_SECUREBITS = 23, 24, 28
PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS, PR_GET_TID_ADDRESS, PR_CAP_AMBIENT = 38, 39, 40, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
# No root, no fix-up of capabilities by a change of ids, no kept capabilities, no ambient ones: all of them locked.
SECURE_BITS = 0b11101111
# Version 3 of the structure, for this process.
CAPABILITY_HEADER = ctypes.create_string_buffer(struct.pack("@II", 0x20080522, 0))
NO_CAPABILITIES, HELD_CAPABILITIES = (ctypes.c_uint32 * 6)(), (ctypes.c_uint32 * 6)()
KEYCTL_JOIN_SESSION_KEYRING = 1
SECCOMP_SET_MODE_FILTER = 1


def libc_function(name, *argument_types):
    function = LIBC[name]
    function.argtypes = argument_types
    function.restype = ctypes.c_int
    return function


WORD, POINTER = ctypes.c_ulong, ctypes.c_void_p

# Every call of the kernel by its number: one function, so that a guest that makes thirty different ones touches no
# more than one that makes one. It gives -1 when the call fails, and `ctypes.get_errno` says why.
SYSTEM_CALL = LIBC["syscall"]
SYSTEM_CALL.argtypes = (ctypes.c_long, WORD, WORD, WORD, WORD, WORD)
SYSTEM_CALL.restype = ctypes.c_long


def system_call(name, *arguments):
    result = SYSTEM_CALL(*described(name, *arguments)[:6])
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


# A call to be made, as eight words: its number, five arguments, the highest result that is a good one, and its result.
# The kernel answers with a negative number when a call fails.
WORDS, CALL_SIZE = 8, 64
GOOD, ANY, NONE = (1 << 64) - 4096, (1 << 64) - 1, 0


def described(name, *arguments, most=GOOD):
    """Whatever memory it points to has to live until the call is made."""
    numbers = [argument if isinstance(argument, int) else ctypes.addressof(argument) for argument in arguments]
    return (NUMBERS[name], *numbers, *(0,) * (5 - len(numbers)), most, 0)


# Makes such calls one after the other, until one has a result above its highest good one, and gives the address of the
# call where it stopped. A guest puts up its walls by this and not by Python, which would copy a hundred pages for it.
#
#     perform(call, end):
#         do:    call.result = system_call(call.number, call.arguments)
#                if call.result > call.most: break        (as numbers without a sign)
#         while  ++call != end
#         return call
MACHINE_CODE = {
    "x86_64": """
        f30f1efa 53 55 4889fb 4889f5                        endbr64; push rbx, rbp; rbx, rbp = call, end
        488b03 488b7b08 488b7310 488b5318 4c8b5320 4c8b4328 rax, rdi, rsi, rdx, r10, r8 = [rbx], [rbx+8] … [rbx+40]
        0f05 48894338                                       syscall; [rbx+56] = rax
        483b4330 7709                                       compare rax, [rbx+48]; above: to the end
        4883c340 4839eb 75d4                                rbx += 64; compare rbx, rbp; not equal: again
        4889d8 5d 5b c3                                     rax = rbx; pop rbp, rbx; return
    """,
    "aarch64": """
        5f2403d5 e90300aa ea0301aa                          bti c; x9, x10 = call, end
        280140f9 208540a9 228d41a9 241540f9                 x8, x0, x1, x2, x3, x4 = [x9], [x9+8] … [x9+40]
        010000d4 201d00f9                                   svc 0; [x9+56] = x0
        2b1940f9 1f000beb 88000054                          x11 = [x9+48]; compare x0, x11; higher: to the end
        29010191 3f010aeb a1feff54                          x9 += 64; compare x9, x10; not equal: again
        e00309aa c0035fd6                                   x0 = x9; return
    """,
}
MACHINE_CODE_WIDTH = 59
READ_WRITE, READ_EXECUTE, PRIVATE_MEMORY = 1 | 2, 1 | 4, 0x02 | 0x20
PAGE = resource.getpagesize()


def machine_code(machine):
    """The function that stands at the beginnings of its lines. Its memory is never writable and executable at once."""
    lines = MACHINE_CODE[machine].splitlines()
    code = b"".join(bytes.fromhex(line[:MACHINE_CODE_WIDTH]) for line in lines)
    allocate, protect = LIBC["mmap"], LIBC["mprotect"]
    allocate.argtypes, allocate.restype = (POINTER, WORD, *[ctypes.c_int] * 3, ctypes.c_long), POINTER
    protect.argtypes = (POINTER, WORD, ctypes.c_int)
    address = allocate(None, PAGE, READ_WRITE, PRIVATE_MEMORY, -1, 0)
    if address == POINTER(-1).value:
        raise Failed("machine code", ctypes.get_errno())
    ctypes.memmove(address, code, len(code))
    if protect(address, PAGE, READ_EXECUTE) == -1:
        raise Failed("machine code", ctypes.get_errno())
    return ctypes.PYFUNCTYPE(POINTER, POINTER, POINTER)(address)


class Calls:
    """Calls of the kernel, to be made in this order; the first that fails ends it."""

    def __init__(self, *steps):
        self.names = [name for name, calls in steps for _ in calls]
        self.count = len(self.names)
        words = [word for _, calls in steps for call in calls for word in call]
        self.words = (ctypes.c_uint64 * len(words))(*words)
        self.first = ctypes.addressof(self.words)
        self.end = self.first + CALL_SIZE * self.count

    def make(self):
        """How many were made, without the one that it stopped at."""
        return (perform(self.first, self.end) - self.first) // CALL_SIZE

    def result(self, at):
        return self.words[WORDS * at + 7]

    def results(self, count):
        """Of the last ones."""
        return self.words[len(self.words) - 1 - WORDS * (count - 1) :: WORDS]

    def failure(self, at):
        return Failed(self.names[at], (1 << 64) - self.result(at))


unshare = libc_function("unshare", ctypes.c_int)
flush_libc = libc_function("fflush", POINTER)
real_path_of = LIBC["realpath"]
real_path_of.restype = POINTER
WORD_AT, NUMBER_AT = ctypes.c_uint64.from_address, ctypes.c_int.from_address


def prctl(option, value=0, third=0):
    return system_call("prctl", option, value, third)


class Failed(Exception):
    """A step that failed: its name and the kernel's reason."""

    def __init__(self, step, number):
        super().__init__(step, number)
        self.step, self.errno = step, number


def take_step(name, action, *arguments):
    try:
        return action(*arguments)
    except OSError as error:
        raise Failed(name, error.errno or errno.EIO) from None
    except (ValueError, TypeError, KeyError, IndexError, struct.error):
        raise Failed(name, errno.EINVAL) from None


# ---------------------------------------------------------------------------------------------------------------------
# The zygote.

COMMAND = SIDE = 3
LANDLOCK = SIDE + 1
MAX_HELLO, MAX_COMMAND, MAX_DESCRIPTORS = 1 << 18, 1 << 14, 32
NEEDED = ("side", "pid", "user", "mnt", "ipc", "uts", "net")


class Zygote:
    """What is made once and is the same for every guest."""

    def __init__(self, hello):
        self.landlock = bool(hello.get("landlock"))
        # Its own pid namespace, to come back to: there is no /proc to open it from.
        self.own_pid = take_step("own pid namespace", system_call, "pidfd_open", os.getpid())
        self.come_back = Calls(("own pid namespace", [described("setns", self.own_pid, NAMESPACES["pid"])]))
        # What has come with a request has higher numbers than anything that the zygote keeps.
        self.let_go = Calls(("descriptors", [described("close_range", self.own_pid + 1, 0xFFFFFFFF)]))
        take_step("own pid namespace", system_call, "setns", self.own_pid, NAMESPACES["pid"])
        self.last = None
        self.filter = Filter(base64.b64decode(hello["filter"], validate=True))
        self.thread_id = thread_id_address()
        self.robust_list = robust_list()
        self.empty_bounding_set = [
            described("prctl", PR_CAPBSET_DROP, number) for number in range(known_capabilities())
        ]
        self.code = {}
        for path in hello.get("known", ()):
            take_step("known program", self.learn, path)

    def learn(self, path):
        """Compiles a program ahead. A script of exactly these bytes then needs no compiling."""
        with open(path, "rb") as file:
            source = file.read()
        self.code[source] = compile(source, path, "exec", dont_inherit=True)

    def serve(self, command):
        """Forks guests until the launcher is gone. Gives the join in a guest, nothing in the zygote."""
        while True:
            data, descriptors = receive(command, MAX_COMMAND)
            if not data:
                return None
            number, request = numbered(data)
            try:
                join = self.join_for(request, descriptors)
                if self.fork(join) == 0:
                    return join
            except Failed as failure:
                answer = {"failed": number, "step": failure.step, "errno": failure.errno}
                send(command, encode(answer), ())
            else:
                send(command, b'{"joined": %d, "pid": %d}' % (number, join.pid), (join.pidfd.value,))
            self.let_go.make()

    def join_for(self, request, descriptors):
        """Requests differ in little more than their number: descriptors that are closed come again under the same
        ones. What was made for the last request then serves this one."""
        if self.last is None or self.last[0] != request or self.last[1] != descriptors:
            self.last = None
            join = take_step("request", Join, decode(request.decode()), descriptors, self)
            self.last = request, descriptors, join
        return self.last[2]

    def fork(self, join):
        """A child in the jail's pid namespace and group, whose parent is the launcher: its pid, or 0 in the child, which
        has walked as far into the jail by then as it could: see `become_guest`.

        `clone3` is called directly, since no function of libc does this. What libc's own fork would do besides is done
        here: the cached thread id is renewed by the kernel, the list of robust locks by the guest's first steps. What
        the interpreter would do is about other threads, which a zygote does not have, and about the hooks of modules.
        Those of the standard library renew locks that other threads may hold and seed generators, which every guest
        does in any case; `threading` alone knows something that a fork changes: see `Renewal`. Hooks of preloaded
        modules are not known here, and run in guests. To do all this would copy a hundred pages for nothing."""
        made = join.calls.make()
        if made > CLONE_AT:
            join.made = made
            return 0
        result = join.calls.result(made)
        if made == CLONE_AT and self.come_back.make() == 0:
            # It would fork its next guest into a stranger's jail: it ends.
            raise OSError(self.come_back.failure(0).errno, "own pid namespace")
        if result > GOOD:
            raise join.calls.failure(made)
        join.pid = result
        return result


CLONE_ARGUMENTS = ctypes.c_uint64 * 11
CLONE_SIZE = ctypes.sizeof(CLONE_ARGUMENTS)
LIMITS = ctypes.c_uint64 * 2


class Filter:
    """A seccomp program, laid out for the kernel."""

    def __init__(self, program):
        if not program or len(program) % 8:
            raise Failed("seccomp filter", errno.EINVAL)
        self.instructions = ctypes.create_string_buffer(program, len(program))
        address = ctypes.addressof(self.instructions)
        self.description = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, address))
        self.install = described("seccomp", SECCOMP_SET_MODE_FILTER, 0, self.description)


class Join:
    """One request of the launcher: the jail as descriptors, who the payload is in it, and the way there."""

    def __init__(self, request, descriptors, zygote):
        names = request["fds"]
        if len(names) != len(descriptors):
            raise ValueError("descriptors do not match their names")
        self.descriptors = {name: fd for name, fd in zip(names, descriptors) if name != "tasks"}
        self.tasks = [fd for name, fd in zip(names, descriptors) if name == "tasks"]
        missing = [name for name in NEEDED if name not in self.descriptors]
        if missing or zygote.landlock != ("landlock" in self.descriptors):
            raise ValueError("descriptors are missing")
        self.uid, self.gid = int(request["uid"]), int(request["gid"])
        if self.uid <= 0 or self.gid <= 0:
            raise ValueError("a payload is nobody's root")
        self.rlimits = [
            (int(resource), LIMITS(soft, hard)) for resource, soft, hard in request["rlimits"]
        ]
        self.pidfd, self.clone_arguments = ctypes.c_int(-1), CLONE_ARGUMENTS()
        flags = CLONE_PARENT | CLONE_PIDFD | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID
        self.clone_arguments[1] = ctypes.addressof(self.pidfd)
        self.clone_arguments[2] = zygote.thread_id
        if "unified" in self.descriptors:
            flags |= CLONE_INTO_CGROUP
            self.clone_arguments[10] = self.descriptors["unified"]
        self.clone_arguments[0] = flags
        self.pipes = (ctypes.c_int * 6)()
        steps = [(name, calls(zygote, self) if callable(calls) else calls) for name, calls in WAY]
        self.calls = Calls(*steps)
        self.made = self.pid = 0

    @property
    def side(self):
        """The side socket has its own number once the entrance has been passed."""
        passed = self.calls.names[: self.made].count("descriptors") == self.calls.names.count("descriptors")
        return SIDE if passed else self.descriptors["side"]


def receive(command, size):
    """The next packet and its descriptors, or nothing when the launcher has gone."""
    data, ancillary, flags, _ = command.recvmsg(size, ANCILLARY_SPACE, CLOSE_ON_EXEC)
    descriptors = [number for _, _, content in ancillary for (number,) in struct.iter_unpack("@i", content)]
    if flags & TRUNCATED:
        raise Failed("command", errno.EMSGSIZE)
    return data, descriptors


def numbered(data):
    """The number of a request, which is the first thing that it says, and the rest of it."""
    number, _, request = data.partition(b",")
    return int(number.partition(b":")[2]), b"{" + request


def send(connection, data, descriptors):
    content = struct.pack("@%di" % len(descriptors), *descriptors)
    connection.sendmsg([data], [(SOL_SOCKET, SCM_RIGHTS, content)] if descriptors else [])


def encode(message):
    return json.dumps(message).encode()


decode = json.JSONDecoder().decode
# As plain numbers: those of the modules are enumerations, whose operators are Python code that each fork would copy.
CLOSE_ON_EXEC, TRUNCATED = int(socket.MSG_CMSG_CLOEXEC), int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
ANCILLARY_SPACE = socket.CMSG_SPACE(4 * MAX_DESCRIPTORS)
SOL_SOCKET, SCM_RIGHTS = int(socket.SOL_SOCKET), int(socket.SCM_RIGHTS)
AF_UNIX, SOCK_STREAM = int(socket.AF_UNIX), int(socket.SOCK_STREAM)
SIGKILL = int(signal.SIGKILL)


def thread_id_address():
    """Where libc keeps this thread's id. A fork must renew it, or signals to oneself and locks go wrong.

    The kernel knows, since it is told at the start to clear it at the end; a kernel that does not say is replaced by
    a search for the one place near the start of the thread's descriptor that holds the number."""
    LIBC.pthread_self.restype = WORD
    thread, size = LIBC.pthread_self(), 2048
    own = os.getpid()
    answer = ctypes.c_uint64()
    try:
        prctl(PR_GET_TID_ADDRESS, ctypes.addressof(answer))
    except OSError:
        words = (ctypes.c_int32 * (size // 4)).from_address(thread)
        found = [thread + 4 * at for at, word in enumerate(words) if word == own]
    else:
        inside = thread <= answer.value < thread + size
        found = [answer.value] if inside and ctypes.c_int32.from_address(answer.value).value == own else []
    if len(found) != 1:
        raise Failed("tid", errno.ENOENT)
    return found[0]


def robust_list():
    """Address and size of this thread's list of robust locks, which the kernel forgets at a fork."""
    head, size = ctypes.c_uint64(), ctypes.c_uint64()
    take_step("robust list", system_call, "get_robust_list", 0, head, size)
    return head.value, size.value


def known_capabilities():
    """How many capabilities this kernel has."""
    for number in range(64):
        try:
            prctl(PR_CAPBSET_READ, number)
        except OSError:
            return number
    return 64


def has_one_thread():
    """Asks the kernel, without /proc: leaving the thread group is refused while there is anybody else in it, and
    changes nothing when there is not."""
    return unshare(CLONE_THREAD) == 0


def preload(names, refused):
    """Imports what programs are going to need: (imported, not importable)."""
    imported, missing = [], list(refused)
    for name in names:
        if name in refused:
            continue
        try:
            __import__(name)
        except BaseException:
            missing.append(name)
        else:
            imported.append(name)
        if not has_one_thread():
            raise Threads(name)
    return imported, missing


@contextlib.contextmanager
def noted_hooks(hooks):
    """What modules want done in the child of a fork, beside their wish itself."""
    register = os.register_at_fork

    def note(**wanted):
        register(**wanted)
        hooks.extend([wanted["after_in_child"]] if "after_in_child" in wanted else [])

    os.register_at_fork = note
    try:
        yield
    finally:
        os.register_at_fork = register


class Threads(Exception):
    """A module started a thread when it was imported. A process with threads must not be forked."""


def start_again_without(name, hello):
    """A thread cannot be taken back: the zygote begins anew and leaves that module out."""
    hello = {**hello, "refused": [*hello.get("refused", ()), name]}
    os.set_inheritable(COMMAND, True)
    os.execv(sys.executable, [sys.executable, os.path.abspath(__file__), json.dumps(hello)])


def default_signals():
    """The actions that an interpreter has when it starts, whatever this one was started with."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def open_streams():
    """`sys.stdin`, `sys.stdout` and `sys.stderr` as the interpreter makes them over pipes: those that it made took down
    what the zygote's own descriptors can do. Guests use them with pipes of their own at the same numbers."""
    kept = [os.dup(number) for number in (0, 1, 2)]
    reading, writing = os.pipe()
    for number, end in enumerate((reading, writing, writing)):
        os.dup2(end, number)
    unbuffered = isinstance(sys.stdout.buffer, io.FileIO)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old, writes = getattr(sys, name), number > 0
        buffer = open(number, "wb" if writes else "rb", 0 if unbuffered and writes else -1, closefd=False)
        raw = buffer if unbuffered and writes else buffer.raw
        raw.name = "<%s>" % name
        stream = io.TextIOWrapper(
            buffer,
            old.encoding,
            old.errors,
            newline="\n",
            line_buffering=number == 2 and not unbuffered,
            write_through=unbuffered,
        )
        stream.mode = "w" if writes else "r"
        setattr(sys, name, stream)
        setattr(sys, "__%s__" % name, stream)
    for number, descriptor in enumerate(kept):
        os.dup2(descriptor, number)
    for descriptor in (reading, writing, *kept):
        os.close(descriptor)


def warm_up(command):
    """From the launcher's greeting to a zygote that may fork."""
    if len(sys.argv) > 1:
        hello = json.loads(sys.argv[1])
    else:
        data, _ = receive(command, MAX_HELLO)
        if not data:
            os._exit(0)
        hello = decode(data.decode())
    if hello.get("hello") != 1:
        raise Failed("hello", errno.EPROTO)
    default_signals()
    for name in USUAL:
        take_step("import " + name, usual, name)
    hooks = []
    try:
        with noted_hooks(hooks):
            imported, missing = preload(hello.get("preload", ()), hello.get("refused", ()))
    except Threads as refused:
        start_again_without(refused.args[0], hello)
    if not has_one_thread():
        raise Failed("threads", errno.EBUSY)
    take_step("streams", open_streams)
    STAGE.find()
    rehearse(LONG_REHEARSAL)
    end_logging_only_if_used()
    # From here on nothing is made that guests do not use.
    gc.collect()
    fill_holes()
    global RENEWAL, SYSTEM, THREADING, LOGGING, ZYGOTE_MODULES, LAST_MODULE, HIDEABLE, perform
    lay_out_functions()
    perform = take_step("machine code", machine_code, os.uname().machine)
    zygote = take_step("hello", Zygote, hello)
    RENEWAL = Renewal(hooks)
    SYSTEM, THREADING = sys.__dict__, sys.modules["threading"].__dict__
    LOGGING = sys.modules["logging"].__dict__ if "logging" in sys.modules else {}
    ZYGOTE_MODULES = frozenset(sys.modules) - {"__main__"}
    LAST_MODULE = next(reversed(sys.modules))
    HIDEABLE = ZYGOTE_MODULES - FRESH_MODULES - frozenset(sys.builtin_module_names)
    for _ in range(REHEARSALS):
        rehearse_in_the_zygote()
    # What lives now is never looked at by a collector again, so it stays shared with every guest.
    # Guests have others, and to let go of these would touch them.
    sys.argv = []
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = []
    gc.collect()
    fill_holes_of_libc()
    gather()
    gc.freeze()
    version = "%d.%d.%d" % sys.version_info[:3]
    command.send(encode({"ready": {"version": version, "preloaded": imported, "missing": missing}}))
    return zygote


# Version 3.11 and later rewrite code that has run this often into forms of their own. That is done here, once.
REHEARSALS = 24


def rehearse_in_the_zygote():
    """As much of a guest's life as can be lived here, so that nothing is written in each guest that could have been
    written once: code that the interpreter adapts, caches that it fills."""
    rehearse_job()
    RENEWAL.renew(getpid())
    held_capabilities()
    wait_for_threads()
    flush_streams()
    restart_clock_of_logging()
    list(modules_of_the_program())


def end_logging_only_if_used():
    """`logging` looks through its handlers at the end. A program that has made none is spared that."""
    logging = sys.modules.get("logging")
    if logging is None:
        return
    global LOGGING_END
    LOGGING_END = logging._handlerList, list(logging._handlerList), logging.shutdown
    atexit.unregister(logging.shutdown)
    atexit.register(end_logging)


def end_logging():
    handlers, known, shutdown = LOGGING_END
    if handlers != known:
        shutdown()


POOL = 1 << (14 if sys.version_info >= (3, 10) else 12)


def fill_holes():
    """Fills the gaps that the imports have left in the interpreter's memory. What is made from here on, the objects of
    a guest above all, stands together on few pages instead of in gaps on many."""
    allocate, free = PYTHON.PyObject_Malloc, PYTHON.PyObject_Free
    allocate.argtypes, allocate.restype = (ctypes.c_size_t,), POINTER
    free.argtypes, free.restype = (POINTER,), None
    # Its memory comes in pools of blocks of one size. New pools are begun when no gap is left in the old ones, so a
    # pool that comes out (almost) whole says that the gaps of this size are full.
    for size in range(512, 0, -16):
        blocks, pools = (ctypes.c_uint64 * (64 * POOL // size))(), collections.Counter()
        for at in range(len(blocks)):
            blocks[at] = block = allocate(size)
            pools[block // POOL] += 1
            if pools[block // POOL] > POOL // size - 12:
                break
        for other in blocks[:at]:
            if other // POOL == block // POOL:
                free(other)
        free(block)
    fill_holes_of_libc()


def fill_holes_of_libc():
    """The same for what is too large for the interpreter's own pools: a block from beyond all that libc has given out
    says that the gaps of this size are full. Larger gaps come first, so that no small block breaks one up."""
    if not hasattr(LIBC, "mallinfo2"):
        return
    allocate, end_of_heap, statistics = LIBC["malloc"], LIBC["sbrk"], LIBC["mallinfo2"]
    allocate.argtypes, allocate.restype = (ctypes.c_size_t,), POINTER
    end_of_heap.argtypes, end_of_heap.restype = (ctypes.c_ssize_t,), POINTER
    statistics.restype = type("Statistics", (ctypes.Structure,), {"_fields_": [("words", ctypes.c_size_t * 10)]})
    size = 1 << 16
    while size > 16:
        # The last of the statistics is what is left at the end.
        while allocate(size) < end_of_heap(0) - statistics().words[9] - size - 16:
            pass
        size -= max(size // 8 & ~15, 16)


def lay_out_functions():
    """Makes the functions of this file anew, one beside the other: they were made while the file was compiled and the
    modules were imported, so they stand far apart."""
    ours = globals()
    classes = [value for value in ours.values() if isinstance(value, type) and value.__module__ == __name__]
    found = [
        (owner, name, value)
        for owner in (ours, *classes)
        for name, value in (ours if owner is ours else vars(owner)).items()
        if isinstance(value, types.FunctionType) and value.__globals__ is ours and value.__closure__ is None
    ]
    # The old ones are not let go of: some still run, and their end in each guest would copy pages.
    ours["REPLACED"] = found
    codes = marshal.loads(marshal.dumps([function.__code__ for _, _, function in found]))
    for (owner, name, function), code in zip(found, codes):
        made = types.FunctionType(code, ours, function.__name__, function.__defaults__)
        made.__kwdefaults__, made.__qualname__, made.__doc__ = function.__kwdefaults__, function.__qualname__, None
        if owner is ours:
            ours[name] = made
        else:
            setattr(owner, name, made)


MADV_COLLAPSE, HUGE = 25, 1 << 21


def gather():
    """Puts the memory of the interpreter into as few large pieces as the kernel can. A fork then copies, and the end of a
    guest frees, many entries of the page table at once. A kernel that cannot only takes longer."""
    advise = LIBC["madvise"]
    advise.argtypes = (POINTER, WORD, ctypes.c_int)
    for piece in {id(thing) // HUGE for thing in gc.get_objects()}:
        advise(piece * HUGE, HUGE, MADV_COLLAPSE)


def usual(name):
    try:
        __import__(name)
    except ImportError:
        # Distributions leave out parts of the standard library.
        pass


# ---------------------------------------------------------------------------------------------------------------------
# The guest: from a copy of root's process to the payload. The order is the design.
#
# Nearly all of it is calls of the kernel whose arguments are known before the fork. The zygote writes them down, and
# the guest makes one after the other: that runs little Python, and so copies few pages.


def become_guest(join):
    """The rest of the way, when the calls of the kernel are made. Never returns if one of them failed."""
    try:
        if join.made < join.calls.count:
            raise join.calls.failure(join.made)
        if join.pipes[:] != PIPES:
            raise Failed("streams", errno.EBADF)
        take_step("randomness", RENEWAL.renew, getpid())
        take_step("hooks", RENEWAL.run_hooks)
        take_step("rehearsal", rehearse_job)
        take_step("report", report_warm, join)
    except Failed as failure:
        say_failure(join, failure)
        _exit(125)
    except BaseException:
        say_failure(join, Failed("an error of the zygote's program", errno.EIO))
        _exit(125)


def say_failure(join, failure):
    message = b"FAIL" + struct.pack("<I", failure.errno) + failure.step.encode()
    try:
        write(join.side, message)
    except OSError:
        # Nobody listens; the end of this process says enough.
        pass


EXIT_GROUP = NUMBERS["exit_group"]
DIE_WITH_THE_LAUNCHER = described("prctl", PR_SET_PDEATHSIG, SIGKILL)
NOUGHT = ctypes.create_string_buffer(b"0")
OWN_RANK, RANK = ctypes.create_string_buffer(b"/proc/self/oom_score_adj"), ctypes.create_string_buffer(b"500")
AT_FDCWD = (1 << 64) - 100


def enter_groups(_zygote, join):
    """Moving oneself through a descriptor that root opened takes microseconds, and what follows is charged there."""
    return [described("write", entrance, NOUGHT, 1) for entrance in join.tasks]


def enter(kind):
    def calls(_zygote, join):
        return [described("setns", join.descriptors[kind], NAMESPACES[kind])] if kind in join.descriptors else []

    return calls


def keep_two_descriptors(_zygote, join):
    """Leaves the side socket at 3, and at 0 to 2 until there are streams; the Landlock rules at 4; nothing else.

    This is where the command socket goes."""
    side, landlock = join.descriptors["side"], join.descriptors.get("landlock")
    calls = [described("dup3", side, number) for number in (SIDE, 0, 1, 2)]
    if landlock not in (None, LANDLOCK):
        calls.append(described("dup3", landlock, LANDLOCK, os.O_CLOEXEC))
    return [*calls, described("close_range", lowest_free(join), 0xFFFFFFFF)]


def set_limits(_zygote, join):
    return [described("prlimit64", 0, resource, limits) for resource, limits in join.rlimits]


def go_first_for_memory(_zygote, join):
    """The payload is what the kernel should pick when memory runs out, not the jail's PID 1. A host that forbids it
    only loses this preference."""
    descriptor = lowest_free(join)
    return [
        described("openat", AT_FDCWD, OWN_RANK, ONLY_WRITE, most=ANY),
        described("write", descriptor, RANK, len(RANK.value), most=ANY),
        described("close", descriptor, most=ANY),
    ]


def lowest_free(join):
    """The number that the next descriptor gets, after all others but the socket and the rules have been closed."""
    return LANDLOCK + 1 if "landlock" in join.descriptors else SIDE + 1


def drop_groups(_zygote, _join):
    """The launcher has given them up, and in the jail nobody may change them: only what is there has to go."""
    return [described("setgroups", 0, 0)] if os.getgroups() else []


def change_ids(name, which):
    return lambda _zygote, join: [described(name, *[getattr(join, which)] * 3)]


def held_capabilities():
    """Effective, permitted and inheritable ones, together."""
    # Three words of low bits, then three of high ones.
    words = HELD_CAPABILITIES[:]
    return (words[0] | words[1] | words[2]) | (words[3] | words[4] | words[5]) << 32


def enter_landlock(_zygote, join):
    if "landlock" not in join.descriptors:
        return []
    return [described("landlock_restrict_self", LANDLOCK), described("close", LANDLOCK)]


def make_pipes(_zygote, join):
    """The streams, made as the payload's user so that they are charged to it. The far ends go to the agent."""
    address = ctypes.addressof(join.pipes)
    return [
        *[described("pipe2", address + 8 * number, os.O_CLOEXEC) for number in range(3)],
        *[described("dup3", near, number) for number, near in enumerate(NEAR_ENDS)],
        *[described("close", near) for near in NEAR_ENDS],
    ]


# The lowest free numbers, by then.
PIPES = [SIDE + 1 + number for number in range(6)]
NEAR_ENDS, FAR_ENDS = (PIPES[0], PIPES[3], PIPES[5]), (PIPES[1], PIPES[2], PIPES[4])

CLONE_AT = 1
WAY = (
    ("pid namespace", enter("pid")),
    # In the zygote it has a result, and so is the last one; in the child the rest follows.
    ("clone", lambda _zygote, join: [described("clone3", join.clone_arguments, CLONE_SIZE, most=NONE)]),
    ("parent death signal", [DIE_WITH_THE_LAUNCHER]),
    ("cgroup", enter_groups),
    ("robust list", lambda zygote, join: [described("set_robust_list", *zygote.robust_list)]),
    # Made by the launcher and owned by the host, perhaps: joined while the rights of the host are there.
    ("network namespace", enter("net")),
    # From here on the rights are those of root in the jail's own user namespace.
    ("user namespace", enter("user")),
    ("cgroup namespace", enter("cgroup")),
    ("ipc namespace", enter("ipc")),
    ("uts namespace", enter("uts")),
    ("mount namespace", enter("mnt")),
    ("keyring", [described("keyctl", KEYCTL_JOIN_SESSION_KEYRING, 0)]),
    ("session", [described("setsid")]),
    ("umask", [described("umask", 0o022)]),
    # Processes of the same user may be in the jail already: before this one becomes theirs, it has nothing
    # left that they could want.
    ("descriptors", keep_two_descriptors),
    ("rank", go_first_for_memory),
    ("resource limits", set_limits),
    ("groups", drop_groups),
    # The user namespace has filled it again.
    ("bounding set", lambda zygote, join: zygote.empty_bounding_set),
    ("secure bits", [described("prctl", PR_SET_SECUREBITS, SECURE_BITS)]),
    ("group id", change_ids("setresgid", "gid")),
    ("user id", change_ids("setresuid", "uid")),
    ("ambient capabilities", [described("prctl", PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)]),
    ("capabilities", [described("capset", CAPABILITY_HEADER, NO_CAPABILITIES)]),
    # The change of ids has cleared it.
    ("parent death signal", [DIE_WITH_THE_LAUNCHER]),
    ("no new privileges", [described("prctl", PR_SET_NO_NEW_PRIVS, 1)]),
    ("landlock domain", enter_landlock),
    ("seccomp filter", lambda zygote, join: [zygote.filter.install]),
    # Closed to the other processes of its user since it took their id, and until all walls stand: who could
    # write into its memory could have left some of them out. Now it is as after an exec.
    ("dumpable", [described("prctl", PR_SET_DUMPABLE, 1)]),
    ("streams", make_pipes),
    # The last ones: what the guest reports.
    ("what it is", [described("capget", CAPABILITY_HEADER, HELD_CAPABILITIES)]),
    ("what it is", [described("getpid"), described("geteuid"), described("getegid")]),
    ("what it is", [described("prctl", PR_GET_NO_NEW_PRIVS), described("prctl", PR_GET_SECCOMP)]),
)

class Renewal:
    """Siblings share all that the zygote had; here is what each must have of its own. The hash seed cannot be
    changed; every generator is seeded anew."""

    def __init__(self, hooks):
        modules, self.hooks = sys.modules, hooks
        # These make theirs when they are first asked, which no zygote does after this.
        modules["tempfile"]._name_sequence = None
        modules["uuid"]._node = modules["uuid"]._last_timestamp = None
        # What `random.seed()` comes down to; it also forgets half a pair of numbers, which is done here.
        generator = modules["random"]._inst
        generator.seed()
        self.seeds = [functools.partial(modules["_random"].Random.seed, generator)]
        if "numpy.random" in modules:
            self.seeds.append(modules["numpy.random"].seed)
        self.ssl = modules.get("_ssl")
        self.main_thread = modules["threading"].main_thread().__dict__

    def renew(self, pid):
        for seed in self.seeds:
            seed()
        if self.ssl is not None:
            self.ssl.RAND_add(os.urandom(32), 32.0)
        if "_native_id" in self.main_thread:
            self.main_thread["_native_id"] = pid

    def run_hooks(self):
        """Those of preloaded modules. One that fails does not keep the interpreter from forking either."""
        for hook in self.hooks:
            try:
                hook()
            except Exception:
                pass


def report_warm(join):
    """Says what the kernel says of this process, and hands over the far ends of the streams."""
    pid, uid, gid, no_new_privileges, filtered = join.calls.results(5)
    walls = PACK_WALLS(b"WARM", pid, uid, gid, held_capabilities(), no_new_privileges, filtered)
    # The socket of C, which has less around it.
    side = CONNECTION(AF_UNIX, SOCK_STREAM, 0, SIDE)
    try:
        side.sendmsg((walls,), ((SOL_SOCKET, SCM_RIGHTS, PACK_THREE(*FAR_ENDS)),))
    finally:
        side.detach()
    for descriptor in FAR_ENDS:
        close(descriptor)


CONNECTION = _socket.socket
PACK_WALLS, PACK_THREE = struct.Struct("<4sIIIQBI").pack, struct.Struct("@3i").pack

# ---------------------------------------------------------------------------------------------------------------------
# The job.

ONLY_WRITE = os.O_WRONLY | os.O_CLOEXEC
SCRIPT_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
# Flags of a job: descriptor 3 stays, as the program's side channel; the program says how it ends.
KEEP_SIDE, SAY_END = 1, 2
UNPACK_NUMBER = struct.Struct("<I").unpack_from
FILE_NAMES, FILE_ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()


class Job:
    """What the agent wants to be run."""

    def __init__(self, body):
        self.body, self.at = body, 0
        self.argv = [self.string().decode(FILE_NAMES, FILE_ERRORS) for _ in range(self.number())]
        self.env = [(self.string(), self.string()) for _ in range(self.number())]
        self.cwd = self.string()
        flags = self.byte()
        self.keeps_side, self.says_end = bool(flags & KEEP_SIDE), bool(flags & SAY_END)
        self.files = [(self.string(), self.string()) for _ in range(self.number())]
        if len(self.argv) < 2 or self.at != len(body):
            raise ValueError("not a job")
        del self.body

    def byte(self):
        self.at += 1
        return self.body[self.at - 1]

    def number(self):
        (value,) = UNPACK_NUMBER(self.body, self.at)
        self.at += 4
        return value

    def string(self):
        size = self.number()
        start, self.at = self.at, self.at + size
        if self.at > len(self.body):
            raise ValueError("not a job")
        return self.body[start : self.at]


def read_job():
    """Waits for the one job. The agent's end ends a guest that has none.

    Not a byte more than the job is read: what follows it belongs to the program."""
    (size,) = UNPACK_NUMBER(read_exactly(4))
    return Job(read_exactly(size))


def read_exactly(size):
    data = read(SIDE, size)
    if len(data) == size:
        return data
    parts, left = [data], size - len(data)
    while left:
        if not parts[-1]:
            os._exit(0)
        parts.append(os.read(SIDE, min(left, 1 << 20)))
        left -= len(parts[-1])
    return b"".join(parts)


def settle(job):
    """Everything before the program that may fail: environment, working directory, files."""
    take_step("environment", set_environment, job.env)
    take_step("working directory", enter_directory, job.cwd)
    for path, content in job.files:
        take_step("files", place, path, content)


POSIX_ENVIRONMENT, ENVIRONMENT = sys.modules["posix"].environ, os.environ._data
# Where libc looks for the environment.
LIBC_ENVIRONMENT, KEPT_ENVIRONMENT = POINTER.in_dll(LIBC, "environ"), []
# How far into an object of bytes the bytes are; a zero is behind them.
BYTES_BEGIN, PACK_ADDRESS = bytes.__basicsize__ - 1, struct.Struct("@P").pack


def set_environment(pairs):
    """Exactly these variables, for Python and for libc. The mapping stays the same object, since modules keep it.

    Libc gets them as a new process does, in one piece: one by one they would cost it several blocks of memory each."""
    POSIX_ENVIRONMENT.clear()
    ENVIRONMENT.clear()
    for name, value in pairs:
        if not name or b"=" in name or b"\0" in name or b"\0" in value:
            raise ValueError("not a variable")
        if name not in ENVIRONMENT:
            POSIX_ENVIRONMENT[name] = ENVIRONMENT[name] = value
    texts = [name + b"=" + value for name, value in ENVIRONMENT.items()]
    strings, addresses = b"\0".join(texts), []
    at = id(strings) + BYTES_BEGIN
    for text in texts:
        addresses.append(at)
        at += len(text) + 1
    pointers = b"".join(map(PACK_ADDRESS, addresses)) + PACK_ADDRESS(0)
    LIBC_ENVIRONMENT.value = id(pointers) + BYTES_BEGIN
    # They live as long as the process.
    KEPT_ENVIRONMENT[:] = strings, pointers
    if b"TZ" in ENVIRONMENT:
        time.tzset()


def enter_directory(path):
    chdir(path)
    try:
        inside = getcwdb().startswith(b"/")
    except FileNotFoundError:
        inside = False
    if not inside:
        raise OSError(errno.EXDEV, "outside the root")


def place(path, content):
    """Writes a whole file, making the directories above it; a link at its place is refused."""
    if path.rstrip(b"/").rpartition(b"/")[2] in (b"", b".", b".."):
        raise OSError(errno.EINVAL, "not a path of a file")
    try:
        fd = open_file(path, FILE_FLAGS, 0o644)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path) or b".", 0o755, exist_ok=True)
        fd = open_file(path, FILE_FLAGS, 0o644)
    try:
        view = memoryview(content)
        while view:
            view = view[write(fd, view) :]
    finally:
        close(fd)


def refuse_job(failure):
    step = failure.step.encode()
    try:
        os.write(SIDE, struct.pack("<II", 4 + len(step), failure.errno) + step)
    except OSError:
        # Nobody listens; the end of this process says enough.
        pass
    os._exit(127)


# ---------------------------------------------------------------------------------------------------------------------
# The program, from the start of an interpreter to its end.

# As the interpreter computed it, without the folder of this file.
LIBRARY_PATH = sys.path[1:]
ZYGOTE_HOME, ZYGOTE_USER_SITE = os.environb.get(b"HOME"), site.getusersitepackages()
DISPLAY = sys.__excepthook__
OWN_MAIN = sys.modules["__main__"]
MODULES, MODULE, LOADER = sys.modules, types.ModuleType, type(FRESH_MAIN["__loader__"])
is_regular, now, now_ns = stat.S_ISREG, time.time, time.time_ns
UNHANDLED_INTERRUPT = -int(signal.SIGINT)
run_exit_functions, collect = atexit._run_exitfuncs, gc.collect
threads_alive, reference_to = _thread._count, weakref.ref


def start_program(zygote, job):
    """Puts the interpreter into the state in which `python3 script args…` would run the script: its code and its
    `__main__`. Nothing when this is a start that only the real interpreter can make."""
    filename = absolute(job.argv[1])
    source = ordinary_source(filename)
    if source is None:
        return None
    own_folder = real_path(filename).rpartition("/")[0] or "/"
    given = ENVIRONMENT.get(b"PYTHONPATH")
    first = [os.path.abspath(entry) for entry in os.fsdecode(given).split(":")] if given else []
    if hides_a_module([own_folder, *first]):
        return None
    set_search_path(own_folder, first)
    code = zygote.code.get(source)
    if code is None:
        try:
            code = compile(source, filename, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError):
            # The interpreter reads a file in another way than `compile`, and some of its messages differ.
            return None
    elif code.co_filename != filename:
        sys.modules["_imp"]._fix_co_filename(code, filename)
    sys.argv = job.argv[1:]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = job.argv
    restart_clock_of_logging()
    return code, fresh_main(filename)


def absolute(path):
    """As the interpreter does it: in front of the path, and nothing else about it is changed."""
    return path if path.startswith("/") else getcwd() + "/" + path


PATH_BUFFER = ctypes.create_string_buffer(4097)


def real_path(path):
    """By libc, as the interpreter asks it."""
    found = real_path_of(path.encode(FILE_NAMES, FILE_ERRORS), PATH_BUFFER)
    return PATH_BUFFER.value.decode(FILE_NAMES, FILE_ERRORS) if found else path


def ordinary_source(filename):
    """The bytes of a script that is a plain file of source text."""
    try:
        fd = open_file(filename, SCRIPT_FLAGS)
    except OSError:
        return None
    try:
        about = fstat(fd)
        if not is_regular(about[ST_MODE]):
            return None
        source = read(fd, about[ST_SIZE] + 1)
        # A file may give less than was asked for, and one of /proc more than it said.
        while more := read(fd, 1 << 16):
            source += more
    finally:
        close(fd)
    compiled = filename.endswith(".pyc") or source[2:4] == b"\r\n" and source[:4] == MAGIC_NUMBER
    archive = source.rfind(b"PK\x05\x06", -65557) >= 0
    return None if compiled or archive or not is_decodable(source) else source


def is_decodable(source):
    """`compile` overlooks bytes in comments that the interpreter refuses in a file. A declared encoding it checks."""
    if source.isascii() or b"coding" in b"".join(source.split(b"\n", 2)[:2]):
        return True
    try:
        source.decode()
        return True
    except UnicodeDecodeError:
        return False


def set_search_path(own_folder, first):
    """`sys.path`: the script's folder, then `PYTHONPATH`, then the libraries."""
    sys.path[:] = first + LIBRARY_PATH
    if first:
        site.removeduppaths()
    changed = add_user_site() or bool(first)
    sys.path.insert(0, own_folder)
    if changed:
        # Whoever is found first in the new path is run, as when the interpreter starts.
        for name in ("sitecustomize", "usercustomize"):
            sys.modules.pop(name, None)
        site.execsitecustomize()
        if site.ENABLE_USER_SITE:
            site.execusercustomize()


def add_user_site():
    """Packages that the user installed for themselves stand before those of the machine."""
    folder = ZYGOTE_USER_SITE
    if ENVIRONMENT.get(b"HOME") != ZYGOTE_HOME:
        site.USER_SITE = site.USER_BASE = None
        folder = site.getusersitepackages()
    # Asked in a way that raises nothing: it is hardly ever there.
    if not access(folder, F_OK) or not site.ENABLE_USER_SITE or not os.path.isdir(folder):
        return False
    of_machine = set(site.getsitepackages())
    at = next((at for at, entry in enumerate(sys.path) if entry in of_machine), len(sys.path))
    behind = sys.path[at:]
    del sys.path[at:]
    site.addsitedir(folder, set(sys.path))
    sys.path.extend(entry for entry in behind if entry not in sys.path)
    return True


def hides_a_module(folders):
    """A `random.py` beside the script is what `import random` means there. The zygote has imported another one."""
    for folder in folders:
        try:
            entries = listdir(folder)
        except OSError:
            continue
        for entry in entries:
            name, _, suffix = entry.partition(".")
            if name in HIDEABLE and (not suffix or suffix.endswith(("py", "pyc", "so"))):
                return True
    return False


def restart_clock_of_logging():
    """The records of a program count their time from its start."""
    if "_startTime" in LOGGING:
        LOGGING["_startTime"] = now_ns() if isinstance(LOGGING["_startTime"], int) else now()


def fresh_main(filename):
    """A `__main__` with just what the interpreter itself puts there."""
    main = MODULE("__main__")
    names = main.__dict__
    names.update(FRESH_MAIN)
    names["__doc__"] = None
    if "__annotations__" in FRESH_MAIN:
        names["__annotations__"] = {}
    names["__loader__"] = LOADER("__main__", filename)
    names["__file__"] = filename
    MODULES["__main__"] = main
    return names


class Stage:
    """Calls a function as if no Python code had called it. In a script there is nothing below its own first frame: that
    shows in `traceback.print_stack` and `warnings.warn`, and in how deep a recursion may go.

    For the call, the interpreter's record of its running frame is emptied and its count of frames begins anew. Where
    it keeps the two differs between versions, so they are looked for once and tried out; where they are not found, our
    frames can be seen, nothing worse."""

    def __init__(self):
        self.frame_slot = self.depth_slot = None
        PYTHON.PyThreadState_Get.restype = POINTER
        self.call = PYTHON.PyObject_Call
        self.call.argtypes = (ctypes.py_object, ctypes.py_object, POINTER)
        self.call.restype = ctypes.py_object

    def find(self):
        thread = PYTHON.PyThreadState_Get()
        self.frame_slot = self.find_frame(thread)
        self.depth_slot = self.find_depth(thread)
        if self.frame_slot is None:
            return
        names = {"sys": sys, "depth": ctypes.c_int.from_address(self.depth_slot[0] if self.depth_slot else thread)}
        look = compile("alone, depth = sys._getframe().f_back is None, depth.value", "<stage>", "exec")
        self.perform(exec, look, names)
        if not names["alone"]:
            self.frame_slot = None
        if self.depth_slot is not None:
            # The way to the program counts too; without it, this would have been the first frame.
            address, nothing = self.depth_slot
            first = nothing + (1 if nothing == 0 else -1)
            self.depth_slot = address, nothing + first - names["depth"]

    def find_frame(self, thread):
        """A function that gives the address of the record."""
        frame, word = sys._getframe(), WORD_AT
        if sys.version_info < (3, 11):
            # PyThreadState { prev, next, interp, frame }
            return (lambda: thread + 24) if word(thread + 24).value == id(frame) else None
        # PyFrameObject { head (2 words), f_back, f_frame }
        inner = word(id(frame) + 24).value
        if sys.version_info < (3, 13):
            # PyThreadState.cframe points to { current_frame }, behind a flag in 3.11.
            within = 8 if sys.version_info < (3, 12) else 0
            place = lambda: WORD_AT(thread + 56).value + within
            return place if word(place()).value == inner else None
        found = [at for at in range(thread, thread + 256, 8) if word(at).value == inner]
        return (lambda: found[0]) if len(found) == 1 else None

    def find_depth(self, thread):
        """The address of the count, and what it is when there is nothing below."""
        number, limit = ctypes.c_int.from_address, sys.getrecursionlimit()
        if sys.version_info < (3, 11):
            # Upwards from zero, kept behind the frame.
            return (thread + 32, 0) if 0 < number(thread + 32).value < 64 else None
        # Downwards from the limit, kept before it.
        found = [
            at
            for at in range(thread + 24, thread + 128, 4)
            if number(at + 4).value == limit and 0 < limit - number(at).value < 64
        ]
        return (found[0], limit) if len(found) == 1 else None

    def perform(self, function, *arguments):
        if self.frame_slot is None:
            return function(*arguments)
        running = WORD_AT(self.frame_slot())
        depth, change = None, 0
        if self.depth_slot is not None:
            address, fresh = self.depth_slot
            depth = NUMBER_AT(address)
            change = fresh - depth.value
            depth.value += change
        kept, running.value = running.value, 0
        try:
            return self.call(function, arguments, None)
        finally:
            running.value = kept
            if depth is not None:
                # The program may have changed the limit, and with it the count.
                depth.value -= change


STAGE = Stage()


def without_our_frames(error):
    """The traceback begins where the program's own code begins."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    error.__traceback__ = trace
    return error


def run_program(code, names):
    """Runs it and says with which status it ends. Nothing of it is referred to from here afterwards."""
    error = None
    try:
        STAGE.perform(exec, code, names)
    except BaseException as caught:
        error = without_our_frames(caught)
    # Outside of the handler: a hook of the program's must not find an exception that is being handled.
    return 0 if error is None else status_of(error)


def status_of(error):
    if isinstance(error, SystemExit):
        return status_of_exit(error)
    trace = error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    second = None
    try:
        hook = sys.excepthook
    except AttributeError:
        sys.stderr.write("sys.excepthook is missing\n")
        hook = DISPLAY
    try:
        sys.audit("sys.excepthook", hook, type(error), error, trace)
        STAGE.perform(hook, type(error), error, trace)
    except BaseException as caught:
        second = without_our_frames(caught)
    if isinstance(second, SystemExit):
        return status_of_exit(second)
    if second is not None:
        write_error("Error in sys.excepthook:\n")
        DISPLAY(type(second), second, second.__traceback__)
        write_error("\nOriginal exception was:\n")
        DISPLAY(type(error), error, trace)
    return UNHANDLED_INTERRUPT if type(error) is KeyboardInterrupt else 1


def status_of_exit(error):
    code = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        # The status is a C long, of which the parent sees the lowest byte; one that does not fit is -1.
        return code & 0xFF if -(1 << 63) <= code < 1 << 63 else 0xFF
    write_error(code)
    write_error("\n")
    return 1


def write_error(text):
    try:
        sys.stderr.write(str(text))
    except BaseException:
        # There is nowhere left to say it.
        pass


def end_program(status):
    """What the interpreter does between the end of a script and its own, in the same order, without taking itself
    apart: freeing what a guest shares with its siblings would copy all of it."""
    wait_for_threads()
    try:
        STAGE.perform(run_exit_functions)
    except BaseException:
        # It has been printed.
        pass
    flushed = flush_streams()
    STAGE.perform(collect)
    forget_modules()
    flushed = flush_streams() and flushed
    flush_libc(None)
    if not flushed:
        status = 120
    if status == UNHANDLED_INTERRUPT:
        # So that whoever waits sees that it was interrupted, and not that it chose to end.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        status = 130
    LAST_WORD.say(status)
    # `_exit` of libc, which would be looked up first.
    SYSTEM_CALL(EXIT_GROUP, status, 0, 0, 0, 0)


class LastWord:
    """Tells the agent with which status the program ends, before the kernel has taken the process apart: whoever waits
    for the result waits for that no longer.

    It is the program's own word, as its status always is. One that closes the descriptor is waited for instead."""

    # Out of the numbers that programs use by habit.
    NUMBER = 1023

    def __init__(self):
        self.pid = self.inode = None

    def keep(self):
        try:
            dup2(SIDE, self.NUMBER, inheritable=False)
        except OSError:
            # The limit of open files is below it.
            return
        self.pid, self.inode = getpid(), fstat(self.NUMBER)[ST_INO]

    def forget(self):
        if self.pid is not None:
            close(self.NUMBER)
            self.pid = None

    def say(self, status):
        # A child of the program's comes by here too, and the number may be another file's by now.
        if self.pid != getpid():
            return
        try:
            if fstat(self.NUMBER)[ST_INO] == self.inode:
                write(self.NUMBER, self.describe(status))
        except OSError:
            # Nobody listens, or it was closed; the end of this process says the same.
            pass


    def describe(self, status):
        """The status, and the time and the memory that it took."""
        used = usage(ONESELF)
        return PACK_END(status & 0xFF, int(used[0] * 1e6), int(used[1] * 1e6), used[2] * 1024)


PACK_END = struct.Struct("<BQQQ").pack
usage, ONESELF = resource.getrusage, resource.RUSAGE_SELF
LAST_WORD = LastWord()


def wait_for_threads():
    if threads_alive() == 0 and not THREADING["_threading_atexits"]:
        # Most programs have none.
        return
    threading = sys.modules["threading"]
    try:
        STAGE.perform(threading._shutdown)
    except BaseException as error:
        complain(threading, "threading shutdown", error)


def flush_streams():
    flushed = True
    for name in ("stdout", "stderr"):
        stream = SYSTEM.get(name)
        try:
            if stream is not None and not getattr(stream, "closed", False):
                STAGE.perform(stream.flush)
        except BaseException as error:
            flushed = False
            if name == "stdout":
                complain(stream, "flushing sys.stdout", error)
    return flushed


def complain(culprit, doing, error):
    """An error that ends nothing, in the words of each version."""
    without_our_frames(error)
    if sys.version_info < (3, 13):
        write_error("Exception ignored in: %r\n" % (culprit,))
        DISPLAY(type(error), error, error.__traceback__)
        return
    write_error("Exception ignored %s %s:\n" % ("on" if sys.version_info < (3, 14) else "while", doing))
    if error.__traceback__ is not None and sys.stderr is not None:
        PYTHON.PyTraceBack_Print(ctypes.py_object(error.__traceback__), ctypes.py_object(sys.stderr))
    write_error("%s: %s\n" % (type(error).__qualname__, error))


def forget_modules():
    """Lets go of the program's modules, `__main__` first, so that its objects are finalized: those that nothing refers
    to at once, those in circles by the collector, and the rest by emptying the modules that still live."""
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        SYSTEM.pop(name, None)
    for name, original in (("stdin", "__stdin__"), ("stdout", "__stdout__"), ("stderr", "__stderr__")):
        if SYSTEM.get(name) is not SYSTEM.get(original):
            STAGE.perform(setattr, sys, name, SYSTEM.get(original))
    living = []
    for name in modules_of_the_program():
        try:
            living.append(reference_to(MODULES[name]))
        except TypeError:
            # Something else than a module; it goes when nobody has it any more.
            pass
        STAGE.perform(MODULES.__setitem__, name, None)
    STAGE.perform(collect)
    for reference in reversed(living):
        names = getattr(reference(), "__dict__", {})
        for private in (True, False):
            for name in list(names):
                is_private = name[:1] == "_" and name[1:2] != "_"
                if name != "__builtins__" and is_private == private:
                    STAGE.perform(names.__setitem__, name, None)


def modules_of_the_program():
    """In the order in which they were imported. They stand behind those of the zygote, whose names are not even looked
    at: that alone would copy the pages of all of them."""
    names = []
    for name in reversed(MODULES):
        if name == LAST_MODULE:
            break
        if name not in ZYGOTE_MODULES:
            names.append(name)
    if "__main__" in MODULES and "__main__" not in names:
        names.append("__main__")
    return reversed(names)


def rehearse(program):
    """Runs a program once: what is touched now is not touched for the first time when somebody waits for it."""
    code = compile(program, "<rehearsal>", "exec", dont_inherit=True)
    names = fresh_main("<rehearsal>")
    try:
        STAGE.perform(exec, code, names)
    finally:
        MODULES["__main__"] = OWN_MAIN


def rehearse_job():
    """The same for the way to the program. Nothing of this is left when the job comes."""
    job = Job(REHEARSAL_JOB)
    settle(job)
    ordinary_source(absolute(KNOWN_FILE))
    real_path("/")
    hides_a_module(["/"])
    set_search_path("/", [])
    del sys.path[0]
    restart_clock_of_logging()
    rehearse(SHORT_REHEARSAL)
    wait_for_threads()
    flush_streams()
    STAGE.perform(collect)
    flush_libc(None)
    LAST_WORD.keep()
    LAST_WORD.describe(0)
    LAST_WORD.forget()


# A small file that is there wherever the interpreter is.
KNOWN_FILE = getattr(struct, "__file__", os.devnull)


def packed(*texts):
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


REHEARSAL_JOB = (
    struct.pack("<I", 2)
    + packed(b"python", b"main.py")
    + struct.pack("<I", 2)
    + packed(b"HOME", ZYGOTE_HOME or b"/", b"A", b"B")
    + packed(b"/")
    + struct.pack("<BI", 0, 0)
)

# Each page that a guest touches is copied for it, so a guest rehearses only what every program does.
SHORT_REHEARSAL = "print('', end='')"
LONG_REHEARSAL = """
import json, sys, traceback
class Point:
    def __init__(self, x, y=1):
        self.x, self.y = x, y
def area(*points, **rest):
    return [f"{point.x * point.y:.2f}" for point in points if point.x is not None]
try:
    print(json.dumps({"areas": area(Point(1), Point(2.5))})[:0], end="")
    raise ValueError("rehearsal")
except ValueError:
    traceback.format_exc()
"""


def execute_interpreter(job):
    """Leaves the program to the real interpreter, in this process and behind its walls."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(job.argv[0], job.argv, dict(os.environ._data))
    except OSError as error:
        write_error("%s: %s\n" % (job.argv[0], error.strerror))
    os._exit(127)


def await_and_begin(zygote):
    """Gives the code and the `__main__` of the program, when all of its job that may fail is done."""
    try:
        job = take_step("job", read_job)
        settle(job)
        # What follows does not fail: whoever waits for this can go on meanwhile.
        write(SIDE, b"\0\0\0\0")
    except Failed as failure:
        refuse_job(failure)
    except OSError:
        # The agent is gone: nobody wants the program any more.
        os._exit(0)
    program = start_program(zygote, job)
    if not job.keeps_side:
        if job.says_end:
            LAST_WORD.keep()
        close(SIDE)
    if program is None:
        execute_interpreter(job)
    return program


def main():
    """The zygote's life. Comes back in guests only, so that a program runs with as little below it as can be."""
    command = _socket.socket(AF_UNIX, socket.SOCK_SEQPACKET, 0, COMMAND)
    try:
        zygote = warm_up(command)
    except Failed as failure:
        command.send(encode({"failed": 0, "step": failure.step, "errno": failure.errno}))
        os._exit(1)
    join = zygote.serve(command)
    if join is None:
        os._exit(0)
    command.detach()
    # To let go of all this would be one more thing that copies pages.
    global KEPT
    KEPT = zygote, join, command
    become_guest(join)
    return await_and_begin(zygote)


end_program(run_program(*main()))
