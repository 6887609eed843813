"""The Python context kernel: runs cells, keeps their state, reports what they produced.

One process is one context. Control frames arrive and leave on a descriptor of their own; what user code prints goes to the
real descriptors 1 and 2, so subprocesses and threads need no help from here. README.md beside this file is the protocol.

The kernel starts no thread of its own: user code may fork, and Python warns about forking with threads. Between cells it
blocks on the control descriptor, or turns the event loop for the tasks that earlier cells left.

User code shares this process and can do anything to it. The only promise is that nothing it prints is taken for a frame.
"""

import __future__
import _frozen_importlib_external
import ast
import binascii
import builtins
import fcntl
import json
import linecache
import os
import re
import signal
import struct
import sys
import traceback
import types

# Of the module in C: what is around it turns numbers into enumerations and back, before each cell.
from _signal import signal as set_signal
from _thread import RLock, get_ident

PROTOCOL = 1
MAX_FRAME = 1 << 20
MAX_MESSAGE = 128 << 20
MAX_JSON_VALUE = 1 << 20
MAX_LINE = 24 << 10
READ = 16 << 10
MORE = 1 << 31
CO_COROUTINE = 0x80
SHORT = 200
# Ends of statements, assignments, blocks and words that begin a statement; escapes, since there are warnings about some.
is_no_expression = re.compile(r"\s|.*[\n;=:\\]|(?:import|from|del|raise|assert|pass)\b").match
find_indentation = re.compile(r"(?:[^\S\n]*\n)*([^\S\n]+)\S").match
SIGINT = int(signal.SIGINT)
OWN_FOLDER = os.path.dirname(os.path.abspath(__file__))
IPYTHON_FILE = "<sandstorm ipython>"
FUTURES = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names})

OWN_FILES = frozenset((__file__, IPYTHON_FILE))
# Of Pillow; images of others are converted before they are shown.
PNG_MODES = frozenset(("1", "L", "LA", "P", "RGB", "RGBA", "I", "I;16"))

RICH_METHODS = {
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
    "_repr_pdf_": "application/pdf",
    "_repr_latex_": "text/latex",
    "_repr_json_": "application/json",
    "_repr_javascript_": "application/javascript",
}


class ProtocolError(Exception):
    """The controller sent bytes that are not a frame."""


strict_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
# The two that every cell sends.
START = '{"type": "start", "id": %s, "execution_count": %d}'
DONE = '{"type": "done", "id": %s, "status": "%s", "execution_count": %d}'


def encode(message):
    """UTF-8 JSON that a strict parser accepts: no NaN, no lone surrogates."""
    try:
        text = strict_json(message)
    except ValueError:
        text = strict_json(finite(message))
    return text.encode("utf-8", "replace")


