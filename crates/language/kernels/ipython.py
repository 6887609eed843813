"""What users of IPython expect of a cell: `!command`, `%magic`, `%%magic`, `name?`, `get_ipython()` and `IPython.display`.

The Python kernel carries this file as text and compiles it at the first use, so that contexts without it start no slower.
It imports what it needs where it needs it, for the same reason.
"""

import os
import re
import sys
import types

VERSION = (8, 24, 0)


class UsageError(Exception):
    """A magic that does not exist, or was called in a way that it does not understand."""


# From the notation to Python

PIECE = re.compile(r""""{3}|'{3}|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|#.*|[()\[\]{}]""")
CLOSING = {quote: re.compile(r"(?:[^\\]|\\.)*?" + quote) for quote in ('"' * 3, "'" * 3)}
ESCAPED = re.compile(r"(\s*)(!!|!|%|\?\??)\s*(\S.*)")
ASSIGNED = re.compile(r"""(\s*(?:[^"'#=!%()\[\]{}]|\[[^\]]*\]|\([^)]*\))+=\s*)([!%])(?!=)\s*(\S.*)""")
ASKED = re.compile(r"(\s*)(?:[\w.]+\s*=\s*)?(%{0,2}[\w.*]+(?:\[[^\]]*\])?)(\?\??)\s*$")
CELL_MAGIC = re.compile(r"(\s*)%%(!|\w+)[^\S\n]*([^\n]*)(?:\n|$)")


def translate(code):
    """Python of a cell that the compiler refused. Lines keep their numbers, and what is Python stays as it is."""
    found = CELL_MAGIC.match(code)
    if found:
        lead, name, line = found.groups()
        name = "system" if name == "!" else name
        call = "get_ipython().run_cell_magic(%r, %r, %r)" % (name, line.rstrip(), code[found.end() :])
        return "\n" * lead.count("\n") + call
    if re.match(r"\s*pip3? +[a-z]+\b[^=(\n]*$", code) and "pip" not in SHELL.user_ns:
        # The one magic that is usual without its mark, alone in its cell.
        code = code.replace("pip", "%pip", 1).replace("%pip3", "%pip", 1)
    lines, out, at = code.split("\n"), [], 0
    depth, quote, continued = 0, None, False
    while at < len(lines):
        line = lines[at]
        if not depth and not quote and not continued and re.search(r"[!%?]", line):
            call, used = translate_statement(lines, at)
            if call is not None:
                out += [call] + [""] * (used - 1)
                at += used
                continue
        out.append(line)
        at += 1
        depth, quote, comment = scan(line, depth, quote)
        continued = line.endswith("\\") and not quote and not comment
    return "\n".join(out)


def scan(line, depth, quote):
    """The depth of brackets and the open quote behind a line of Python, and whether it ends in a comment."""
    at, comment = 0, False
    while at < len(line):
        found = CLOSING[quote].match(line, at) if quote else PIECE.search(line, at)
        if found is None:
            break
        at, text = found.end(), found.group()
        if quote:
            quote = None
        elif text in CLOSING:
            quote = text
        elif text in "([{":
            depth += 1
        elif text in ")]}":
            depth = max(0, depth - 1)
        comment = text[0] == "#"
    return depth, quote, comment


def translate_statement(lines, at):
    """(Python, lines that it took) of a statement in the notation; (None, 0) where it is something else."""
    asked = ASKED.match(lines[at])
    if asked:
        indentation, name, marks = asked.groups()
        return "%sget_ipython().inspect(%r, %r)" % (indentation, name, len(marks) > 1), 1
    used, line = 1, lines[at]
    while line.endswith("\\") and at + used < len(lines):
        line = line[:-1].rstrip() + " " + lines[at + used].strip()
        used += 1
    found = ASSIGNED.match(line) or ESCAPED.match(line)
    if found is None:
        return None, 0
    lead, mark, rest = found.group(1), found.group(2), found.group(3).rstrip()
    if mark == "!":
        method = "getoutput" if found.re is ASSIGNED else "system"
        return "%sget_ipython().%s(%r)" % (lead, method, rest), used
    if mark == "!!":
        return "%sget_ipython().getoutput(%r)" % (lead, rest), used
    if mark == "%":
        name, _, line = rest.partition(" ")
        return "%sget_ipython().run_line_magic(%r, %r)" % (lead, name, line.strip()), used
    return "%sget_ipython().inspect(%r, %r)" % (lead, rest, mark == "??"), used


