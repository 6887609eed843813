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
FRESH_MAIN = dict(globals())
import sys

FRESH_MODULES = frozenset(sys.modules)

import _socket
import _thread
import atexit
import base64
import ctypes
import errno
import gc
import io
import json
import os
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


class ForkHooks:
    """What the standard library wants done around every fork is kept back while the zygote forks, and registered for
    real in each guest.

    Its hooks renew locks that other threads may hold, which a zygote does not have, and seed generators, which every
    guest does in any case. Running them would copy a hundred pages for nothing. `threading` alone knows something
    that a fork changes, the number of the main thread. Hooks of preloaded modules are not known here, and run."""

    def __init__(self):
        self.register, self.kept = os.register_at_fork, []
        os.register_at_fork = self.keep

    def keep(self, **hooks):
        self.kept.append(hooks)

    def stop_keeping(self):
        os.register_at_fork = self.register

    def give_back(self):
        for hooks in self.kept:
            self.register(**hooks)
        sys.modules["threading"].main_thread()._set_native_id()


FORK_HOOKS = ForkHooks()

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

NUMBERS = {
    # These have one number everywhere.
    "pidfd_open": 434,
    "clone3": 435,
    "close_range": 436,
    "landlock_restrict_self": 446,
    **{
        "x86_64": {"keyctl": 250, "set_robust_list": 273, "get_robust_list": 274, "seccomp": 317},
        "aarch64": {"keyctl": 219, "set_robust_list": 99, "get_robust_list": 100, "seccomp": 277},
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
CAPABILITY_HEADER = struct.pack("@II", 0x20080522, 0)
BYTES_24 = ctypes.c_char * 24
KEYCTL_JOIN_SESSION_KEYRING = 1
SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC = 1, 1


def raise_errno(result, _function, _arguments):
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def libc_function(name, *argument_types):
    function = LIBC[name]
    function.argtypes = argument_types
    function.restype = ctypes.c_long if name == "syscall" else ctypes.c_int
    function.errcheck = raise_errno
    return function


def system_call(name, *argument_types):
    number = NUMBERS[name]
    function = libc_function("syscall", ctypes.c_long, *argument_types)
    return lambda *arguments: function(number, *arguments)


WORD, POINTER = ctypes.c_ulong, ctypes.c_void_p
setns = libc_function("setns", ctypes.c_int, ctypes.c_int)
unshare = libc_function("unshare", ctypes.c_int)
prlimit = libc_function("prlimit64", ctypes.c_int, ctypes.c_int, POINTER, POINTER)
capget = libc_function("capget", POINTER, POINTER)
capset = libc_function("capset", POINTER, POINTER)
clearenv = libc_function("clearenv")
prctl_of_five = libc_function("prctl", ctypes.c_int, WORD, WORD, WORD, WORD)
pidfd_open = system_call("pidfd_open", WORD, WORD)
clone3 = system_call("clone3", POINTER, WORD)
close_range = system_call("close_range", WORD, WORD, WORD)
keyctl = system_call("keyctl", WORD, POINTER)
landlock_restrict_self = system_call("landlock_restrict_self", WORD, WORD)
seccomp = system_call("seccomp", WORD, WORD, POINTER)
LIBC.realpath.restype = POINTER
get_robust_list = system_call("get_robust_list", WORD, POINTER, POINTER)
set_robust_list = system_call("set_robust_list", WORD, WORD)


def prctl(option, value=0, third=0):
    return prctl_of_five(option, value, third, 0, 0)


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
MAX_HELLO, MAX_COMMAND, MAX_DESCRIPTORS = 1 << 18, 1 << 14, 32
NEEDED = ("side", "pid", "user", "mnt", "ipc", "uts", "net")


class Zygote:
    """What is made once and is the same for every guest."""

    def __init__(self, hello):
        self.landlock = bool(hello.get("landlock"))
        # Its own pid namespace, to come back to: there is no /proc to open it from.
        self.own_pid = take_step("own pid namespace", pidfd_open, os.getpid(), 0)
        take_step("own pid namespace", setns, self.own_pid, NAMESPACES["pid"])
        self.filter = Filter(base64.b64decode(hello["filter"], validate=True))
        self.thread_id = thread_id_address()
        self.robust_list = robust_list()
        self.capabilities = known_capabilities()
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
            request, descriptors = receive(command, MAX_COMMAND)
            if request is None:
                return None
            number = request["join"]
            try:
                join = take_step("request", Join, request, descriptors, self.landlock)
                pid, pidfd = self.fork(join)
            except Failed as failure:
                answer = {"failed": number, "step": failure.step, "errno": failure.errno}
                send(command, encode(answer), ())
            else:
                if pid == 0:
                    return join
                send(command, b'{"joined": %d, "pid": %d}' % (number, pid), (pidfd,))
                os.close(pidfd)
            for descriptor in descriptors:
                os.close(descriptor)

    def fork(self, join):
        """A child in the jail's pid namespace and group, whose parent is the launcher: (0, -1) in the child.

        `clone3` is called directly, since no function of libc does this. What libc's own fork would do besides is done
        here: the cached thread id is renewed by the kernel, the list of robust locks by `after_fork`."""
        pidfd = ctypes.c_int(-1)
        arguments = CLONE_ARGUMENTS()
        flags = CLONE_PARENT | CLONE_PIDFD | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID
        arguments[1] = ctypes.addressof(pidfd)
        arguments[2] = self.thread_id
        if "unified" in join.descriptors:
            flags |= CLONE_INTO_CGROUP
            arguments[10] = join.descriptors["unified"]
        arguments[0] = flags
        take_step("pid namespace", setns, join.descriptors["pid"], NAMESPACES["pid"])
        PYTHON.PyOS_BeforeFork()
        try:
            pid = clone3(ctypes.addressof(arguments), ctypes.sizeof(arguments))
        except OSError as error:
            pid = -error.errno
        if pid == 0:
            PYTHON.PyOS_AfterFork_Child()
            return 0, -1
        PYTHON.PyOS_AfterFork_Parent()
        # A zygote that could not come back would fork its next guest into a stranger's jail: it ends.
        setns(self.own_pid, NAMESPACES["pid"])
        if pid < 0:
            raise Failed("clone", -pid)
        return pid, pidfd.value


CLONE_ARGUMENTS = ctypes.c_uint64 * 11
LIMITS = ctypes.c_uint64 * 2


class Filter:
    """A seccomp program, laid out for the kernel."""

    def __init__(self, program):
        if not program or len(program) % 8:
            raise Failed("seccomp filter", errno.EINVAL)
        self.instructions = ctypes.create_string_buffer(program, len(program))
        address = ctypes.addressof(self.instructions)
        self.description = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, address))

    def install(self):
        flags = SECCOMP_FILTER_FLAG_TSYNC
        if seccomp(SECCOMP_SET_MODE_FILTER, flags, ctypes.addressof(self.description)) != 0:
            # The id of a thread that could not follow.
            raise OSError(errno.EBUSY, "another thread")


