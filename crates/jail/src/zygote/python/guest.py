"""The guest: from a copy of root's process to the payload. The order is the design.

Nearly all of it is calls of the kernel whose arguments are known before the fork. The zygote writes them down, and the
guest makes one after the other before it runs any Python, which would copy pages.
"""


def become_guest(join):
    """The rest of the way, when the calls of the kernel are made. Never returns if one of them failed."""
    try:
        check_way(join)
        take_step("randomness", RENEWAL.renew, getpid())
        take_step("hooks", RENEWAL.run_hooks)
        COLLECTOR.begin()
        write_report(join)
        send_report()
    except Failed as failure:
        say_failure(join, failure)
        _exit(125)
    except BaseException:
        say_failure(join, Failed("an error of the zygote's program", errno.EIO))
        _exit(125)


def rehearse_unless_wanted():
    """A guest that nobody wants yet rehearses, so that its program is quicker. Whoever waits for it would wait longer."""
    if SYSTEM_CALL(PPOLL, addressof(JOB), 1, addressof(A_WHILE), 0, 0) == 0:
        rehearse_life()


PPOLL, addressof = NUMBERS["ppoll"], ctypes.addressof
# What there is to read on the side socket (POLLIN), and ten milliseconds.
JOB = ctypes.create_string_buffer(struct.pack("@ihh", SIDE, 1, 0), 8)
A_WHILE = (ctypes.c_long * 2)(0, 10_000_000)


def check_way(join):
    if join.made < join.calls.count:
        raise join.calls.failure(join.made)
    if join.pipes[:] != PIPES:
        raise Failed("streams", errno.EBADF)


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
            self.seeds.append(seed_of_numpy(modules["numpy.random"]))
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


NUMPY_STATE = 624 * 4


def seed_of_numpy(module):
    """Its own function computes with arrays, and so touches a hundred pages. The numbers that it begins with are overwritten
    by the kernel instead, where they are found to be; what else it sets is set once, here."""
    module.seed()
    generator = module.mtrand._rand._bit_generator
    try:
        place = generator.ctypes.state_address
        if ctypes.string_at(place, NUMPY_STATE) != generator.state["state"]["key"].tobytes():
            return module.seed
    except (AttributeError, KeyError, TypeError):
        return module.seed
    fill = functools.partial(SYSTEM_CALL, NUMBERS["getrandom"], place, NUMPY_STATE, 0, 0, 0)
    # A signal may cut it short.
    return lambda: fill() == NUMPY_STATE or module.seed()


WALLS = struct.Struct("<4sIIIQBI")
REPORT, PACK_REPORT = ctypes.create_string_buffer(WALLS.size), WALLS.pack_into


def write_report(join):
    """What the kernel says of this process."""
    pid, uid, gid, no_new_privileges, filtered = join.calls.results(5)
    PACK_REPORT(REPORT, 0, b"WARM", pid, uid, gid, held_capabilities(), no_new_privileges, filtered)


def way_of_the_report():
    """Sends it with the far ends of the streams, which the guest then closes."""
    # Length, level, kind and content of the one message beside it; where it is and how much; then all of that together.
    beside = ctypes.create_string_buffer(struct.pack("@Lii3i", 28, SOL_SOCKET, SCM_RIGHTS, *FAR_ENDS), 32)
    piece = ctypes.create_string_buffer(struct.pack("@PL", ctypes.addressof(REPORT), WALLS.size))
    places = ctypes.addressof(piece), 1, ctypes.addressof(beside), 32
    message = ctypes.create_string_buffer(struct.pack("@PIPLPLi", 0, 0, *places, 0))
    calls = Calls(
        ("report", [described("sendmsg", SIDE, message)]), ("streams", [described("close", end) for end in FAR_ENDS])
    )
    calls.kept = beside, piece, message
    return calls


def send_report():
    made = REPORT_WAY.make()
    if made < REPORT_WAY.count:
        raise REPORT_WAY.failure(made)


# ---------------------------------------------------------------------------------------------------------------------
# The job.

SCRIPT_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
# Flags of a job: descriptor 3 stays, as the program's side channel; the program says how it ends; there is nothing in its
# folder and in its home but what comes with it; that it begins is said no sooner than how it ends.
KEEP_SIDE, SAY_END, UNTOUCHED, QUIET = 1, 2, 4, 8
UNPACK_NUMBER, NUMBER_SIZE = struct.Struct("<I").unpack_from, 4
# Nearly all jobs are shorter.
JOB_SIZE = 4096
FILE_NAMES, FILE_ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()


def packed(*texts):
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


# The environment of most programs: the zygote's own, but for what keeps libraries from starting threads in it.
OWN_VARIABLES = b"OPENBLAS_NUM_THREADS", b"OMP_NUM_THREADS"
USUAL_VARIABLES = sorted((name, value) for name, value in os.environb.items() if name not in OWN_VARIABLES)
USUAL_ENVIRONMENT = struct.pack("<I", len(USUAL_VARIABLES)) + b"".join(packed(*pair) for pair in USUAL_VARIABLES)


