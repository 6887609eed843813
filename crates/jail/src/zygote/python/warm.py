"""How the zygote gets warm: what it imports, what it rehearses, how its memory lies when the first guest is forked."""

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


def preload(names, refused):
    """Imports what programs are going to need: (imported, not importable)."""
    imported, missing = [], list(refused)
    for name in names:
        if name in refused:
            continue
        try:
            __import__(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise Unfit(name) from error
            missing.append(name)
        except BaseException as error:
            raise Unfit(name) from error
        else:
            imported.append(name)
        if not has_one_thread():
            raise Unfit(name)
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


class Unfit(Exception):
    """A module started a thread when it was imported, and a process with threads must not be forked. Or it failed on the
    way, and has left modules behind that a guest would take for whole."""


def start_again_without(name, hello):
    """Neither can be taken back: the zygote begins anew and leaves that module out."""
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
    end_logging_only_if_used()
    hooks = []
    try:
        with noted_hooks(hooks):
            imported, missing = preload(hello.get("preload", ()), hello.get("refused", ()))
    except Unfit as refused:
        start_again_without(refused.args[0], hello)
    if not has_one_thread():
        raise Failed("threads", errno.EBUSY)
    take_step("streams", open_streams)
    STAGE.find()
    take_step("code of the interpreter", gather_program)
    rehearse(LONG_REHEARSAL)
    # From here on nothing is made that guests do not use.
    gc.collect()
    fill_holes()
    global RENEWAL, SYSTEM, THREADING, LOGGING, ZYGOTE_MODULES, LAST_MODULE, HIDEABLE, REPORT_WAY, KEPT, perform
    lay_out_functions()
    perform = take_step("machine code", machine_code, os.uname().machine)
    zygote = take_step("hello", Zygote, hello)
    # Guests never let go of them: that would be one more thing that copies pages.
    KEPT = zygote, command
    RENEWAL, REPORT_WAY = Renewal(hooks), way_of_the_report()
    SYSTEM, THREADING = sys.__dict__, sys.modules["threading"].__dict__
    LOGGING = sys.modules["logging"].__dict__ if "logging" in sys.modules else {}
    ZYGOTE_MODULES = frozenset(sys.modules) - {"__main__"}
    LAST_MODULE = next(reversed(sys.modules))
    HIDEABLE = ZYGOTE_MODULES - FRESH_MODULES - frozenset(sys.builtin_module_names)
    # The folder of this file; what is left is as the interpreter computed it.
    del sys.path[0]
    for main, _ in zygote.known.values():
        take_step("known program", rehearse_known, main.__dict__)
    rehearse_in_the_zygote(zygote)
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


def rehearse_in_the_zygote(zygote):
    """As much of a guest's life as can be lived here, so that nothing is written in each guest that could have been
    written once: code that the interpreter adapts, caches that it fills."""
    request = {"uid": 1, "gid": 1, "rlimits": [], "fds": [*NEEDED, *["landlock"] * zygote.landlock]}
    join = Join(request, [0] * len(request["fds"]), zygote)
    join.made, join.pipes[:] = join.calls.count, PIPES
    for _ in range(REHEARSALS):
        check_way(join)
        RENEWAL.renew(getpid())
        set_environment(take_strings(USUAL_ENVIRONMENT, 0, 2)[0])
        content_of(KNOWN_FILE)
        real_path("/")
        rehearse_life()
        write_report(join)


LOG_HANDLERS, OWN_LOG_HANDLERS = [], 0


def rehearse_known(names):
    """A known program may have a rehearsal of its own."""
    if "rehearse" in names:
        for _ in range(REHEARSALS):
            names["rehearse"]()


def end_logging_only_if_used():
    """`logging` looks through its handlers at the end. A program that has made none is spared that. There are no other exit
    functions yet, so whatever is registered from here on is for somebody's end."""
    logging = sys.modules.get("logging")
    if logging is None:
        return
    global LOG_HANDLERS, OWN_LOG_HANDLERS
    LOG_HANDLERS, OWN_LOG_HANDLERS = logging._handlerList, len(logging._handlerList)
    atexit._clear()


def end_logging():
    """After all other functions, as it was registered before them."""
    atexit.register(sys.modules["logging"].shutdown)
    try:
        STAGE.perform(run_exit_functions)
    except BaseException:
        # It has been printed.
        pass


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
        # The lowest is the first to be given out again: it is on the page that the pool's own record is on.
        for other in sorted(blocks[: at + 1], reverse=True):
            if other // POOL == block // POOL:
                free(other)
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
        # Small ones lie in lists of their exact size.
        size -= max(size // 8 & ~15, 16) if size > 1088 else 16


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
# A kernel that cannot is no failure.
advise = libc_function("madvise", POINTER, WORD, ctypes.c_int)


def gather():
    """Puts the memory of the interpreter into as few large pieces as the kernel can. A fork then copies, and the end of a
    guest frees, many entries of the page table at once. A kernel that cannot only takes longer."""
    for piece in {id(thing) // HUGE for thing in gc.get_objects()}:
        advise(piece * HUGE, HUGE, MADV_COLLAPSE)


PROGRAM_HEADERS, HOW_MANY = 3, 5
PROGRAM_HEADER = struct.Struct("@IIQQQQQQ")
LOADED, PLACE_OF_THE_HEADERS, WRITABLE = 1, 6, 2


def gather_program():
    """The same for the interpreter's own code, which is a file that each guest would find again page by page. What lies in
    whole large pieces is replaced by a copy in memory of the zygote's own, at the same place."""
    start, end = unchanging_part_of_the_program()
    size = end - start
    if size <= 0:
        return
    room = new_memory(size + HUGE)
    copy = whole_pieces_from(room)
    ctypes.memmove(copy, start, size)
    if advise(copy, size, MADV_COLLAPSE) == 0:
        # Some of it is data, between code and code: one piece has one protection. Nothing is writable and executable at once.
        protect(copy, size, READ_EXECUTE)
        # In one step of the kernel's, so this very code goes on in the copy.
        move(copy, size, size, MAY_MOVE | TO_THAT_PLACE, start)
    free(room, size + HUGE)


MAY_MOVE, TO_THAT_PLACE = 1, 2
move = memory_function("mremap", POINTER, WORD, WORD, ctypes.c_int, POINTER, result=POINTER)
free = memory_function("munmap", POINTER, WORD)


def unchanging_part_of_the_program():
    """From where to where, in whole large pieces, the program lies that nobody writes to."""
    value = LIBC["getauxval"]
    value.argtypes, value.restype = (ctypes.c_ulong,), ctypes.c_ulong
    place = value(PROGRAM_HEADERS)
    headers = ctypes.string_at(place, value(HOW_MANY) * PROGRAM_HEADER.size)
    # Kind, flags, place in the file, address, (unused), size in the file, size in memory, alignment.
    headers = [(kind, flags, at, size) for kind, flags, _, at, _, _, size, _ in PROGRAM_HEADER.iter_unpack(headers)]
    base = next((place - at for kind, _, at, _ in headers if kind == PLACE_OF_THE_HEADERS), None)
    start = end = None
    for kind, flags, at, size in headers:
        if base is None or kind != LOADED or flags & WRITABLE:
            continue
        first, last = (base + at) // PAGE * PAGE, -(-(base + at + size) // PAGE) * PAGE
        if start is None:
            start = first
        elif first != end:
            # There is a hole.
            break
        end = last
    return (0, 0) if start is None else (whole_pieces_from(start), end // HUGE * HUGE)


def whole_pieces_from(address):
    return -(-address // HUGE) * HUGE


def usual(name):
    try:
        __import__(name)
    except ImportError:
        # Distributions leave out parts of the standard library.
        pass


def rehearse(program):
    """Runs a program once: what is touched now is not touched for the first time when somebody waits for it."""
    code = compile(program, "<rehearsal>", "exec", dont_inherit=True)
    MODULES["__main__"] = main = new_main("<rehearsal>")
    try:
        STAGE.perform(exec, code, main.__dict__)
    finally:
        MODULES["__main__"] = OWN_MAIN


def rehearse_life():
    """The same for the whole life of a program. Nothing of this is left when the job comes."""
    # The room that it is read into.
    bytes(JOB_SIZE)
    job = Job(bytes(REHEARSAL_JOB))
    settle(job)
    job.source, job.folder = SHORT_REHEARSAL, own_folder(b"//main.py", b"/")
    # Most are alone; the others look around.
    job.alone = not hides_a_module(("/",)) and not add_user_site(False)
    try:
        code, names = start_program(KEPT[0], job)
        LAST_WORD.keep(BEGUN)
        run_program(code, names)
        del code, names
        # Exit functions are not run: the zygote's own would be forgotten. To name them touches them.
        run_exit_functions
        wind_up(0, threads_alive)
        if LAST_WORD.is_ours():
            LAST_WORD.describe(0)
    finally:
        COLLECTOR.begin()
        LAST_WORD.forget()
        # It is nobody's now, so nothing is said.
        LAST_WORD.say(0)
        MODULES["__main__"] = OWN_MAIN
    del sys.path[0]


# A small file that is there wherever the interpreter is.
KNOWN_FILE = getattr(struct, "__file__", os.devnull)


# As long as most are. It comes anew each time, as those of the agent do.
REHEARSAL_JOB = bytearray(
    struct.pack("<II", 0, 2)
    + packed(os.fsencode(sys.executable), b"main.py")
    + USUAL_ENVIRONMENT
    + packed(b"/")
    + struct.pack("<BI", 0, 1)
    + packed(os.devnull.encode(), b"nothing")
)

# Each page that a guest touches is copied for it, so a guest rehearses only what every program does.
SHORT_REHEARSAL = b"print('', end='')"
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
    become_guest(join)
    rehearse_unless_wanted()


main()
end_program(run_program(*await_and_begin()))
