"""The program, from the start of an interpreter to its end."""

ZYGOTE_HOME, ZYGOTE_USER_SITE = os.environb.get(b"HOME"), site.getusersitepackages()
DISPLAY = sys.__excepthook__
OWN_MAIN = sys.modules["__main__"]
MODULES, MODULE, LOADER = sys.modules, types.ModuleType, type(FRESH_MAIN["__loader__"])
# Each program has its own, in the same places.
FRESH_MAIN.update({"__doc__": None, "__loader__": None, "__file__": None})
is_regular, now, now_ns = stat.S_ISREG, time.time, time.time_ns
UNHANDLED_INTERRUPT = -int(signal.SIGINT)
run_exit_functions, count_exit_functions, collect = atexit._run_exitfuncs, atexit._ncallbacks, gc.collect
threads_alive, reference_to = _thread._count, weakref.ref


def start_program(zygote, job):
    """Puts the interpreter into the state in which `python3 script args…` would run the script: its code and its
    `__main__`. Nothing when this is a start that only the real interpreter can make."""
    filename, source, own_folder = job.script.decode(FILE_NAMES, FILE_ERRORS), job.source, job.folder
    if source is None:
        source = content_of(filename)
    if source is None or not is_source_text(filename, source):
        return None
    main, code = zygote.known.get((filename, source), NOT_KNOWN)
    if own_folder is None:
        # A known program does not care how its folder is called.
        own_folder = (filename if main else real_path(filename)).rpartition("/")[0] or "/"
    given = ENVIRONMENT.get(b"PYTHONPATH")
    first = [os.path.abspath(entry) for entry in os.fsdecode(given).split(":")] if given else []
    if job.alone:
        hides = could_hide_a_module(filename.rpartition("/")[2]) or first and hides_a_module(first)
    else:
        hides = hides_a_module([own_folder, *first, *folder_of_the_user()])
    if hides:
        return None
    set_search_path(own_folder, first, job.alone)
    if main is None:
        try:
            code = compile(source, filename, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError):
            # The interpreter reads a file in another way than `compile`, and some of its messages differ.
            return None
        main = new_main(filename)
    sys.argv = job.argv[1:]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = job.argv
    restart_clock_of_logging()
    MODULES["__main__"] = main
    return code, main.__dict__


NOT_KNOWN = None, None


PATH_BUFFER = ctypes.create_string_buffer(4097)


def real_path(path):
    """By libc, as the interpreter asks it."""
    found = real_path_of(path.encode(FILE_NAMES, FILE_ERRORS), PATH_BUFFER)
    return PATH_BUFFER.value.decode(FILE_NAMES, FILE_ERRORS) if found else path


def content_of(filename):
    """The bytes of a script that is a plain file."""
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
    return source


def is_source_text(filename, source):
    """And neither compiled nor an archive, which the interpreter runs too."""
    compiled = filename.endswith(".pyc") or source[2:4] == b"\r\n" and source[:4] == MAGIC_NUMBER
    archive = source.rfind(b"PK\x05\x06", -65557) >= 0
    return not compiled and not archive and is_decodable(source)


def is_decodable(source):
    """`compile` overlooks bytes in comments that the interpreter refuses in a file. A declared encoding it checks."""
    if source.isascii() or b"coding" in b"".join(source.split(b"\n", 2)[:2]):
        return True
    try:
        source.decode()
        return True
    except UnicodeDecodeError:
        return False


def set_search_path(own_folder, first, alone):
    """`sys.path`: the script's folder, then `PYTHONPATH`, then the libraries, which are there already."""
    if first:
        sys.path[:0] = first
        site.removeduppaths()
    changed = add_user_site(alone) or bool(first)
    sys.path.insert(0, own_folder)
    if changed:
        # Whoever is found first in the new path is run, as when the interpreter starts.
        for name in ("sitecustomize", "usercustomize"):
            sys.modules.pop(name, None)
        site.execsitecustomize()
        if site.ENABLE_USER_SITE:
            site.execusercustomize()


def add_user_site(alone):
    """Packages that the user installed for themselves stand before those of the machine."""
    folder = ZYGOTE_USER_SITE
    if ENVIRONMENT.get(b"HOME") != ZYGOTE_HOME:
        site.USER_SITE = site.USER_BASE = None
        folder = site.getusersitepackages()
    elif alone:
        return False
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


def folder_of_the_user():
    """Where packages lie that the user installed for themselves, if there are any: they may be other ones of those that the
    zygote has imported."""
    folder = ZYGOTE_USER_SITE
    if ENVIRONMENT.get(b"HOME") != ZYGOTE_HOME:
        site.USER_SITE = site.USER_BASE = None
        folder = site.getusersitepackages()
    return [folder] if access(folder, F_OK) else []


def hides_a_module(folders):
    """A `random.py` beside the script is what `import random` means there. The zygote has imported another one."""
    for folder in folders:
        try:
            entries = listdir(folder)
        except OSError:
            continue
        for entry in entries:
            if could_hide_a_module(entry):
                return True
    return False