def finite(value):
    """`value` with NaN and the infinities replaced by null, as JavaScript does."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


class Channel:
    """Frames over a pair of descriptors: a 4-byte little-endian header, then that much of a message."""

    def __init__(self, read_fd, write_fd):
        self.read_fd = move_away(read_fd)
        self.write_fd = self.read_fd if read_fd == write_fd else move_away(write_fd)
        self.lock = RLock()
        self.received = bytearray()
        self.held = bytearray()

    def receive(self):
        """The next message, or None when the controller has gone."""
        body = bytearray()
        more = True
        while more:
            header = self._read(4)
            if header is None:
                return None
            (word,) = struct.unpack("<I", header)
            size, more = word & ~MORE, bool(word & MORE)
            if size > MAX_FRAME or len(body) + size > MAX_MESSAGE:
                raise ProtocolError("frame or message over its maximum")
            piece = self._read(size)
            if piece is None:
                return None
            body += piece
        try:
            message = json.loads(body.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise ProtocolError("message is not JSON") from error
        if not isinstance(message, dict):
            raise ProtocolError("message is not an object")
        return message

    def send(self, message, hold=False):
        """Sends a message. One that is held goes out with the next: each write wakes the controller, which takes longer
        than a short cell."""
        body = encode(message)
        if len(body) > MAX_MESSAGE:
            body = encode(without_payload(message, len(body)))
        self.send_encoded(body, hold)

    def send_encoded(self, body, hold=False):
        with self.lock:
            for start in range(0, len(body), MAX_FRAME):
                piece = body[start : start + MAX_FRAME]
                more = MORE if start + MAX_FRAME < len(body) else 0
                self.held += struct.pack("<I", len(piece) | more) + piece
                if more or not hold:
                    frames, self.held = self.held, bytearray()
                    self._write(frames)

    def close(self):
        for fd in {self.read_fd, self.write_fd}:
            os.close(fd)

    def _read(self, size):
        """So many bytes; what came with them stays here. None at the end."""
        while len(self.received) < size:
            chunk = os.read(self.read_fd, max(READ, size - len(self.received)))
            if not chunk:
                return None
            self.received += chunk
        data = bytes(self.received[:size])
        del self.received[:size]
        return data

    def _write(self, data):
        view = memoryview(data)
        while view:
            view = view[os.write(self.write_fd, view) :]


def move_away(fd):
    """Moves a descriptor out of the numbers that programs use by habit, closed on exec."""
    for lowest in (200, 60, 10):
        try:
            moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest)
        except OSError:
            continue
        os.close(fd)
        return moved
    os.set_inheritable(fd, False)
    return fd


def without_payload(message, size):
    """A message over the maximum says so instead of being cut in the middle."""
    note = "<%d bytes: over the maximum of %d>" % (size, MAX_MESSAGE)
    small = {key: value for key, value in message.items() if key in ("type", "id", "name", "exit_code")}
    if message["type"] == "error":
        small.update(value=note, traceback=[note])
    else:
        small.update(data={"text/plain": note}, metadata={"truncated": True})
    return small


class Interrupts:
    """SIGINT as KeyboardInterrupt, but only in user code and never inside a half-written frame."""

    def __init__(self):
        self.in_user_code = False
        self.masked = 0
        self.pending = False
        self.main_thread = get_ident()

    def install(self):
        # Not by way of `signal`, which first looks for the handler's name among its constants.
        set_signal(SIGINT, self._arrived)

    def _arrived(self, _signum, _frame):
        if not self.in_user_code:
            return
        if self.masked:
            self.pending = True
        else:
            raise KeyboardInterrupt

    def masking(self, action, *args):
        if get_ident() != self.main_thread:
            return action(*args)
        self.masked += 1
        try:
            return action(*args)
        finally:
            self.masked -= 1
            if self.pending and not self.masked and self.in_user_code:
                self.pending = False
                raise KeyboardInterrupt

    def user_code(self, action, *args):
        """Runs `action` so that an interrupt raises in it; the flag is down again whichever way it ends."""
        self.pending = False
        try:
            self.in_user_code = True
            return action(*args)
        finally:
            self.in_user_code = False


def as_text_or_base64(mime, value):
    if isinstance(value, (bytes, bytearray, memoryview)):
        return binascii.b2a_base64(bytes(value), newline=False).decode("ascii")
    if mime == "application/json" or mime.endswith("+json"):
        json.dumps(value)
        return value
    return value if isinstance(value, str) else str(value)


def rich_data(value):
    """(data, metadata) of a value: every MIME type that it offers, plain text always."""
    data, metadata = {}, {}
    kind = type(value)
    # Methods are looked up on the type, so that a class, or an object that answers every attribute, is not asked.
    if hasattr(kind, "_repr_mimebundle_"):
        offered = complain_and_go_on(lambda: value._repr_mimebundle_(include=None, exclude=None))
        if isinstance(offered, tuple):
            offered, metadata = offered
        for mime, item in dict(offered or {}).items():
            data[mime] = as_text_or_base64(mime, item)
    for method, mime in RICH_METHODS.items():
        if mime in data or not hasattr(kind, method):
            continue
        item = complain_and_go_on(getattr(value, method))
        if isinstance(item, tuple):
            item, metadata[mime] = item
        if item is not None:
            data[mime] = as_text_or_base64(mime, item)
    figure = sys.modules.get("matplotlib.figure")
    if figure and isinstance(value, figure.Figure) and "image/png" not in data:
        data["image/png"] = png_of(value)
    if kind in (dict, list) and "application/json" not in data and is_small_json(value):
        data["application/json"] = value
    plain = data.pop("text/plain", None)
    # The main representation of every value comes first.
    return {"text/plain": repr(value) if plain is None else plain, **data}, metadata


def complain_and_go_on(method):
    """A broken rich method costs its own representation, not the cell."""
    try:
        return method()
    except Exception:
        traceback.print_exc()
        return None


def is_small_json(value):
    def plain(item):
        if isinstance(item, dict):
            return all(type(key) is str and plain(inner) for key, inner in item.items())
        if isinstance(item, (list, tuple)):
            return all(map(plain, item))
        return item is None or type(item) in (str, int, float, bool)

    try:
        return plain(value) and len(json.dumps(value)) <= MAX_JSON_VALUE
    except (ValueError, RecursionError):
        return False


def png_of(figure):
    import io

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    return as_text_or_base64("image/png", buffer.getvalue())


class ImportHook:
    """Changes modules once the user imports them; the kernel imports none of them itself. `changes` maps the name of a
    module to the function that is given it."""

    def __init__(self, changes):
        self.changes = changes

    def find_spec(self, name, _path=None, _target=None):
        if name not in self.changes:
            return None
        import importlib.util

        # While the name is not there, this hook stays out of the way.
        change = self.changes.pop(name)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            self.changes[name] = change
            return spec
        run_module = spec.loader.exec_module

        def exec_module(module):
            run_module(module)
            change(module)

        spec.loader.exec_module = exec_module
        return spec


class LastResort:
    """Is asked where every other finder has failed: for packages that were installed since the interpreter started, and for
    what stands in for IPython."""

    def __init__(self, load):
        self.load = load

    def find_spec(self, name, path=None, target=None):
        if path is None and look_for_new_folders():
            spec = _frozen_importlib_external.PathFinder.find_spec(name, None, target)
            if spec is not None:
                return spec
        return self.load().find_spec(name) if name.partition(".")[0] == "IPython" else None


def look_for_new_folders():
    """Takes folders of packages up that did not exist before. Gives whether there is one."""
    found, site = False, sys.modules.get("site")
    if site is not None and site.ENABLE_USER_SITE:
        folder = site.getusersitepackages()
        if folder not in sys.path and os.path.isdir(folder):
            # Before those of the machine, as when the interpreter starts.
            of_machine = set(site.getsitepackages())
            at = next((at for at, entry in enumerate(sys.path) if entry in of_machine), len(sys.path))
            behind = sys.path[at:]
            del sys.path[at:]
            site.addsitedir(folder)
            sys.path.extend(entry for entry in behind if entry not in sys.path)
            found = True
    for entry in sys.path:
        # The import system remembers that a folder was not there.
        if sys.path_importer_cache.get(entry, found) is None and os.path.isdir(entry):
            del sys.path_importer_cache[entry]
            found = True
    return found


def load_ipython():
    """The module of `ipython.py`. Its text comes before ours in the program as it is delivered, else from its file."""
    text = globals().get("IPYTHON")
    if text is None:
        with open(os.path.join(OWN_FOLDER, "ipython.py"), encoding="utf-8") as file:
            text = file.read()
    module = types.ModuleType("sandstorm_ipython")
    exec(compile(text, IPYTHON_FILE, "exec", dont_inherit=True), module.__dict__)
    return module


READY = strict_json({"type": "ready", "protocol": PROTOCOL, "language": "python", "version": sys.version.split()[0]})


class Kernel:
    def __init__(self, channel, namespace):
        self.channel = channel
        self.namespace = namespace
        self.interrupts = Interrupts()
        self.cell = None
        self.cells = 0
        self.count = 0
        self.compile_flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        self.loop = None
        self.filename = None
        self.ipython_module = None

    def settle(self):
        """What user code finds of the kernel."""
        builtins.display = self.display
        builtins.get_ipython = lambda: self.ipython().SHELL
        changes = {
            "matplotlib.pyplot": self._meet_pyplot,
            "PIL.Image": self._meet_pillow,
            "IPython.core.display_functions": self._meet_ipython,
            "IPython.core.getipython": self._meet_ipython,
        }
        for name in [name for name in changes if name in sys.modules]:
            changes.pop(name)(sys.modules[name])
        sys.meta_path.insert(0, ImportHook(changes))
        sys.meta_path.append(LastResort(self.ipython))
        # A forked child must not print half a line that waits for its end a second time.
        os.register_at_fork(before=flush_output, after_in_child=self._forked)

    def ipython(self):
        """What IPython would offer to a cell, made at the first use."""
        if self.ipython_module is None:
            module = load_ipython()
            module.start(self)
            self.ipython_module = module
        return self.ipython_module

    def _meet_pyplot(self, module):
        # A plain function: pyplot sets attributes on it.
        def show(*_args, **_kwargs):
            self.show_figures()

        module.show = show

    def _meet_pillow(self, module):
        def show(image, *_args, **_kwargs):
            """Displays the image."""
            self.display(image if image.mode in PNG_MODES else image.convert("RGB"))

        module.Image.show = show

    def _meet_ipython(self, module):
        """IPython is installed; its displays and its shell are ours all the same."""
        for name in ("display", "update_display", "publish_display_data", "clear_output", "get_ipython"):
            if hasattr(module, name):
                setattr(module, name, getattr(self.ipython(), name))

    def _forked(self):
        """A child of the user's owns neither the conversation nor our handling of SIGINT."""
        channel, self.channel = self.channel, None
        if channel is not None:
            channel.close()
            set_signal(SIGINT, signal.default_int_handler)

    def send(self, message, hold=False):
        if self.channel is not None:
            self.interrupts.masking(self.channel.send, message, hold)

    def send_encoded(self, text, hold=False):
        if self.channel is not None:
            self.interrupts.masking(self.channel.send_encoded, text.encode("utf-8", "replace"), hold)

    def serve(self):
        self.interrupts.install()
        self.send_encoded(READY)
        while True:
            self._wait()
            message = self.channel.receive()
            if message is None or message.get("type") == "shutdown":
                return
            if message.get("type") != "execute" or not isinstance(message.get("code"), str):
                raise ProtocolError("unknown message")
            self.execute(message.get("id"), message["code"], bool(message.get("silent")), bool(message.get("late_start")))

    def execute(self, cell, code, silent, late_start):
        self.cell, self.cell_text = cell, strict_json(cell)
        self.cells += 1
        if not silent:
            self.count += 1
        # A handler that an earlier cell installed must not cost the context its interrupt.
        self.interrupts.install()
        status = "ok"
        try:
            self.interrupts.user_code(self._run_cell, code, silent, late_start)
        except BaseException as error:
            if self.channel is not None:
                status = self._report(error)
            else:
                end_forked_child(error)
        if self.channel is None:
            end_forked_child(None)
        flush_output()
        self.send_encoded(DONE % (self.cell_text, status, self.count))

    def _run_cell(self, code, silent, late_start):
        self.send_encoded(START % (self.cell_text, self.count), hold=late_start)
        try:
            self.filename = "<cell silent %d>" % self.cells if silent else "<cell %d>" % self.count
            value = self.evaluate(code, self.filename)
            if value is not None and not silent and not code.rstrip().endswith(";"):
                builtins._ = value
                data, metadata = rich_data(value)
                self._forget_figure(value)
                flush_output()
                # The end of the cell follows at once.
                self.send({"type": "result", "id": self.cell, "data": data, "metadata": metadata}, hold=True)
        finally:
            if not isinstance(sys.exc_info()[1], KeyboardInterrupt):
                self.show_figures()

    def evaluate(self, code, filename):
        """Runs the cell; the value is that of its last statement if that is an expression."""
        if code[:1].isspace():
            code = without_indentation(code)
        remember_source(code, filename)
        part = self._compile_expression(code, filename)
        if part is not None:
            value = eval(part, self.namespace)
            return self._await(value) if part.co_flags & CO_COROUTINE else value
        tree = self._parse(code, filename)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        parts = []
        if tree.body:
            parts.append(self._compile(tree, filename, "exec"))
        if last is not None:
            parts.append(self._compile(ast.Expression(last.value), filename, "eval"))
        if any(part.co_flags & CO_COROUTINE for part in parts):
            return self._await(self._run_in_loop(parts))
        for part in parts:
            value = eval(part, self.namespace)
        return value if last is not None else None

    def _parse(self, code, filename):
        """The tree of a cell, which may be in the notation of IPython where it is no Python."""
        flags = self.compile_flags | ast.PyCF_ONLY_AST
        try:
            return compile(code, filename, "exec", flags, dont_inherit=True)
        except SyntaxError as error:
            python = self.ipython().translate(code) if may_be_notation(code) else code
            if python == code:
                raise error
        remember_source(python, filename)
        return compile(python, filename, "exec", flags, dont_inherit=True)

    def _compile_expression(self, code, filename):
        """A cell that is one short expression, as many are, needs no tree. Nothing where it is not, or may not be: what else
        such a line could be is left out, so that hardly any is parsed twice, and none that could be warned of twice."""
        if len(code) > SHORT or is_no_expression(code):
            return None
        try:
            return compile(code, filename, "eval", self.compile_flags, dont_inherit=True)
        except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError):
            return None

    def _compile(self, tree, filename, mode):
        code = compile(tree, filename, mode, self.compile_flags, dont_inherit=True)
        self.compile_flags |= code.co_flags & FUTURES
        return code

    async def _run_in_loop(self, parts):
        """A cell with an await anywhere runs wholly inside the loop, so that `asyncio.create_task` works in all of it."""
        value = None
        for part in parts:
            value = eval(part, self.namespace)
            if part.co_flags & CO_COROUTINE:
                value = await value
        return value

    def _await(self, coroutine):
        """Top-level await. The loop lives as long as the context; cells without await run outside it, so that
        `asyncio.run` keeps working in them."""
        import asyncio

        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(coroutine)
        try:
            return self.loop.run_until_complete(task)
        except (KeyboardInterrupt, SystemExit):
            if not task.done():
                task.cancel()
                self.loop.run_until_complete(asyncio.wait([task], timeout=1))
            if task.done() and not task.cancelled():
                task.exception()
            raise

    def _wait(self):
        """Once a cell has used the event loop, turns it until a message is there, for the tasks that cells left."""
        if self.loop is None or self.loop.is_closed() or self.channel.received:
            return
        fd = self.channel.read_fd
        while True:
            try:
                self.loop.add_reader(fd, self.loop.stop)
                self.interrupts.user_code(self.loop.run_forever)
                return
            except KeyboardInterrupt:
                # It found no cell; at most it ended the step of a task in the background.
                pass
            except BaseException:
                traceback.print_exc()
            finally:
                self.loop.remove_reader(fd)

    def display(
        self,
        *values,
        mime=None,
        raw=False,
        metadata=None,
        display_id=None,
        include=None,
        exclude=None,
        transient=None,
        clear=False,
    ):
        """Shows values with every representation that they offer; `mime` names the type of a value that is already
        encoded, `raw=True` says that each value is a dict from MIME type to data. With `display_id` it gives a handle, as
        in IPython; its other options are accepted."""
        for value in values:
            found = {}
            if mime is not None:
                data = {"text/plain": "<%s>" % mime, mime: as_text_or_base64(mime, value)}
            elif raw:
                data = {"text/plain": "", **{kind: as_text_or_base64(kind, item) for kind, item in value.items()}}
            else:
                data, found = rich_data(value)
                self._forget_figure(value)
            flush_output()
            self.send({"type": "display", "id": self.cell, "data": data, "metadata": {**found, **(metadata or {})}})
        if display_id is None:
            return None
        return self.ipython().DisplayHandle(None if display_id is True else display_id)

    def show_figures(self):
        """Displays and closes every open figure: `plt.show()`, and the end of each cell."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None or not hasattr(pyplot, "get_fignums"):
            return
        for number in pyplot.get_fignums():
            self.display(pyplot.figure(number))

    def _forget_figure(self, value):
        figure, pyplot = sys.modules.get("matplotlib.figure"), sys.modules.get("matplotlib.pyplot")
        if figure and pyplot and isinstance(value, figure.Figure):
            pyplot.close(value)

    def _report(self, error):
        """Sends the `error` message and gives the status of the cell."""
        name = type(error).__name__
        message = {"type": "error", "id": self.cell, "name": name}
        try:
            # Formatting calls the exception's own methods, which are user code too.
            message.update(self.interrupts.user_code(describe, error))
        except BaseException:
            message.update(value="<the exception could not be formatted>", traceback=[name])
        if isinstance(error, SystemExit):
            message["exit_code"] = exit_code(error)
        flush_output()
        self.send(message)
        return "interrupted" if isinstance(error, KeyboardInterrupt) else "error"


def remember_source(code, filename):
    linecache.cache[filename] = (len(code), None, code.splitlines(True), filename)


def may_be_notation(code):
    """Whether a text that is no Python may be in the notation of IPython."""
    return "!" in code or "%" in code or "?" in code or code.lstrip().startswith("pip")


def without_indentation(code):
    """The cell without the indentation of its first line, taken from every line that has it, as IPython does."""
    found = find_indentation(code)
    return re.sub("(?m)^" + found.group(1), "", code) if found else code


def describe(error):
    value = str(error)
    report = traceback.TracebackException(type(error), error, user_traceback(error.__traceback__))
    part, others, seen = report, [], set()
    while part is not None:
        if id(part) not in seen:
            seen.add(id(part))
            # Ours are in between where a magic runs a part of the cell.
            part.stack[:] = [frame for frame in part.stack if frame.filename not in OWN_FILES]
            others += [other for other in (part.__cause__, part.__context__) if other is not None]
        part = others.pop() if others else None
    return {"value": value, "traceback": "".join(report.format()).splitlines()}


def user_traceback(tb):
    """Drops the frames before the cell's first: ours, and the event loop's under an await."""
    first = tb
    while first is not None and not first.tb_frame.f_code.co_filename.startswith("<cell "):
        first = first.tb_next
    if first is not None:
        return first
    while tb is not None and tb.tb_frame.f_code.co_filename == __file__:
        tb = tb.tb_next
    return tb


def exit_code(error):
    if error.code is None:
        return 0
    return error.code if isinstance(error.code, int) else 1


def end_forked_child(error):
    """A child that user code forked has come to the end of its cell: it ends as a program would."""
    code = 0
    if isinstance(error, SystemExit):
        code = exit_code(error) & 0xFF
    elif error is not None:
        traceback.print_exception(type(error), error, user_traceback(error.__traceback__))
        code = 1
    flush_output()
    os._exit(code)


def flush_output():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass


class Relay:
    """The nonce transport: lines on our own stdin and stdout, for providers that offer no descriptor but those.

    The kernel is a forked child that speaks frames on a socket and has pipes for its standard streams, so that it is the
    same program as with the other transport. Messages pass through unread.
    """

    def __init__(self, nonce):
        self.inward = (nonce + ">").encode("ascii")
        self.outward = (nonce + "<").encode("ascii")
        self.pending = {}

    def split(self):
        """Forks. In the child, gives the kernel's control descriptor; the parent relays until the end of the process."""
        import socket

        ours, theirs = socket.socketpair()
        stdin, stdout, stderr = os.pipe(), os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            die_with_parent()
            for target, source in enumerate((stdin[0], stdout[1], stderr[1])):
                os.dup2(source, target)
            for fd in stdin + stdout + stderr:
                os.close(fd)
            ours.close()
            return theirs.detach()
        theirs.close()
        for fd in (stdin[0], stdout[1], stderr[1]):
            os.close(fd)
        self.pid, self.control, self.stdin = pid, ours.detach(), stdin[1]
        self.outputs = {stdout[0]: b"stdout", stderr[0]: b"stderr"}
        try:
            self._run()
        except BaseException:
            traceback.print_exc()
        self._end()

    def _run(self):
        import select

        signal.signal(signal.SIGINT, lambda *_: self._signal(signal.SIGINT))
        self.pending = {self.control: bytearray(), self.stdin: bytearray()}
        for fd in (*self.pending, *self.outputs):
            os.set_blocking(fd, False)
        poll = select.poll()
        for fd in (0, self.control, self.stdin, *self.outputs):
            poll.register(fd, 0 if fd == self.stdin else select.POLLIN)
        lines, frames, end_of_stdin = bytearray(), bytearray(), False
        while True:
            for fd in list(self.pending):
                self._push(fd)
            if end_of_stdin and not self.pending.get(self.stdin):
                self._close_stdin(poll)
            for fd, waiting in self.pending.items():
                events = select.POLLIN if fd == self.control else 0
                poll.register(fd, events | (select.POLLOUT if waiting else 0))
            for fd, event in poll.poll():
                if fd == self.stdin and event & select.POLLERR:
                    self._close_stdin(poll)
                elif fd == 0:
                    data = os.read(0, MAX_FRAME)
                    if not data:
                        poll.unregister(0)
                        return
                    lines += data
                    while b"\n" in lines:
                        line, _, lines = lines.partition(b"\n")
                        end_of_stdin |= self._line(bytes(line).strip())
                elif fd in self.outputs:
                    # Nothing may be left of it: a frame of the same round sends the output before it.
                    data = read_now(fd, MAX_LINE)
                    if data == b"":
                        poll.unregister(fd)
                    elif data:
                        self._emit(self.outputs[fd], data)
                elif fd == self.control and event & ~select.POLLOUT:
                    data = read_now(fd, MAX_FRAME)
                    if data == b"":
                        return
                    frames = self._frames(frames + (data or b""))

    def _line(self, line):
        """Obeys one line; anything without the nonce is somebody else's. True when the user's stdin has ended."""
        if not line.startswith(self.inward):
            return False
        kind, _, text = line[len(self.inward) :].partition(b":")
        try:
            payload = binascii.a2b_base64(text)
        except binascii.Error:
            # What an earlier controller left half said.
            return False
        if kind in (b"message", b"part"):
            more = MORE if kind == b"part" else 0
            self.pending[self.control] += struct.pack("<I", len(payload) | more) + payload
        elif kind == b"stdin" and self.stdin in self.pending:
            self.pending[self.stdin] += payload
        elif kind == b"interrupt":
            self._signal(signal.SIGINT)
        return kind == b"stdin_end"

    def _frames(self, buffer):
        """Forwards whole frames, each behind the output that was written before it; gives the rest."""
        while len(buffer) >= 4:
            (word,) = struct.unpack_from("<I", buffer)
            end = 4 + (word & ~MORE)
            if len(buffer) < end:
                break
            self._drain_outputs()
            piece, more = bytes(buffer[4:end]), bool(word & MORE)
            for start in range(0, len(piece), MAX_LINE):
                last = not more and start + MAX_LINE >= len(piece)
                self._emit(b"message" if last else b"part", piece[start : start + MAX_LINE])
            buffer = buffer[end:]
        return buffer

    def _drain_outputs(self):
        import fcntl
        import termios

        for fd, kind in self.outputs.items():
            (ready,) = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))
            while ready > 0:
                data = os.read(fd, min(ready, MAX_LINE))
                ready -= len(data)
                self._emit(kind, data)

    def _emit(self, kind, payload):
        line = self.outward + kind + b":" + binascii.b2a_base64(payload, newline=False) + b"\n"
        view = memoryview(line)
        while view:
            view = view[os.write(1, view) :]

    def _push(self, fd):
        waiting = self.pending[fd]
        try:
            while waiting:
                del waiting[: os.write(fd, waiting[:65536])]
        except BlockingIOError:
            pass
        except OSError:
            waiting.clear()

    def _close_stdin(self, poll):
        if self.pending.pop(self.stdin, None) is not None:
            poll.unregister(self.stdin)
            os.close(self.stdin)
            self.stdin = None

    def _signal(self, number):
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass

    def _end(self):
        """The kernel is gone, or we are not wanted any more: a short grace, then nothing of it is left."""
        import time

        self._drain_outputs()
        os.close(self.control)
        deadline = time.monotonic() + 2
        done, status = os.waitpid(self.pid, os.WNOHANG)
        while not done and time.monotonic() < deadline:
            time.sleep(0.01)
            done, status = os.waitpid(self.pid, os.WNOHANG)
        self._signal(signal.SIGKILL)
        if not done:
            _, status = os.waitpid(self.pid, 0)
        self._drain_outputs()
        os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