class Job:
    """What the agent wants to be run."""

    def __init__(self, body):
        # Behind its length.
        words, at = take_strings(body, NUMBER_SIZE, 1)
        if body.startswith(USUAL_ENVIRONMENT, at):
            # Every guest has it from the zygote.
            self.env, at = None, at + len(USUAL_ENVIRONMENT)
        else:
            self.env, at = take_strings(body, at, 2)
        self.cwd, at = take_string(body, at)
        flags = body[at]
        self.keeps_side, self.says_end, self.quiet = flags & KEEP_SIDE, flags & SAY_END, flags & QUIET
        self.files, at = take_strings(body, at + 1, 2)
        if len(words) < 2 or at != len(body):
            raise ValueError("not a job")
        self.argv = [word.decode(FILE_NAMES, FILE_ERRORS) for word in words]
        # The script, and if it came with the job, its content and its folder, and whether it is alone there.
        self.script, self.source, self.folder, self.alone = words[1], None, None, False
        self.untouched = flags & UNTOUCHED


def take_strings(body, at, each):
    """A list of so many strings for each entry, and where it ends."""
    (count,) = UNPACK_NUMBER(body, at)
    at, found = at + 4, []
    while len(found) < count * each:
        string, at = take_string(body, at)
        found.append(string)
    return found, at


def take_string(body, at):
    (size,) = UNPACK_NUMBER(body, at)
    start = at + 4
    if start + size > len(body):
        raise ValueError("not a job")
    return body[start : start + size], start + size


def read_job():
    """Waits for the one job. The agent's end ends a guest that has none.

    Whatever there is belongs to it: nothing follows before the agent has heard that the program begins."""
    data = read(SIDE, JOB_SIZE)
    if len(data) < NUMBER_SIZE:
        data += read_exactly(NUMBER_SIZE - len(data), data)
    left = UNPACK_NUMBER(data)[0] + NUMBER_SIZE - len(data)
    return Job(data if left <= 0 else data + read_exactly(left, data))


def read_exactly(left, last):
    parts = []
    while left:
        if not last:
            os._exit(0)
        last = os.read(SIDE, min(left, 1 << 20))
        parts.append(last)
        left -= len(last)
    return b"".join(parts)


def settle(job):
    """Everything before the program that may fail: environment, working directory, files."""
    if job.env is not None:
        take_step("environment", set_environment, job.env)
    folder = take_step("working directory", enter_directory, job.cwd)
    files = job.files
    for at in range(0, len(files), 2):
        take_step("files", place, files[at], files[at + 1])
    job.script = absolute(job.script, folder)
    if len(files) == 2 and absolute(files[0], folder) == job.script:
        # What was just written needs not be read, and as the kernel names a folder there are no links in its path.
        job.source, job.folder = files[1], own_folder(job.script, folder)
        job.alone = job.untouched and job.folder is not None


def own_folder(script, folder):
    """The folder of a script, if it is this one."""
    return folder.decode(FILE_NAMES, FILE_ERRORS) if script.rpartition(b"/")[0] == folder else None


def absolute(path, folder):
    """As the interpreter does it: in front of the path, and nothing else about it is changed."""
    return path if path.startswith(b"/") else folder + b"/" + path


POSIX_ENVIRONMENT, ENVIRONMENT = sys.modules["posix"].environ, os.environ._data
# Where libc looks for the environment.
LIBC_ENVIRONMENT, KEPT_ENVIRONMENT = POINTER.in_dll(LIBC, "environ"), []
# How far into an object of bytes the bytes are; a zero is behind them.
BYTES_BEGIN, PACK_ADDRESS = bytes.__basicsize__ - 1, struct.Struct("@P").pack


def set_environment(strings):
    """Exactly these variables, for Python and for libc. The mapping stays the same object, since modules keep it.

    Libc gets them as a new process does, in one piece: one by one they would cost it several blocks of memory each."""
    POSIX_ENVIRONMENT.clear()
    ENVIRONMENT.clear()
    for at in range(0, len(strings), 2):
        name, value = strings[at], strings[at + 1]
        # `in` would try it with a number first, which raises.
        if not name or name.find(b"=") >= 0:
            raise ValueError("not a name of a variable")
        if name not in ENVIRONMENT:
            POSIX_ENVIRONMENT[name] = ENVIRONMENT[name] = value
    texts = [name + b"=" + value for name, value in ENVIRONMENT.items()]
    block, addresses = b"\0".join(texts), []
    if block.count(b"\0") >= max(len(texts), 1):
        raise ValueError("a zero within a variable")
    at = id(block) + BYTES_BEGIN
    for text in texts:
        addresses.append(at)
        at += len(text) + 1
    pointers = b"".join(map(PACK_ADDRESS, addresses)) + PACK_ADDRESS(0)
    LIBC_ENVIRONMENT.value = id(pointers) + BYTES_BEGIN
    # They live as long as the process.
    KEPT_ENVIRONMENT[:] = block, pointers
    if b"TZ" in ENVIRONMENT:
        time.tzset()


def enter_directory(path):
    """Gives its name."""
    chdir(path)
    try:
        folder = getcwdb()
    except FileNotFoundError:
        folder = b""
    if not folder.startswith(b"/"):
        raise OSError(errno.EXDEV, "outside the root")
    return folder


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
        written = write(fd, content)
        while written < len(content):
            written += write(fd, memoryview(content)[written:])
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