class Join:
    """One request of the launcher: the jail as descriptors, and who the payload is in it."""

    def __init__(self, request, descriptors, landlock):
        names = request["fds"]
        if len(names) != len(descriptors):
            raise ValueError("descriptors do not match their names")
        self.descriptors = {name: fd for name, fd in zip(names, descriptors) if name != "tasks"}
        self.tasks = [fd for name, fd in zip(names, descriptors) if name == "tasks"]
        missing = [name for name in NEEDED if name not in self.descriptors]
        if missing or landlock != ("landlock" in self.descriptors):
            raise ValueError("descriptors are missing")
        self.uid, self.gid = int(request["uid"]), int(request["gid"])
        if self.uid <= 0 or self.gid <= 0:
            raise ValueError("a payload is nobody's root")
        self.rlimits = [
            (int(resource), LIMITS(soft, hard)) for resource, soft, hard in request["rlimits"]
        ]


def receive(command, size):
    """The next packet and its descriptors, or nothing when the launcher has gone."""
    data, ancillary, flags, _ = command.recvmsg(size, ANCILLARY_SPACE, CLOSE_ON_EXEC)
    descriptors = [number for _, _, content in ancillary for (number,) in struct.iter_unpack("@i", content)]
    if flags & TRUNCATED:
        raise Failed("command", errno.EMSGSIZE)
    return (decode(data.decode()), descriptors) if data else (None, [])


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
    take_step("robust list", get_robust_list, 0, ctypes.addressof(head), ctypes.addressof(size))
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
    try:
        unshare(CLONE_THREAD)
        return True
    except OSError:
        return False


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
        hello, _ = receive(command, MAX_HELLO)
        if hello is None:
            os._exit(0)
    if hello.get("hello") != 1:
        raise Failed("hello", errno.EPROTO)
    default_signals()
    for name in USUAL:
        take_step("import " + name, usual, name)
    FORK_HOOKS.stop_keeping()
    try:
        imported, missing = preload(hello.get("preload", ()), hello.get("refused", ()))
    except Threads as refused:
        start_again_without(refused.args[0], hello)
    if not has_one_thread():
        raise Failed("threads", errno.EBUSY)
    zygote = take_step("hello", Zygote, hello)
    take_step("streams", open_streams)
    STAGE.find()
    rehearse(LONG_REHEARSAL)
    # What lives now is never looked at by a collector again, so it stays shared with every guest.
    gc.collect()
    gc.freeze()
    global ZYGOTE_MODULES, LAST_MODULE, HIDEABLE
    ZYGOTE_MODULES = frozenset(sys.modules) - {"__main__"}
    LAST_MODULE = next(reversed(sys.modules))
    HIDEABLE = ZYGOTE_MODULES - FRESH_MODULES - frozenset(sys.builtin_module_names)
    version = "%d.%d.%d" % sys.version_info[:3]
    command.send(encode({"ready": {"version": version, "preloaded": imported, "missing": missing}}))
    return zygote