DOLLAR = re.compile(r"\$(\$?)([A-Za-z_]\w*)")


def expand(text, names):
    """`{expression}` and `$name` of Python put in. A text with braces that are no expression is left as it is, since the
    shell has a use for them too."""
    from string import Formatter

    def dollar(found):
        escaped, name = found.groups()
        return "$" + name if escaped else str(names[name]) if name in names else found.group()

    out = []
    try:
        for literal, field, spec, conversion in Formatter().parse(text):
            out.append(DOLLAR.sub(dollar, literal))
            if field is None:
                continue
            if literal.endswith("$"):
                out.append("{%s}" % field)
                continue
            value = eval(field, names)
            value = {"r": repr, "s": str, "a": ascii, None: lambda same: same}[conversion](value)
            out.append(format(value, expand(spec, names)))
    except Exception:
        return text
    return "".join(out)


class Lines(list):
    """What a command printed, by lines; also as one text."""

    l = list = property(lambda self: self)
    n = nlstr = property(lambda self: "\n".join(self))
    s = spstr = property(lambda self: " ".join(self))


class Captured:
    """What `%%capture` and `capture_output` took."""

    def __init__(self):
        self.stdout = self.stderr = ""
        self.outputs = []

    def show(self):
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)
        for output in self.outputs:
            output.display()

    __call__ = show

    def __str__(self):
        return self.stdout


class RichOutput:
    def __init__(self, shell, data, metadata):
        self.shell, self.data, self.metadata = shell, data, metadata

    def display(self):
        self.shell.display(self.data, raw=True, metadata=self.metadata)

    def _repr_mimebundle_(self, include=None, exclude=None):
        return self.data, self.metadata


class Events:
    """For libraries that want to be told about cells. Nothing is fired."""

    def register(self, event, function):
        pass

    def unregister(self, event, function):
        pass

    def trigger(self, event, *args):
        pass