def die_with_parent():
    """A busy kernel does not see the end of its channel, and must not outlive a relay that was killed."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    except (ImportError, OSError, AttributeError):
        pass


def read_now(fd, size):
    """What a descriptor has: None for nothing yet, no bytes for the end."""
    try:
        return os.read(fd, size)
    except BlockingIOError:
        return None
    except ConnectionError:
        return b""


# What is behind `os.environ`. Its methods are of Python, and each context would have to copy what they touch.
VARIABLES = os.environ._data


def take_variable(name, otherwise=None):
    if name not in VARIABLES:
        return otherwise
    os.unsetenv(name)
    return VARIABLES.pop(name)


def open_channel():
    nonce = take_variable(b"SANDSTORM_KERNEL_NONCE")
    both = take_variable(b"SANDSTORM_KERNEL_FD")
    read_fd = take_variable(b"SANDSTORM_KERNEL_IN", both)
    write_fd = take_variable(b"SANDSTORM_KERNEL_OUT", both)
    if nonce:
        read_fd = write_fd = Relay(nonce.decode("ascii")).split()
    if read_fd is None or write_fd is None:
        sys.exit("this is the kernel of a context: it needs SANDSTORM_KERNEL_FD, _IN and _OUT, or _NONCE")
    return Channel(int(read_fd), int(write_fd))


def prepare_interpreter():
    """What user code sees should look like an interactive interpreter, not like a script called kernel."""
    if b"MPLBACKEND" not in VARIABLES:
        VARIABLES[b"MPLBACKEND"] = b"Agg"
        os.putenv(b"MPLBACKEND", b"Agg")
    if sys.path and sys.path[0] == OWN_FOLDER:
        sys.path[0] = ""
    sys.argv[:] = [""]
    # Line by line, as on a terminal: output is followed while the cell runs. Unbuffered, `print` writes each piece apart.
    change_stream(sys.stdout, "backslashreplace", by_line=True)
    change_stream(sys.stderr, "backslashreplace", by_line=True)
    change_stream(sys.stdin, "surrogateescape")


def change_stream(stream, errors, by_line=False):
    if stream is None:
        return
    if stream.encoding != "utf-8" or stream.errors != errors:
        stream.reconfigure(encoding="utf-8", errors=errors)
    if by_line and (stream.write_through or not stream.line_buffering):
        stream.reconfigure(line_buffering=True, write_through=False)


def new_main():
    """A fresh `__main__`, so that pickle, dataclasses and `import __main__` meet the user's names and not ours."""
    module = types.ModuleType("__main__")
    module.__builtins__ = builtins
    return module