def usual(name):
    try:
        __import__(name)
    except ImportError:
        # Distributions leave out parts of the standard library.
        pass


# ---------------------------------------------------------------------------------------------------------------------
# The guest: from a copy of root's process to the payload. The order is the design.


def become_guest(zygote, join):
    """Goes into the jail and puts up the walls. Never returns if one of them fails."""
    try:
        for name, step in STEPS:
            take_step(name, step, zygote, join)
    except Failed as failure:
        say_failure(join, failure)
        os._exit(125)
    except BaseException:
        say_failure(join, Failed("an error of the zygote's program", errno.EIO))
        os._exit(125)


def say_failure(join, failure):
    message = b"FAIL" + struct.pack("<I", failure.errno) + failure.step.encode()
    try:
        os.write(join.descriptors["side"], message)
    except OSError:
        # Nobody listens; the end of this process says enough.
        pass


def die_with_the_launcher(_zygote, _join):
    prctl(PR_SET_PDEATHSIG, SIGKILL)


def enter_groups(_zygote, join):
    """Moving oneself through a descriptor that root opened takes microseconds, and what follows is charged there."""
    for entrance in join.tasks:
        os.write(entrance, b"0")


def enter(join, kind):
    setns(join.descriptors[kind], NAMESPACES[kind])


def keep_two_descriptors(zygote, join):
    """Leaves the side socket at 3, and at 0 to 2 until there are streams; the Landlock rules at 4; nothing else.

    This is where the command socket goes."""
    side, landlock = join.descriptors["side"], join.descriptors.get("landlock")
    for number in (SIDE, 0, 1, 2):
        os.dup2(side, number)
    join.descriptors = {"side": SIDE}
    if landlock is not None:
        if landlock != SIDE + 1:
            os.dup2(landlock, SIDE + 1, inheritable=False)
        join.descriptors["landlock"] = SIDE + 1
    close_range(SIDE + len(join.descriptors), 0xFFFFFFFF, 0)