class InteractiveShell:
    """What `get_ipython()` gives."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.user_ns = self.user_global_ns = kernel.namespace
        self.config = {}
        self.events = Events()
        self.line_magics, self.cell_magics = {}, {}
        self.before = os.getcwd()
        for name in dir(type(self)):
            kind, _, magic = name.partition("_magic_")
            if magic and kind in ("line", "cell", "both"):
                self.register_magic_function(getattr(self, name), {"both": "line_cell"}.get(kind, kind), magic)
        for name in WITHOUT_EFFECT:
            self.line_magics[name] = self._accept
        for name in ("ls", "cat", "cp", "mv", "rm", "mkdir", "rmdir", "ll"):
            self.line_magics[name] = self._program("ls -l" if name == "ll" else name)
        for name, mime in SHOWN.items():
            self.cell_magics[name] = lambda line, cell, mime=mime: self.display({mime: cell}, raw=True)
        for name in ("bash", "sh", "perl", "ruby", "python", "python3"):
            program = sys.executable if name.startswith("python") else name
            self.cell_magics[name] = lambda line, cell, program=program: self._script([program], line, cell)

    @classmethod
    def initialized(cls):
        return True

    @classmethod
    def instance(cls, *_args, **_options):
        return SHELL

    @property
    def execution_count(self):
        return self.kernel.count

    def display(self, *values, **options):
        return self.kernel.display(*values, **options)

    # What other code calls

    def run_line_magic(self, name, line, _stack_depth=1):
        function = self.line_magics.get(name)
        if function is None:
            beside = " The cell magic `%%%%%s` exists." % name if name in self.cell_magics else ""
            raise UsageError("Line magic function `%%%s` not found.%s `%%lsmagic` lists those that exist." % (name, beside))
        if name not in TAKE_PYTHON:
            line = expand(line, self._names(_stack_depth + 1))
        return function(line)

    def run_cell_magic(self, name, line, cell):
        function = self.cell_magics.get(name)
        if function is None:
            beside = " The line magic `%%%s` exists." % name if name in self.line_magics else ""
            raise UsageError("Cell magic `%%%%%s` not found.%s `%%lsmagic` lists those that exist." % (name, beside))
        if name not in TAKE_PYTHON:
            line = expand(line, self._names(2))
        return function(line, cell)

    def magic(self, text):
        name, _, line = text.lstrip("%").partition(" ")
        return self.run_line_magic(name, line.strip(), _stack_depth=2)

    def system(self, command):
        self._spawn(shell_of(expand(command, self._names(2))))

    def getoutput(self, command, split=True):
        return self._output(expand(command, self._names(2)), split)
    def run_cell(self, code, **_options):
        return self.kernel.evaluate(code, "<cell in a cell>")

    def ev(self, expression):
        return eval(expression, self.user_ns)

    def ex(self, code):
        exec(code, self.user_ns)

    def push(self, names):
        self.user_ns.update(names if isinstance(names, dict) else {name: self.user_ns[name] for name in names})

    def register_magic_function(self, function, magic_kind="line", magic_name=None):
        name = magic_name or function.__name__
        if "line" in magic_kind:
            self.line_magics[name] = function
        if "cell" in magic_kind:
            self.cell_magics[name] = function

    def enable_gui(self, *_args):
        pass

    enable_matplotlib = set_next_input = enable_gui

    # Programs

    def _program(self, command):
        """A line magic that is a command of the shell."""

        def magic(line):
            self._spawn(shell_of("%s %s" % (command, line)))

        return magic

    def _names(self, depth):
        """What the caller's own names mean, `depth` frames up."""
        return {**self.user_ns, **sys._getframe(depth).f_locals}

    def _spawn(self, argv, text=None):
        """Runs a program. It writes to our own descriptors where `sys.stdout` does, and else into what replaced that."""
        import subprocess

        flush()
        kept = [None if writes_to(sys.stdout, 1) else subprocess.PIPE, None if writes_to(sys.stderr, 2) else subprocess.PIPE]
        given = {} if text is None else {"input": text.encode("utf-8", "surrogateescape")}
        try:
            found = subprocess.run(argv, stdout=kept[0], stderr=kept[1], **given)
        except FileNotFoundError:
            raise UsageError("%s is not installed in this sandbox" % argv[0]) from None
        for stream, output in ((sys.stdout, found.stdout), (sys.stderr, found.stderr)):
            if output and stream is not None:
                stream.write(output.decode("utf-8", "replace"))
        self._ended(found.returncode)
        return found.returncode

    def _output(self, command, split=True):
        import subprocess

        flush()
        found = subprocess.run(shell_of(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._ended(found.returncode)
        text = found.stdout.decode("utf-8", "replace")
        return Lines(text.splitlines()) if split else text

    def _ended(self, code):
        self.user_ns["_exit_code"] = code
        # It may have installed something.
        if "importlib" in sys.modules:
            sys.modules["importlib"].invalidate_caches()

    def _script(self, argv, line, cell):
        import shlex

        words, out, err, forgive = shlex.split(line), None, None, False
        while words and words[0].startswith("--"):
            word = words.pop(0)
            if word == "--no-raise-error":
                forgive = True
            elif word in ("--out", "--err") and words:
                out, err = (words.pop(0), err) if word == "--out" else (out, words.pop(0))
            else:
                raise UsageError("a script magic takes --out NAME, --err NAME and --no-raise-error, not %s" % word)
        if out is None and err is None:
            code = self._spawn(argv + words, cell)
        else:
            with capture(self, stdout=out is not None, stderr=err is not None, display=False) as taken:
                code = self._spawn(argv + words, cell)
            self.user_ns.update({name: text for name, text in ((out, taken.stdout), (err, taken.stderr)) if name})
        if code and not forgive:
            from subprocess import CalledProcessError

            raise CalledProcessError(code, argv + words)

    def cell_magic_script(self, line, cell):
        import shlex

        if not line.strip():
            raise UsageError("%%script needs the name of a program")
        self._script(shlex.split(line), "", cell)

    def both_magic_system(self, line, cell=None):
        return self._output(line if cell is None else expand(cell, self.user_ns))

    both_magic_sx = both_magic_system

    def line_magic_pip(self, line):
        import importlib.util

        if importlib.util.find_spec("pip") is None:
            raise UsageError("pip is not installed in this sandbox")
        self._spawn(shell_of('"$0" -m pip ' + line) + [sys.executable])

    # Time

    def both_magic_time(self, line, cell=None):
        import time

        if cell is not None and line.strip():
            raise UsageError("%%time takes no arguments; the code belongs on the lines after it")
        began, cpu = time.perf_counter(), os.times()
        value = self._run(line if cell is None else cell, 0 if cell is None else 1)
        wall, after = time.perf_counter() - began, os.times()
        user, system = after.user - cpu.user, after.system - cpu.system
        print("CPU times: user %s, sys: %s, total: %s" % tuple(map(duration, (user, system, user + system))))
        print("Wall time: %s" % duration(wall))
        return value

    def both_magic_timeit(self, line, cell=None):
        import timeit

        options, rest = take_options(line, {"-n": int, "-r": int, "-p": int, "-q": None, "-o": None, "-t": None, "-c": None})
        statement, setup = (rest, "pass") if cell is None else (cell, rest or "pass")
        if not statement.strip():
            raise UsageError("%timeit needs a statement")
        timer = timeit.Timer(statement, setup, globals=self.user_ns)
        loops, repeat = options.get("-n") or timer.autorange()[0], options.get("-r", 7)
        times = [total / loops for total in timer.repeat(repeat, loops)]
        mean = sum(times) / len(times)
        spread = (sum((time - mean) ** 2 for time in times) / len(times)) ** 0.5
        text = "%s +- %s per loop (mean +- std. dev. of %d run%s, %s loop%s each)" % (
            *(duration(value, options.get("-p", 3)) for value in (mean, spread)),
            *(repeat, "s" * (repeat != 1), format(loops, ","), "s" * (loops != 1)),
        )
        text = text.replace("+-", "\xb1")
        if "-q" not in options:
            print(text)
        if "-o" in options:
            best, worst = min(times), max(times)
            return types.SimpleNamespace(
                loops=loops, repeat=repeat, timings=times, average=mean, stdev=spread, best=best, worst=worst
            )
        return None

    # Places, variables, files

    def line_magic_cd(self, line):
        target = re.sub(r"^-q\b\s*", "", line.strip()).strip("'\"") or "~"
        target = self.before if target == "-" else os.path.expanduser(target)
        now = os.getcwd()
        os.chdir(target)
        self.before = now
        print(os.getcwd())

    def line_magic_pwd(self, _line):
        return os.getcwd()

    def line_magic_env(self, line):
        line = line.strip()
        if not line:
            return dict(os.environ)
        found = re.match(r"(\w+)(?:\s*=\s*|\s+)(.*)$", line)
        if found is None:
            if line not in os.environ:
                raise UsageError("there is no environment variable %s" % line)
            return os.environ[line]
        name, value = found.groups()
        os.environ[name] = value
        print("env: %s=%s" % (name, value))
        return None

    line_magic_set_env = line_magic_env

    def line_magic_who_ls(self, line):
        wanted, hidden = set(line.split()), {"display", "get_ipython", "exit", "quit"}
        names = sorted(name for name in self.user_ns if not name.startswith("_") and name not in hidden)
        return [name for name in names if not wanted or type(self.user_ns[name]).__name__ in wanted]

    def line_magic_who(self, line):
        print("\t".join(self.line_magic_who_ls(line)) or "Interactive namespace is empty.")

    def line_magic_whos(self, line):
        rows = [("Variable", "Type", "Data/Info")]
        for name in self.line_magic_who_ls(line):
            value = self.user_ns[name]
            text = "n=%d" % len(value) if isinstance(value, (dict, list, set, tuple)) else " ".join(repr(value).split())
            rows.append((name, type(value).__name__, text if len(text) <= 60 else text[:57] + "..."))
        widths = [max(len(row[place]) for row in rows) for place in (0, 1)]
        for row in rows:
            print("%-*s   %-*s   %s" % (widths[0], row[0], widths[1], row[1], row[2]))

    def line_magic_reset(self, _line):
        for name in self.line_magic_who_ls(""):
            del self.user_ns[name]

    def line_magic_run(self, line):
        """Runs a program in the place of `__main__`; its names are the user's afterwards."""
        import runpy
        import shlex

        words, own, module = shlex.split(line), False, False
        while words and words[0] in ("-i", "-m"):
            own, module = own or words[0] == "-i", module or words[0] == "-m"
            words.pop(0)
        if not words or words[0].startswith("-"):
            raise UsageError("%run takes [-i] FILE [arguments], or -m MODULE [arguments]")
        path = os.path.expanduser(words[0])
        if not module and not os.path.exists(path) and os.path.exists(path + ".py"):
            path += ".py"
        if not module and not os.path.isfile(path):
            raise UsageError("there is no file %s" % path)
        argv, search, main = sys.argv, sys.path[:], sys.modules["__main__"]
        sys.argv = [path, *words[1:]]
        try:
            if module:
                names = runpy.run_module(path, run_name="__main__", alter_sys=True)
            else:
                sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
                fresh = types.ModuleType("__main__")
                fresh.__file__ = path
                names = fresh.__dict__
                if own:
                    names = self.user_ns
                else:
                    sys.modules["__main__"] = fresh
                with open(path, "rb") as file:
                    code = compile(file.read(), path, "exec", dont_inherit=True)
                exec(code, names)
        except SystemExit as end:
            if end.code:
                raise
            names = {} if module else names
        finally:
            sys.argv, sys.path[:] = argv, search
            sys.modules["__main__"] = main
        self.user_ns.update({name: value for name, value in names.items() if not name.startswith("__")})

    def cell_magic_writefile(self, line, cell):
        import shlex

        words = shlex.split(line)
        add = words[:1] in (["-a"], ["--append"])
        names = words[add:]
        if len(names) != 1:
            raise UsageError("%%writefile takes [-a] and one file name")
        path = os.path.expanduser(names[0])
        verb = "Appending to" if add else "Overwriting" if os.path.exists(path) else "Writing"
        with open(path, "a" if add else "w", encoding="utf-8") as file:
            file.write(cell)
        print("%s %s" % (verb, path))

    cell_magic_file = cell_magic_writefile

    def cell_magic_capture(self, line, cell):
        import shlex

        words = shlex.split(line)
        names = [word for word in words if not word.startswith("--")]
        keep = {word[5:] for word in words if word.startswith("--no-")}
        if len(names) > 1 or not keep <= {"stdout", "stderr", "display"}:
            raise UsageError("%%capture takes --no-stdout, --no-stderr, --no-display and one name")
        with capture(self, **{kind: False for kind in keep}) as taken:
            value = self._run(cell, 1)
            if value is not None:
                self.display(value)
            self.kernel.show_figures()
        if names:
            self.user_ns[names[0]] = taken

    def _run(self, code, line):
        """Runs user code as the part of the cell that begins at `line`."""
        return self.kernel.evaluate("\n" * line + code, self.kernel.filename)

    def line_magic_lsmagic(self, _line):
        print("Available line magics:\n%s\n" % "  ".join("%" + name for name in sorted(self.line_magics)))
        print("Available cell magics:\n%s" % "  ".join("%%" + name for name in sorted(self.cell_magics)))

    def _accept(self, _line):
        """Accepted, without an effect here."""

    # Help

    def inspect(self, name, source=False):
        """`name?` and `name??`"""
        import inspect

        name = name.strip().rstrip(";")
        if name.startswith("%"):
            bare = name.lstrip("%")
            value = self.cell_magics.get(bare) if name.startswith("%%") else self.line_magics.get(bare)
            value = value or self.cell_magics.get(bare)
        elif "*" in name:
            return self._search(name)
        else:
            try:
                value = eval(name, self._names(2))
            except (NameError, AttributeError, SyntaxError, LookupError):
                print("Object `%s` not found." % name)
                return None
        if value is None and name.startswith("%"):
            print("Object `%s` not found." % name)
            return None
        rows = []
        if callable(value):
            try:
                rows.append(("Signature:", name + str(inspect.signature(value))))
            except (TypeError, ValueError):
                pass
        else:
            text = repr(value)
            rows.append(("String form:", text if len(text) <= 200 else text[:197] + "..."))
        rows.append(("Type:", type(value).__name__))
        try:
            rows.append(("File:", inspect.getfile(value)))
        except (TypeError, OSError):
            pass
        rows.append(("Docstring:", inspect.getdoc(value) or "<no docstring>"))
        if source:
            try:
                rows[-1] = ("Source:", "\n" + inspect.getsource(value).rstrip())
            except (OSError, TypeError):
                pass
        print("\n".join("%-12s %s" % row for row in rows))
        return None

    def _search(self, pattern):
        from fnmatch import fnmatchcase
        import builtins

        head, _, tail = pattern.rpartition(".")
        if head and "*" not in head:
            names = ["%s.%s" % (head, name) for name in dir(eval(head, self.user_ns))]
        else:
            names = [*self.user_ns, *dir(builtins)]
        hide = not tail.startswith("_")
        found = sorted({name for name in names if fnmatchcase(name, pattern)})
        print("\n".join(name for name in found if not (hide and name.rpartition(".")[2].startswith("_"))))


WITHOUT_EFFECT = "matplotlib load_ext reload_ext unload_ext autoreload config gui precision xmode colors automagic".split()
SHOWN = {
    "html": "text/html",
    "HTML": "text/html",
    "markdown": "text/markdown",
    "latex": "text/latex",
    "svg": "image/svg+xml",
    "SVG": "image/svg+xml",
    "javascript": "application/javascript",
    "js": "application/javascript",
}
# Their lines are Python.
TAKE_PYTHON = frozenset("time timeit".split())


def shell_of(command):
    from shutil import which

    return [which("bash") or "/bin/sh", "-c", command]


def flush():
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def writes_to(stream, descriptor):
    try:
        return stream.fileno() == descriptor
    except (AttributeError, OSError, ValueError):
        return stream is None


def take_options(line, known):
    """The options at the start of a line, `-n 5` or `-n5`, and what follows."""
    options = {}
    while True:
        found = re.match(r"\s*(-[a-zA-Z])", line)
        if found is None or found.group(1) not in known:
            return options, line.strip()
        name, rest = found.group(1), line[found.end() :]
        kind = known[name]
        if kind is None:
            options[name], line = True, rest
            continue
        value = re.match(r"\s*(\d+)", rest)
        if value is None:
            raise UsageError("%s needs a number" % name)
        options[name], line = kind(value.group(1)), rest[value.end() :]


def duration(seconds, digits=3):
    if seconds >= 60:
        minutes, rest = divmod(int(seconds), 60)
        return "%dmin %ds" % (minutes, rest)
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "\xb5s")):
        if seconds >= 1 / factor:
            return "%.*g %s" % (digits, seconds * factor, unit)
    return "%.*g ns" % (digits, seconds * 1e9)