def rehearse():
    """For a warm interpreter, before it is copied: the life of a context with one cell, so that code which adapts itself to
    what it does has done so. Nothing is left of it."""
    import socket

    ours, theirs = socket.socketpair()
    VARIABLES[b"SANDSTORM_KERNEL_FD"] = b"%d" % theirs.detach()
    kernel = Kernel(open_channel(), new_main().__dict__)
    for message in ({"type": "execute", "id": 1, "code": "print('', end='')", "late_start": True}, {"type": "shutdown"}):
        body = encode(message)
        ours.sendall(struct.pack("<I", len(body)) + body)
    kernel.serve()
    set_signal(SIGINT, signal.default_int_handler)
    linecache.cache.pop("<cell 1>")
    kernel.channel.close()
    ours.close()


def main():
    channel = open_channel()
    prepare_interpreter()
    # Kept, as long as this runs.
    own, module = sys.modules["__main__"], new_main()
    sys.modules["__main__"] = module
    kernel = Kernel(channel, module.__dict__)
    kernel.settle()
    code = 0
    try:
        kernel.serve()
    except ProtocolError as error:
        print("kernel: %s" % error, file=sys.stderr)
        code = 70
    import atexit

    # Threads that user code left behind would hold an ordinary exit for ever.
    atexit._run_exitfuncs()
    flush_output()
    os._exit(code)


main()