def set_limits(_zygote, join):
    for resource, limits in join.rlimits:
        prlimit(0, resource, ctypes.addressof(limits), None)


def go_first_for_memory():
    """The payload is what the kernel should pick when memory runs out, not the jail's PID 1. A host that forbids it
    only loses this preference."""
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"500")
        finally:
            os.close(fd)
    except OSError:
        pass


def drop_groups(_zygote, _join):
    """The launcher has given them up, and in the jail nobody may change them: only what is there has to go."""
    if os.getgroups():
        os.setgroups([])


def empty_bounding_set(zygote, _join):
    for capability in range(zygote.capabilities):
        prctl(PR_CAPBSET_DROP, capability)


def drop_capabilities():
    capset(CAPABILITY_HEADER, bytes(24))


def held_capabilities():
    """Effective, permitted and inheritable ones, together."""
    sets = bytearray(24)
    capget(CAPABILITY_HEADER, BYTES_24.from_buffer(sets))
    # Three words of low bits, then three of high ones.
    words = struct.unpack("@6I", sets)
    return (words[0] | words[1] | words[2]) | (words[3] | words[4] | words[5]) << 32


def enter_landlock(_zygote, join):
    ruleset = join.descriptors.pop("landlock", None)
    if ruleset is not None:
        landlock_restrict_self(ruleset, 0)
        os.close(ruleset)


def make_pipes(join):
    """The streams, made as the payload's user so that they are charged to it. The far ends go to the agent."""
    stdin, stdout, stderr = os.pipe(), os.pipe(), os.pipe()
    for number, near in enumerate((stdin[0], stdout[1], stderr[1])):
        os.dup2(near, number)
        os.close(near)
    join.far_ends = [stdin[1], stdout[0], stderr[0]]


def renew_randomness():
    """Siblings share all that the zygote had. The hash seed cannot be changed; every generator is seeded anew."""
    modules = sys.modules
    modules["random"].seed()
    modules["tempfile"]._name_sequence = None
    modules["uuid"]._node = modules["uuid"]._last_timestamp = None
    if "numpy.random" in modules:
        modules["numpy.random"].seed()
    if "_ssl" in modules:
        modules["_ssl"].RAND_add(os.urandom(32), 32.0)


def report_warm(join):
    """Says what the kernel says of this process, and hands over the far ends of the streams."""
    walls = struct.pack(
        "<IIIQBI",
        os.getpid(),
        os.geteuid(),
        os.getegid(),
        held_capabilities(),
        prctl(PR_GET_NO_NEW_PRIVS),
        prctl(PR_GET_SECCOMP),
    )
    # The socket of C, which has less around it.
    side = _socket.socket(AF_UNIX, SOCK_STREAM, 0, SIDE)
    try:
        send(side, b"WARM" + walls, join.far_ends)
    finally:
        side.detach()
    for descriptor in join.far_ends:
        os.close(descriptor)