class capture:
    """Takes what is printed and displayed inside."""

    def __init__(self, shell, stdout=True, stderr=True, display=True):
        self.kernel, self.shell = shell.kernel, shell
        self.names = [name for name, wanted in (("stdout", stdout), ("stderr", stderr)) if wanted]
        self.takes_displays = display
        self.taken = Captured()

    def __enter__(self):
        import io

        self.before = {name: getattr(sys, name) for name in self.names}
        for name in self.names:
            setattr(sys, name, io.StringIO())
        if self.takes_displays:
            self.replaced, send = self.kernel.__dict__.get("send"), self.kernel.send

            def take(message, hold=False):
                if message.get("type") != "display":
                    return send(message, hold)
                return self.taken.outputs.append(RichOutput(self.shell, message["data"], message["metadata"]))

            self.kernel.send = take
        return self.taken

    def __exit__(self, *_):
        if self.takes_displays:
            self.kernel.__dict__.pop("send", None)
            if self.replaced is not None:
                self.kernel.send = self.replaced
        for name, stream in self.before.items():
            text = getattr(sys, name)
            setattr(self.taken, name, text.getvalue() if hasattr(text, "getvalue") else "")
            setattr(sys, name, stream)


# IPython.display


class DisplayObject:
    """Data of one type, given as such, or as the name of a file or an address to read it from."""

    mime = None
    binary = False

    def __init__(self, data=None, url=None, filename=None, metadata=None):
        if isinstance(data, os.PathLike):
            data, filename = None, os.fspath(data)
        elif isinstance(data, str) and data.startswith(("http://", "https://")) and self.from_address:
            data, url = None, data
        self.data, self.url, self.filename, self.metadata = data, url, filename, metadata or {}
        if data is None and (filename or url):
            self.reload()

    from_address = False

    def reload(self):
        if self.filename:
            with open(self.filename, "rb") as file:
                content = file.read()
        else:
            from urllib.request import urlopen

            with urlopen(self.url) as answer:
                content = answer.read()
        self.data = content if self.binary else content.decode("utf-8", "replace")

    def _repr_mimebundle_(self, include=None, exclude=None):
        if self.mime is None or self.data is None:
            return {}
        return {self.mime: self.data}, {self.mime: self.metadata} if self.metadata else {}

    def __repr__(self):
        return "<IPython.core.display.%s object>" % type(self).__name__