def could_hide_a_module(entry):
    name, _, suffix = entry.partition(".")
    return name in HIDEABLE and (not suffix or suffix.endswith(("py", "pyc", "so")))


def restart_clock_of_logging():
    """The records of a program count their time from its start."""
    if "_startTime" in LOGGING:
        LOGGING["_startTime"] = now_ns() if isinstance(LOGGING["_startTime"], int) else now()


def new_main(filename):
    """A `__main__` with just what the interpreter itself puts there."""
    main = MODULE("__main__")
    names = main.__dict__
    names.update(FRESH_MAIN)
    if "__annotations__" in FRESH_MAIN:
        names["__annotations__"] = {}
    names["__loader__"] = LOADER("__main__", filename)
    names["__file__"] = filename
    return main


class Stage:
    """Calls a function as if no Python code had called it. In a script there is nothing below its own first frame: that
    shows in `traceback.print_stack` and `warnings.warn`, and in how deep a recursion may go.

    For the call, the interpreter's record of its running frame is emptied and its count of frames begins anew. Where
    it keeps the two differs between versions, so they are looked for once and tried out; where they are not found, our
    frames can be seen, nothing worse."""

    def __init__(self):
        # What is read and written as `frames[at]` and `depth[0]`; what the count is when there is nothing below.
        self.frames, self.at, self.depth, self.nothing = None, 0, None, 0
        PYTHON.PyThreadState_Get.restype = POINTER
        self.call = PYTHON.PyObject_Call
        self.call.argtypes = (ctypes.py_object, ctypes.py_object, POINTER)
        self.call.restype = ctypes.py_object

    def find(self):
        thread = PYTHON.PyThreadState_Get()
        self.frames, self.at = self.find_frame(thread)
        self.depth, self.nothing = self.find_depth(thread)
        if self.frames is None:
            return
        names = {"sys": sys, "depth": self.depth or [0]}
        look = compile("alone, depth = sys._getframe().f_back is None, depth[0]", "<stage>", "exec")
        self.perform(exec, look, names)
        if not names["alone"]:
            self.frames = None
        if self.depth is not None:
            # The way to the program counts too; without it, this would have been the first frame.
            first = self.nothing + (1 if self.nothing == 0 else -1)
            self.nothing += first - names["depth"]

    def find_frame(self, thread):
        """The record as something with an index. Made once: whatever is made for a call touches more."""
        frame, word = sys._getframe(), ctypes.c_uint64
        if sys.version_info < (3, 11):
            # PyThreadState { prev, next, interp, frame }
            place, inner = (word * 4).from_address(thread), id(frame)
            return (place, 3) if place[3] == inner else (None, 0)
        # PyFrameObject { head (2 words), f_back, f_frame }
        inner = word.from_address(id(frame) + 24).value
        if sys.version_info < (3, 13):
            # PyThreadState.cframe points to { current_frame }, behind a flag in 3.11.
            place, at = ctypes.POINTER(word).from_address(thread + 56), 1 if sys.version_info < (3, 12) else 0
            return (place, at) if place[at] == inner else (None, 0)
        place = (word * 32).from_address(thread)
        found = [at for at in range(32) if place[at] == inner]
        return (place, found[0]) if len(found) == 1 else (None, 0)

    def find_depth(self, thread):
        """The count, likewise, and what it is when there is nothing below."""
        number, limit = ctypes.c_int, sys.getrecursionlimit()
        if sys.version_info < (3, 11):
            # Upwards from zero, kept behind the frame.
            found = [thread + 32] if 0 < number.from_address(thread + 32).value < 64 else []
            limit = 0
        else:
            # Downwards from the limit, kept before it.
            found = [
                at
                for at in range(thread + 24, thread + 128, 4)
                if number.from_address(at + 4).value == limit and 0 < limit - number.from_address(at).value < 64
            ]
        return ((number * 1).from_address(found[0]), limit) if len(found) == 1 else (None, 0)

    def perform(self, function, *arguments):
        frames, at, depth, change = self.frames, self.at, self.depth, 0
        if frames is None:
            return function(*arguments)
        if depth is not None:
            change = self.nothing - depth[0]
            depth[0] += change
        kept, frames[at] = frames[at], 0
        try:
            return self.call(function, arguments, None)
        finally:
            frames[at] = kept
            if depth is not None:
                # The program may have changed the limit, and with it the count.
                depth[0] -= change


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
    status = wind_up(status, run_exit_functions)
    if status == UNHANDLED_INTERRUPT:
        # So that whoever waits sees that it was interrupted, and not that it chose to end.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        status = 130
    LAST_WORD.say(status)
    # `_exit` of libc, which would be looked up first.
    SYSTEM_CALL(EXIT_GROUP, status, 0, 0, 0, 0)


