"""The zygote of Python: an interpreter that is warm once and forks guests into jails that exist.

Three lives of one program:

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

The files of this folder are one program: they are joined, in this order, when they are embedded.

    kernel.py    how it starts, and the kernel's calls that Python has no function for
    zygote.py    the first life: requests of the launcher, forks
    guest.py     the second: the way into the jail, the walls, the job
    program.py   the third: what an interpreter does around a script
    warm.py      what the zygote does before the first request so that guests have little left to do; `main`
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
import ast
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
from posix import F_OK, _exit, access, chdir, close, dup2, fstat, getcwdb, getpid, listdir, read
from posix import open as open_file
from posix import write

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
            "read": 0,
            "write": 1,
            "close": 3,
            "pipe2": 293,
            "openat": 257,
            "sendto": 44,
            "sendmsg": 46,
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
            "ppoll": 271,
            "set_robust_list": 273,
            "get_robust_list": 274,
            "dup3": 292,
            "prlimit64": 302,
            "setns": 308,
            "seccomp": 317,
            "getrandom": 318,
        },
        "aarch64": {
            "dup3": 24,
            "close": 57,
            "ppoll": 73,
            "openat": 56,
            "pipe2": 59,
            "exit_group": 94,
            "read": 63,
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
            "sendto": 206,
            "sendmsg": 211,
            "getpid": 172,
            "geteuid": 175,
            "getegid": 177,
            "keyctl": 219,
            "prlimit64": 261,
            "setns": 268,
            "seccomp": 277,
            "getrandom": 278,
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
# call where it stopped. A guest puts up its walls by this: it takes a fraction of the time that Python would take, and
# nothing of the interpreter is touched, or trusted to work, before the walls stand.
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


def memory_function(name, *argument_types, result=ctypes.c_int):
    function = LIBC[name]
    function.argtypes, function.restype, function.errcheck = argument_types, result, check_memory
    return function


def check_memory(result, _function, _arguments):
    if result in (-1, POINTER(-1).value):
        raise OSError(ctypes.get_errno(), "memory")
    return result


allocate = memory_function("mmap", POINTER, WORD, *[ctypes.c_int] * 3, ctypes.c_long, result=POINTER)
protect = memory_function("mprotect", POINTER, WORD, ctypes.c_int)


def new_memory(size):
    return allocate(None, size, READ_WRITE, PRIVATE_MEMORY, -1, 0)


def machine_code(machine):
    """The function that stands at the beginnings of its lines. Its memory is never writable and executable at once."""
    lines = MACHINE_CODE[machine].splitlines()
    code = b"".join(bytes.fromhex(line[:MACHINE_CODE_WIDTH]) for line in lines)
    address = new_memory(PAGE)
    ctypes.memmove(address, code, len(code))
    protect(address, PAGE, READ_EXECUTE)
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