class HTML(DisplayObject):
    mime = "text/html"

    def _repr_html_(self):
        return self.data

    __html__ = _repr_html_


class Markdown(DisplayObject):
    mime = "text/markdown"

    def _repr_markdown_(self):
        return self.data


class Latex(DisplayObject):
    mime = "text/latex"

    def _repr_latex_(self):
        return self.data


class Math(Latex):
    def __init__(self, data=None, *args, **options):
        super().__init__("$\\displaystyle %s$" % data.strip("$") if data else data, *args, **options)


class Pretty(DisplayObject):
    mime = "text/plain"


class SVG(DisplayObject):
    mime = "image/svg+xml"
    from_address = True

    def __init__(self, data=None, url=None, filename=None, metadata=None):
        if isinstance(data, str) and not data.lstrip().startswith("<") and os.path.isfile(data):
            data, filename = None, data
        super().__init__(data, url, filename, metadata)

    def _repr_svg_(self):
        return self.data


class Javascript(DisplayObject):
    mime = "application/javascript"

    def __init__(self, data=None, url=None, filename=None, lib=None, css=None):
        super().__init__(data, url, filename)

    def _repr_javascript_(self):
        return self.data


class JSON(DisplayObject):
    mime = "application/json"

    def __init__(self, data=None, url=None, filename=None, expanded=False, metadata=None, root="root", **options):
        super().__init__(data, url, filename, {"expanded": expanded, "root": root, **(metadata or {}), **options})
        if isinstance(self.data, (str, bytes)):
            import json

            self.data = json.loads(self.data)

    def _repr_json_(self):
        return self.data