def wind_up(status, exit_functions):
    """What the interpreter does between the end of a script and its own, in the same order, without taking itself
    apart: freeing what a guest shares with its siblings would copy all of it."""
    wait_for_threads()
    if count_exit_functions():
        try:
            STAGE.perform(exit_functions)
        except BaseException:
            # It has been printed.
            pass
    if len(LOG_HANDLERS) != OWN_LOG_HANDLERS:
        end_logging()
    return status if let_go() else 120


class Collector:
    """Finalizes what refers to itself in circles. Where nothing was collected since the program began, all that it made is
    in the youngest generation. To collect the oldest one too would also give back, page by page, the memory that the
    interpreter keeps at hand."""

    YOUNGEST, OLDEST = 0, 2
    # Since version 3.14 generations are collected bit by bit.
    IN_GENERATIONS = sys.version_info < (3, 14)

    def __init__(self):
        self.before = self.survivors = None

    def begin(self):
        self.before = self.past()

    def past(self):
        """What collections leave behind; to thaw what was frozen makes it old without one."""
        return [generation["collections"] for generation in statistics()], len(objects_of(self.OLDEST))

    def collect(self):
        young = self.IN_GENERATIONS and self.before == self.past()
        if young and (gc.callbacks or gc.get_debug()):
            # Somebody watches.
            young = False
        self.survivors = self.YOUNGEST + 1 if young else self.OLDEST
        STAGE.perform(collect, self.YOUNGEST if young else self.OLDEST)

    def collect_again(self):
        """What was in use then may be free now."""
        STAGE.perform(collect, self.survivors)


statistics, objects_of, COLLECTOR = gc.get_stats, gc.get_objects, Collector()


def let_go():
    """Whether everything that was written is out, with all that objects of the program still wrote at their end."""
    flushed = flush_streams()
    COLLECTOR.collect()
    forget_modules()
    flushed = flush_streams() and flushed
    flush_libc(None)
    return flushed


class LastWord:
    """Tells the agent with which status the program ends, before the kernel has taken the process apart: whoever waits
    for the result waits for that no longer.

    It is the program's own word, as its status always is. One that closes the descriptor, or writes to it, is waited for
    instead: whoever listens shuts the socket down then."""

    # Out of the numbers that programs use by habit.
    NUMBER = 1023

    def __init__(self):
        self.pid = self.inode = None
        self.first = b""

    def keep(self, first):
        """`first`: what was not said yet."""
        try:
            dup2(SIDE, self.NUMBER, inheritable=False)
        except OSError:
            # The limit of open files is below it.
            return
        self.pid, self.inode, self.first = getpid(), fstat(self.NUMBER)[ST_INO], first

    def forget(self):
        if self.pid is not None:
            close(self.NUMBER)
            self.pid = None

    def is_ours(self):
        """A child of the program's comes by here too, and the number may be another file's by now."""
        return self.pid == getpid() and fstat(self.NUMBER)[ST_INO] == self.inode

    def say(self, status):
        try:
            if self.is_ours():
                word = self.first + self.describe(status)
                # Without a signal where nobody listens any more: the program may have made it deadly.
                SYSTEM_CALL(SENDTO, self.NUMBER, id(word) + BYTES_BEGIN, len(word), NO_SIGNAL, 0)
                # Who hears it ends this process with everything else. Until then it stays out of the way: to be taken
                # apart takes a while, and the same processor may be needed to pass the word on. No thread runs meanwhile.
                SYSTEM_CALL(READ, self.NUMBER, NOBODY_READS, 1, 0, 0)
        except OSError:
            # Nobody listens, or it was closed; the end of this process says the same.
            pass

    def describe(self, status):
        """The status, and the time and the memory that it took."""
        used = usage(ONESELF)
        return PACK_END(status & 0xFF, int(used[0] * 1e6), int(used[1] * 1e6), used[2] * 1024)


READ, ANSWER = NUMBERS["read"], ctypes.create_string_buffer(1)
SENDTO, NO_SIGNAL = NUMBERS["sendto"], 0x4000
NOBODY_READS = ctypes.addressof(ANSWER)
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
    COLLECTOR.collect_again()
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


def execute_interpreter(job):
    """Leaves the program to the real interpreter, in this process and behind its walls."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(job.argv[0], job.argv, dict(os.environ._data))
    except OSError as error:
        write_error("%s: %s\n" % (job.argv[0], error.strerror))
    os._exit(127)


BEGUN = b"\0\0\0\0"


def await_and_begin():
    """Gives the code and the `__main__` of the program, when all of its job that may fail is done."""
    try:
        job = take_step("job", read_job)
        settle(job)
        # What follows does not fail: whoever waits for this can go on meanwhile.
        if not job.quiet:
            write(SIDE, BEGUN)
    except Failed as failure:
        refuse_job(failure)
    except OSError:
        # The agent is gone: nobody wants the program any more.
        os._exit(0)
    program = start_program(KEPT[0], job)
    if not job.keeps_side:
        if job.says_end:
            LAST_WORD.keep(BEGUN if job.quiet else b"")
        close(SIDE)
    if program is None:
        execute_interpreter(job)
    return program