STEPS = (
    ("parent death signal", die_with_the_launcher),
    ("cgroup", enter_groups),
    ("robust list", lambda zygote, join: set_robust_list(*zygote.robust_list)),
    # Made by the launcher and owned by the host, perhaps: joined while the rights of the host are there.
    ("network namespace", lambda zygote, join: enter(join, "net")),
    # From here on the rights are those of root in the jail's own user namespace.
    ("user namespace", lambda zygote, join: enter(join, "user")),
    ("cgroup namespace", lambda zygote, join: "cgroup" in join.descriptors and enter(join, "cgroup")),
    ("ipc namespace", lambda zygote, join: enter(join, "ipc")),
    ("uts namespace", lambda zygote, join: enter(join, "uts")),
    ("mount namespace", lambda zygote, join: enter(join, "mnt")),
    ("keyring", lambda zygote, join: keyctl(KEYCTL_JOIN_SESSION_KEYRING, None)),
    ("session", lambda zygote, join: os.setsid()),
    ("umask", lambda zygote, join: os.umask(0o022)),
    # Processes of the same user may be in the jail already: before this one becomes theirs, it has nothing
    # left that they could want.
    ("descriptors", keep_two_descriptors),
    ("resource limits", set_limits),
    ("memory preference", lambda zygote, join: go_first_for_memory()),
    ("groups", drop_groups),
    ("bounding set", empty_bounding_set),
    ("secure bits", lambda zygote, join: prctl(PR_SET_SECUREBITS, SECURE_BITS)),
    ("group id", lambda zygote, join: os.setresgid(join.gid, join.gid, join.gid)),
    ("user id", lambda zygote, join: os.setresuid(join.uid, join.uid, join.uid)),
    ("ambient capabilities", lambda zygote, join: prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)),
    ("capabilities", lambda zygote, join: drop_capabilities()),
    # The change of ids has cleared it.
    ("parent death signal", die_with_the_launcher),
    ("no new privileges", lambda zygote, join: prctl(PR_SET_NO_NEW_PRIVS, 1)),
    ("landlock domain", enter_landlock),
    ("streams", lambda zygote, join: make_pipes(join)),
    ("seccomp filter", lambda zygote, join: zygote.filter.install()),
    # Closed to the other processes of its user since it took their id, and until all walls stand: who could
    # write into its memory could have left some of them out. Now it is as after an exec.
    ("dumpable", lambda zygote, join: prctl(PR_SET_DUMPABLE, 1)),
    ("fork hooks", lambda zygote, join: FORK_HOOKS.give_back()),
    ("randomness", lambda zygote, join: renew_randomness()),
    ("rehearsal", lambda zygote, join: rehearse_job()),
    ("report", lambda zygote, join: report_warm(join)),
)

# ---------------------------------------------------------------------------------------------------------------------
# The job.

FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
# Flags of a job: descriptor 3 stays, as the program's side channel; the program says how it ends.
KEEP_SIDE, SAY_END = 1, 2


class Job:
    """What the agent wants to be run."""

    def __init__(self, body):
        self.body, self.at = body, 0
        self.argv = [os.fsdecode(self.string()) for _ in range(self.number())]
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
        (value,) = struct.unpack_from("<I", self.body, self.at)
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
    (size,) = struct.unpack("<I", read_exactly(4))
    return Job(read_exactly(size))


def read_exactly(size):
    data = os.read(SIDE, size)
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


def set_environment(pairs):
    """Exactly these variables, for Python and for libc. The mapping stays the same object, since modules keep it."""
    clearenv()
    posix, data = sys.modules["posix"].environ, os.environ._data
    posix.clear()
    data.clear()
    for name, value in pairs:
        if name not in data:
            os.putenv(name, value)
            posix[name] = data[name] = value
    if b"TZ" in data:
        time.tzset()


def enter_directory(path):
    os.chdir(path)
    try:
        inside = os.getcwdb().startswith(b"/")
    except FileNotFoundError:
        inside = False
    if not inside:
        raise OSError(errno.EXDEV, "outside the root")


def place(path, content):
    """Writes a whole file, making the directories above it; a link at its place is refused."""
    if path.rstrip(b"/").rpartition(b"/")[2] in (b"", b".", b".."):
        raise OSError(errno.EINVAL, "not a path of a file")
    try:
        fd = os.open(path, FILE_FLAGS, 0o644)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path) or b".", 0o755, exist_ok=True)
        fd = os.open(path, FILE_FLAGS, 0o644)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
    finally:
        os.close(fd)


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
ZYGOTE_HOME = os.environ.get("HOME")
DISPLAY = sys.__excepthook__
OWN_MAIN = sys.modules["__main__"]
UNHANDLED_INTERRUPT = -int(signal.SIGINT)