class Image(DisplayObject):
    binary = True

    def __init__(
        self, data=None, url=None, filename=None, format=None, embed=None, width=None, height=None, retina=False, **options
    ):
        metadata = {**(options.get("metadata") or {}), **{k: v for k, v in (("width", width), ("height", height)) if v}}
        if isinstance(data, str) and not data.startswith(("http://", "https://")):
            data, filename = None, data
        elif isinstance(data, str):
            data, url = None, data
        self.embed = embed if embed is not None else url is None
        if self.embed:
            super().__init__(data, url, filename, metadata)
        else:
            self.data, self.url, self.filename, self.metadata = None, url, None, metadata
        self.format = (format or image_format(self.data)).lower().replace("jpg", "jpeg")
        self.mime = "image/%s" % self.format

    def _repr_mimebundle_(self, include=None, exclude=None):
        if self.embed:
            return super()._repr_mimebundle_()
        from html import escape

        sizes = "".join(' %s="%s"' % (name, self.metadata[name]) for name in ("width", "height") if name in self.metadata)
        return {"text/html": '<img src="%s"%s/>' % (escape(self.url), sizes)}

    def _repr_png_(self):
        return self.data if self.format == "png" else None

    def _repr_jpeg_(self):
        return self.data if self.format == "jpeg" else None


