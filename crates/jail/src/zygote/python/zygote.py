"""The zygote: reads requests of the launcher and forks guests."""

COMMAND = SIDE = 3
LANDLOCK = SIDE + 1
MAX_HELLO, MAX_COMMAND, MAX_DESCRIPTORS = 1 << 18, 1 << 12, 32
NEEDED = ("side", "pid", "user", "mnt", "ipc", "uts", "net")


class Zygote:
    """What is made once and is the same for every guest."""

    def __init__(self, hello):
        self.landlock = bool(hello.get("landlock"))
        # Its own pid namespace, to come back to: there is no /proc to open it from.
        self.own_pid = take_step("own pid namespace", system_call, "pidfd_open", os.getpid())
        self.come_back = Calls(
            ("own pid namespace", [described("setns", self.own_pid, NAMESPACES["pid"])]),
            # What has come with a request has higher numbers than anything that the zygote keeps.
            ("descriptors", [described("close_range", self.own_pid + 1, 0xFFFFFFFF)]),
        )
        if self.come_back.make() < self.come_back.count:
            raise self.come_back.failure(0)
        self.last = None
        self.filter = Filter(base64.b64decode(hello["filter"], validate=True))
        self.thread_id = thread_id_address()
        self.robust_list = robust_list()
        self.empty_bounding_set = [
            described("prctl", PR_CAPBSET_DROP, number) for number in range(known_capabilities())
        ]
        self.known = {}
        for place, filename in hello.get("known", ()):
            take_step("known program", self.learn, place, filename)

    def learn(self, place, filename):
        """Begins a program ahead: all but its last statement, which may do no more than define, is done here, once. A guest
        that finds exactly these bytes under this name goes on from there, and shares what was defined with the others."""
        with open(place, "rb") as file:
            source = file.read()
        tree = ast.parse(source, filename)
        last = ast.Module([tree.body.pop()], [])
        definitions, rest = (compile(part, filename, "exec", dont_inherit=True) for part in (tree, last))
        main = new_main(filename)
        exec(definitions, main.__dict__)
        self.known[filename, source] = main, rest

    def serve(self, command):
        """Forks guests until the launcher is gone. Gives the join in a guest, nothing in the zygote.

        As little as can be is done here: what the zygote touches between two forks is copied for it."""
        while True:
            data, ancillary = receive(command, MAX_COMMAND)
            if not data:
                return None
            # The number of a request is the first thing that it says.
            number, _, request = data.partition(b",")
            _, _, number = number.partition(b":")
            try:
                join = self.join_for(request, ancillary)
                pid = self.fork(join)
                if pid == 0:
                    return join
            except Failed as failure:
                answer = {"failed": int(number), "step": failure.step, "errno": failure.errno}
                command.send(encode(answer))
            else:
                answer = b'{"joined": %b, "pid": %d}' % (number, pid)
                command.sendmsg((answer,), ((SOL_SOCKET, SCM_RIGHTS, join.pidfd),))
            if self.come_back.make() < self.come_back.count:
                # It would fork its next guest into a stranger's jail: it ends.
                raise OSError("no way back")

    def join_for(self, request, ancillary):
        """Requests differ in little more than their number: descriptors that are closed come again under the same
        ones. What was made for the last request then serves this one."""
        if self.last is None or self.last[0] != request or self.last[1] != ancillary:
            self.last = None
            descriptors = [number for _, _, content in ancillary for (number,) in struct.iter_unpack("@i", content)]
            join = take_step("request", Join, decode("{" + request.decode()), descriptors, self)
            self.last = request, ancillary, join
        return self.last[2]

    def fork(self, join):
        """A child in the jail's pid namespace and group, whose parent is the launcher: its pid, or 0 in the child, which
        has walked as far into the jail by then as it could: see `become_guest`.

        `clone3` is called directly, since no function of libc does this. What libc's own fork would do besides is done
        here: the cached thread id is renewed by the kernel, the list of robust locks by the guest's first steps. What
        the interpreter would do is about other threads, which a zygote does not have, and about the hooks of modules.
        Those of the standard library renew locks that other threads may hold and seed generators, which every guest
        does in any case; `threading` alone knows something that a fork changes: see `Renewal`. Hooks of preloaded
        modules are not known here, and run in guests."""
        made = join.calls.make()
        if made > CLONE_AT:
            join.made = made
            return 0
        result = join.calls.result(made)
        if result > GOOD:
            raise join.calls.failure(made)
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
        self.made = 0

    @property
    def side(self):
        """The side socket has its own number once the entrance has been passed."""
        passed = self.calls.names[: self.made].count("descriptors") == self.calls.names.count("descriptors")
        return SIDE if passed else self.descriptors["side"]


def receive(command, size):
    """The next packet and what came beside it, or nothing when the launcher has gone."""
    data, ancillary, flags, _ = command.recvmsg(size, ANCILLARY_SPACE, CLOSE_ON_EXEC)
    if flags & TRUNCATED:
        raise Failed("command", errno.EMSGSIZE)
    return data, ancillary


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