def start_program(zygote, job):
    """Puts the interpreter into the state in which `python3 script args…` would run the script: its code and its
    `__main__`. Nothing when this is a start that only the real interpreter can make."""
    filename = absolute(job.argv[1])
    source = ordinary_source(filename)
    if source is None:
        return None
    own_folder = os.path.dirname(real_path(filename))
    given = os.environ.get("PYTHONPATH")
    first = [os.path.abspath(entry) for entry in given.split(":")] if given else []
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
    if "logging" in sys.modules:
        restart_clock_of(sys.modules["logging"])
    return code, fresh_main(filename)


def absolute(path):
    """As the interpreter does it: in front of the path, and nothing else about it is changed."""
    return path if path.startswith("/") else os.getcwd() + "/" + path


PATH_BUFFER = ctypes.create_string_buffer(4097)


def real_path(path):
    """By libc, as the interpreter asks it."""
    found = LIBC.realpath(os.fsencode(path), PATH_BUFFER)
    return os.fsdecode(PATH_BUFFER.value) if found else path


def ordinary_source(filename):
    """The bytes of a script that is a plain file of source text."""
    try:
        fd = os.open(filename, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return None
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            return None
        source = os.read(fd, about.st_size + 1)
        while True:
            more = os.read(fd, 1 << 20)
            if not more:
                break
            source += more
    finally:
        os.close(fd)
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
    if os.environ.get("HOME") != ZYGOTE_HOME:
        site.USER_SITE = site.USER_BASE = None
    folder = site.getusersitepackages()
    # Asked in a way that raises nothing: it is hardly ever there.
    if not site.ENABLE_USER_SITE or not os.access(folder, os.F_OK) or not os.path.isdir(folder):
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
            entries = os.listdir(folder)
        except OSError:
            continue
        for entry in entries:
            name, _, suffix = entry.partition(".")
            if name in HIDEABLE and (not suffix or suffix.endswith(("py", "pyc", "so"))):
                return True
    return False


def restart_clock_of(logging):
    """The records of a program count their time from its start."""
    now = time.time_ns() if isinstance(logging._startTime, int) else time.time()
    logging._startTime = now


def fresh_main(filename):
    """A `__main__` with just what the interpreter itself puts there."""
    main = types.ModuleType("__main__")
    names = main.__dict__
    names.update(FRESH_MAIN)
    names["__doc__"] = None
    if "__annotations__" in FRESH_MAIN:
        names["__annotations__"] = {}
    names["__loader__"] = type(FRESH_MAIN["__loader__"])("__main__", filename)
    names["__file__"] = filename
    sys.modules["__main__"] = main
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
        frame, word = sys._getframe(), ctypes.c_uint64.from_address
        if sys.version_info < (3, 11):
            # PyThreadState { prev, next, interp, frame }
            return (lambda: thread + 24) if word(thread + 24).value == id(frame) else None
        # PyFrameObject { head (2 words), f_back, f_frame }
        inner = word(id(frame) + 24).value
        if sys.version_info < (3, 13):
            # PyThreadState.cframe points to { current_frame }, behind a flag in 3.11.
            within = 8 if sys.version_info < (3, 12) else 0
            place = lambda: word(thread + 56).value + within
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
        running = ctypes.c_uint64.from_address(self.frame_slot())
        depth, change = None, 0
        if self.depth_slot is not None:
            address, fresh = self.depth_slot
            depth = ctypes.c_int.from_address(address)
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
        STAGE.perform(atexit._run_exitfuncs)
    except BaseException:
        # It has been printed.
        pass
    flushed = flush_streams()
    STAGE.perform(gc.collect)
    forget_modules()
    flushed = flush_streams() and flushed
    LIBC.fflush(None)
    if not flushed:
        status = 120
    if status == UNHANDLED_INTERRUPT:
        # So that whoever waits sees that it was interrupted, and not that it chose to end.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        status = 130
    LAST_WORD.say(status)
    os._exit(status)


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
            os.dup2(SIDE, self.NUMBER, inheritable=False)
        except OSError:
            # The limit of open files is below it.
            return
        self.pid, self.inode = os.getpid(), os.fstat(self.NUMBER).st_ino

    def say(self, status):
        # A child of the program's comes by here too, and the number may be another file's by now.
        if self.pid != os.getpid():
            return
        try:
            if os.fstat(self.NUMBER).st_ino == self.inode:
                used = resource.getrusage(resource.RUSAGE_SELF)
                times = int(used.ru_utime * 1e6), int(used.ru_stime * 1e6)
                os.write(self.NUMBER, struct.pack("<BQQQ", status & 0xFF, *times, used.ru_maxrss * 1024))
        except OSError:
            # Nobody listens, or it was closed; the end of this process says the same.
            pass


LAST_WORD = LastWord()


def wait_for_threads():
    threading = sys.modules["threading"]
    if _thread._count() == 0 and not threading._threading_atexits:
        # Most programs have none.
        return
    try:
        STAGE.perform(threading._shutdown)
    except BaseException as error:
        complain(threading, "threading shutdown", error)


def flush_streams():
    flushed = True
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name, None)
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
        sys.__dict__.pop(name, None)
    for name in ("stdin", "stdout", "stderr"):
        STAGE.perform(setattr, sys, name, getattr(sys, "__%s__" % name, None))
    living = []
    for name in modules_of_the_program():
        try:
            living.append(weakref.ref(sys.modules[name]))
        except TypeError:
            # Something else than a module; it goes when nobody has it any more.
            pass
        STAGE.perform(sys.modules.__setitem__, name, None)
    STAGE.perform(gc.collect)
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
    for name in reversed(sys.modules):
        if name == LAST_MODULE:
            break
        if name not in ZYGOTE_MODULES:
            names.append(name)
    if "__main__" in sys.modules and "__main__" not in names:
        names.append("__main__")
    return reversed(names)