def image_format(data):
    for start, name in ((b"\xff\xd8\xff", "jpeg"), (b"GIF8", "gif"), (b"RIFF", "webp")):
        if bytes((data or b"")[:4]).startswith(start):
            return name
    return "png"


class IFrame:
    def __init__(self, src, width, height, extras=None, **query):
        from urllib.parse import urlencode

        self.src, self.width, self.height = src + ("?" + urlencode(query) if query else ""), width, height

    def _repr_html_(self):
        from html import escape

        return '<iframe width="%s" height="%s" src="%s" frameborder="0" allowfullscreen></iframe>' % (
            *(escape(str(size)) for size in (self.width, self.height)),
            escape(self.src),
        )


class DisplayHandle:
    """A display with a name. An update is shown as one more display: what was sent stays sent."""

    def __init__(self, display_id=None):
        self.display_id = display_id or os.urandom(16).hex()

    def display(self, value, **options):
        SHELL.display(value, display_id=self.display_id, **options)

    update = display


def display(*values, **options):
    return SHELL.kernel.display(*values, **options)


def update_display(value, *, display_id, **options):
    SHELL.display(value, display_id=display_id, **options)


def publish_display_data(data, metadata=None, *_args, **_options):
    SHELL.display(data, raw=True, metadata=metadata)