def rehearse(program):
    """Runs a program once: what is touched now is not touched for the first time when somebody waits for it."""
    code = compile(program, "<rehearsal>", "exec", dont_inherit=True)
    names = fresh_main("<rehearsal>")
    names["output"] = REHEARSAL_OUTPUT
    try:
        STAGE.perform(exec, code, names)
    finally:
        sys.modules["__main__"] = OWN_MAIN


def rehearse_job():
    """The same for the way to the program. Nothing of this is left when the job comes."""
    job = Job(REHEARSAL_JOB)
    settle(job)
    ordinary_source("/dev/null")
    real_path("/")
    hides_a_module(["/"])
    set_search_path("/", [])
    del sys.path[0]
    rehearse(SHORT_REHEARSAL)


def packed(*texts):
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


REHEARSAL_JOB = (
    struct.pack("<I", 2)
    + packed(b"python", b"main.py")
    + struct.pack("<I", 2)
    + packed(b"HOME", os.fsencode(ZYGOTE_HOME or "/"), b"A", b"B")
    + packed(b"/")
    + struct.pack("<BI", 0, 0)
)

# Made once: making a stream touches more than writing to it.
REHEARSAL_OUTPUT = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
# Each page that a guest touches is copied for it, so a guest rehearses only what every program does.
SHORT_REHEARSAL = "print(1, file=output)"
LONG_REHEARSAL = """
import json, sys, traceback
class Point:
    def __init__(self, x, y=1):
        self.x, self.y = x, y
def area(*points, **rest):
    return [f"{point.x * point.y:.2f}" for point in points if point.x is not None]
try:
    print(json.dumps({"areas": area(Point(1), Point(2.5))}), file=output)
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
        program = start_program(zygote, job)
        os.write(SIDE, b"\0\0\0\0")
    except Failed as failure:
        refuse_job(failure)
    except OSError:
        # The agent is gone: nobody wants the program any more.
        os._exit(0)
    if not job.keeps_side:
        if job.says_end:
            LAST_WORD.keep()
        os.close(SIDE)
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
    become_guest(zygote, join)
    return await_and_begin(zygote)


end_program(run_program(*main()))