def clear_output(wait=False):
    """What was sent stays sent; half a line that waits is sent too."""
    flush()


def show_as(mime):
    def show(*values, raw=False, **_options):
        for value in values:
            if raw:
                SHELL.display({mime: value}, raw=True)
            else:
                SHELL.display(value)

    return show


def set_matplotlib_formats(*_formats, **_options):
    pass


def get_ipython():
    return SHELL


def register_magic(kind):
    """The decorators `register_line_magic` and its kind, with or without a name."""

    def register(given):
        if isinstance(given, str):
            return lambda function: SHELL.register_magic_function(function, kind, given) or function
        return SHELL.register_magic_function(given, kind) or given

    return register


# The modules

OBJECTS = (DisplayObject, HTML, Markdown, Latex, Math, Pretty, SVG, Javascript, JSON, Image, IFrame, DisplayHandle)
DISPLAY = {kind.__name__: kind for kind in OBJECTS}
DISPLAY.update(
    TextDisplayObject=DisplayObject,
    display=display,
    update_display=update_display,
    publish_display_data=publish_display_data,
    clear_output=clear_output,
    set_matplotlib_formats=set_matplotlib_formats,
    **{"display_" + name: show_as(SHOWN[name]) for name in ("html", "markdown", "svg", "latex", "javascript")},
    display_json=show_as("application/json"),
    display_png=show_as("image/png"),
    display_jpeg=show_as("image/jpeg"),
    display_pretty=show_as("text/plain"),
)
MODULES = {
    "IPython": {
        "get_ipython": get_ipython,
        "version_info": VERSION,
        "__version__": ".".join(map(str, VERSION)),
        "__path__": [],
    },
    "IPython.display": DISPLAY,
    "IPython.core": {"__path__": []},
    "IPython.core.display": DISPLAY,
    "IPython.core.display_functions": DISPLAY,
    "IPython.core.getipython": {"get_ipython": get_ipython},
    "IPython.core.interactiveshell": {"InteractiveShell": InteractiveShell},
    "IPython.core.error": {"UsageError": UsageError},
    "IPython.core.magic": {
        "register_line_magic": register_magic("line"),
        "register_cell_magic": register_magic("cell"),
        "register_line_cell_magic": register_magic("line_cell"),
    },
    "IPython.core.pylabtools": {"backend2gui": {}},
    "IPython.utils": {"__path__": []},
    "IPython.utils.capture": {"capture_output": lambda *args, **options: capture(SHELL, *args, **options)},
}
for kind in OBJECTS:
    kind.__module__ = "IPython.core.display"
UsageError.__module__ = "IPython.core.error"


class Loader:
    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__name__

        def missing(key):
            if key.startswith("__"):
                raise AttributeError(key)
            if "%s.%s" % (name, key) in MODULES:
                from importlib import import_module

                return import_module("%s.%s" % (name, key))
            raise AttributeError(
                "%s has no %s here: IPython is not installed, and what stands in for it is small; `%%pip install ipython` "
                "gives all of it to a context that is restarted" % (name, key)
            )

        module.__dict__.update(MODULES[name], __getattr__=missing)


def find_spec(name):
    """For imports of IPython where it is not installed."""
    if name not in MODULES:
        return None
    from importlib.machinery import ModuleSpec

    return ModuleSpec(name, Loader(), is_package="__path__" in MODULES[name])


def start(kernel):
    global SHELL
    SHELL = InteractiveShell(kernel)
    return SHELL
