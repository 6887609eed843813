"""Programs that must behave alike under `python3 main.py` and in a guest.

Each is a source, or a dictionary: `main`, other `files`, `argv` (of which the first is the script), `stdin`, `env`, `cwd`
within the folder, `close_stdout`, `cold` when the guest has to leave it to the real interpreter, and `errors: False` when
what is on stderr is not compared (some versions report an error there that they forgot earlier).
"""

# Waits until the other end of standard output is closed: to write before that would not fail.
NOBODY_READS = "import select\npoll = select.poll()\npoll.register(1, 0)\npoll.poll()\n"

PROGRAMS = {
    # Streams.
    "hello": "print('hello')\n",
    "empty": "",
    "no newline at the end": "print('x', end='')",
    "stderr": "import sys\nprint('out')\nprint('err', file=sys.stderr)\n",
    "stdin lines": {"main": "import sys\nfor line in sys.stdin: print(repr(line))\n", "stdin": "a\nb\r\nç\n"},
    "input": {"main": "print(input('? '), input())\n", "stdin": "one\ntwo\n"},
    "input at the end": "input()\n",
    "stdin bytes": {"main": "import sys\nprint(len(sys.stdin.buffer.read()))\n", "stdin": "x" * 300000},
    "much output": "for n in range(20000): print('line', n)\n",
    "stream objects": """
import sys
for stream in (sys.stdin, sys.stdout, sys.stderr):
    print(stream, stream.encoding, stream.errors, stream.newlines, stream.line_buffering, stream.write_through, stream.mode)
    print(stream.name, stream.buffer, stream.isatty(), stream.seekable(), stream.readable(), stream.writable(), stream.fileno())
print(sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__)
print(sys.stdin.buffer.raw)
""",
    "surrogates": "import sys\nprint('\\udcff'.encode('utf-8', 'surrogateescape'))\nsys.stdout.write('\\udcff\\n')\n",
    "unprintable on stderr": "import sys\nsys.stderr.write('\\ud800\\n')\nprint('\\ud800')\n",
    "redirected stdout": "import sys, io\nsys.stdout = io.StringIO()\nprint('lost')\nclass D:\n    def __del__(self): print('kept')\nd = D()\n",
    "closed stdout": "import sys\nsys.stdout.close()\n",
    "no stdout": "import sys\nsys.stdout = None\nprint('x')\n",
    "descriptor 1 closed": "import os\nos.close(1)\nprint('x')\n",
    "buffered and broken": {
        "main": "import sys, io\n" + NOBODY_READS + "sys.stdout = io.TextIOWrapper(open(1, 'wb', closefd=False))\nprint('x')\n",
        "close_stdout": True,
    },
    "broken pipe": {"main": NOBODY_READS + "print('x')\n", "close_stdout": True},
    "flush fails": {
        "main": """
import sys, io
class Broken(io.TextIOWrapper):
    def flush(self): raise BrokenPipeError(32, 'Broken pipe')
    def __repr__(self): return '<broken>'
sys.stdout = Broken(io.BytesIO())
""",
    },
    "flush of stderr fails": """
import sys
class Broken:
    def __init__(self, inner): self.inner = inner
    def write(self, text): return self.inner.write(text)
    def flush(self): raise OSError('no')
sys.stderr = Broken(sys.stderr)
print('x', file=sys.stderr)
""",
    # Ends.
    "exit 0": "import sys\nsys.exit()\n",
    "exit none": "raise SystemExit(None)\n",
    "exit 3": "import sys\nsys.exit(3)\n",
    "exit true": "import sys\nsys.exit(True)\n",
    "exit -1": "import sys\nsys.exit(-1)\n",
    "exit 256": "import sys\nsys.exit(256)\n",
    "exit huge": {"main": "import sys\nsys.exit(1 << 80)\n", "errors": False},
    "exit large": "import sys\nsys.exit((1 << 40) + 7)\n",
    "exit text": "import sys\nsys.exit('so long')\n",
    "exit tuple": "import sys\nsys.exit((1, 'x'))\n",
    "exit float": "import sys\nsys.exit(2.5)\n",
    "exit object that fails": {"main": "import sys\nclass X:\n    def __str__(self): raise ValueError\nsys.exit(X())\n", "errors": False},
    "builtin exit": "exit(4)\n",
    "os._exit": "import os\nprint('x')\nos._exit(9)\n",
    "abort": "import os\nprint('x', flush=True)\nos.abort()\n",
    "raise of a signal": "import signal\nsignal.raise_signal(signal.SIGTERM)\n",
    "kill of oneself": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "interrupt": "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n",
    "interrupt raised": "def f():\n    raise KeyboardInterrupt\nf()\n",
    "interrupt's child class": "class Mine(KeyboardInterrupt): pass\nraise Mine\n",
    "interrupt caught": "import os, signal\ntry:\n    os.kill(os.getpid(), 2)\n    import time; time.sleep(1)\nexcept KeyboardInterrupt:\n    print('caught')\n",
    "exit in a function": "import sys\ndef f():\n    try:\n        sys.exit(5)\n    finally:\n        print('finally')\nf()\n",
    # Tracebacks.
    "zero division": "def f(x):\n    return 1 / x\n\nf(0)\n",
    "chained": "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('b') from e\n",
    "during handling": "try:\n    {}['a']\nexcept KeyError:\n    int('x')\n",
    "context hidden": "try:\n    {}['a']\nexcept KeyError:\n    raise TypeError from None\n",
    "recursion": "def f(): return f()\nf()\n",
    "group": """
import sys
if sys.version_info >= (3, 11):
    def f(n): raise OSError(n)
    errors = []
    for n in (1, 2):
        try: f(n)
        except OSError as e: errors.append(e)
    raise ExceptionGroup('two', errors)
""",
    "note": "e = ValueError('x')\nif hasattr(e, 'add_note'): e.add_note('a note')\nraise e\n",
    "exception without text": "class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd\n",
    "exception in a module": {"main": "import other\nother.f()\n", "files": {"other.py": "def f():\n    raise LookupError('there')\n"}},
    "import error": "import not_there\n",
    "from import error": "from os import not_there\n",
    "attribute suggestion": "import sys\nsys.argvv\n",
    "name suggestion": "value = 1\nprint(valeu)\n",
    "assertion": "assert 1 == 2, 'not equal'\n",
    "unicode error": "b'\\xff'.decode()\n",
    "traceback module": "import traceback\ntry:\n    1/0\nexcept ZeroDivisionError:\n    traceback.print_exc()\n",
    "print_stack": "import traceback\ndef f(): traceback.print_stack()\nf()\n",
    "inspect.stack": "import inspect\nprint([(frame.filename, frame.function) for frame in inspect.stack()])\nimport sys\nprint(sys._getframe().f_back)\n",
    "warning with a level": "import warnings\nwarnings.warn('mine', stacklevel=2)\nwarnings.warn('mine too')\n",
    "faulthandler": "import faulthandler\nfaulthandler.dump_traceback()\n",
    "user's excepthook": "import sys\ndef hook(kind, value, trace):\n    print('hook', kind, value, trace.tb_lineno, trace.tb_frame.f_code.co_name, sys.exc_info())\nsys.excepthook = hook\n1/0\n",
    "excepthook that fails": "import sys\ndef hook(*_): int('x')\nsys.excepthook = hook\n1/0\n",
    "excepthook that exits": "import sys\ndef hook(*_): sys.exit(6)\nsys.excepthook = hook\n1/0\n",
    "excepthook gone": "import sys\ndel sys.excepthook\n1/0\n",
    "error with stderr gone": "import sys\nsys.stderr = None\n1/0\n",
    "tracebacklimit": "import sys\nsys.tracebacklimit = 0\n1/0\n",
    # Source.
    "syntax error": {"main": "print(1)\nx = = 2\n", "cold": True},
    "indentation error": {"main": "if 1:\nprint(1)\n", "cold": True},
    "unclosed": {"main": "x = (1,\n", "cold": True},
    "bad encoding": {"main": b"# \xe9\nprint(1)\n", "cold": True},
    "null byte": {"main": b"print(1)\0\n", "cold": True},
    "latin-1": b"# coding: latin-1\nprint('\xe9')\n",
    "byte order mark": b"\xef\xbb\xbfprint('bom')\n",
    "carriage returns": b"x = 1\r\nprint(x)\r\n",
    "syntax warning": "x = 1\nprint(x is 1)\n",
    "future": "from __future__ import annotations\ndef f(x: not_there): pass\nprint(f.__annotations__)\n",
    "annotations": "x: int = 1\nprint(__annotations__)\n",
    "docstring": "'''About this.'''\nprint(__doc__)\n",
    "debug": "print(__debug__)\n",
    # What a program sees of itself.
    "main's names": "print([(name, value) for name, value in globals().items() if name != '__loader__'])\nprint(type(__loader__), __loader__.name, __loader__.path)\n",
    "argv": {"main": "import sys\nprint(sys.argv, sys.orig_argv)\n", "argv": ["main.py", "a", "", "ü", "-x"]},
    "paths": "import sys\nprint(sys.path)\nprint(__file__, __name__, sys.modules['__main__'].__dict__ is globals())\n",
    "path with a dot": {"main": "import sys\nprint(sys.argv, __file__, sys.path[0])\n1/0\n", "argv": ["./main.py"]},
    "path with dots": {
        "main": "import sys\nprint(sys.argv, __file__, sys.path[0])\n1/0\n",
        "argv": ["../main.py"],
        "cwd": "inner",
        "files": {"inner/keep": ""},
    },
    "absolute path": {"main": "import sys\nprint(sys.argv, __file__, sys.path[0])\n", "argv": ["{folder}/main.py"]},
    "link to the script": {
        "main": "import sys\nprint(sys.argv, __file__, sys.path[0])\nimport beside\n",
        "argv": ["inner/link.py"],
        "files": {"beside.py": "print('beside')\n"},
        "links": {"inner/link.py": "../main.py"},
    },
    "missing script": {"argv": ["nothing.py"], "cold": True},
    "script is a folder": {"argv": ["inner"], "files": {"inner/__main__.py": "import sys\nprint(sys.argv, __package__, __file__)\n1/0\n"}, "cold": True},
    "folder without main": {"argv": ["inner"], "files": {"inner/x": ""}, "cold": True},
    "script is an archive": {
        "main": "import zipfile, subprocess, sys\nwith zipfile.ZipFile('a.zip', 'w') as z: z.writestr('__main__.py', 'print(__file__)')\nprint(subprocess.run([sys.executable, 'a.zip'], capture_output=True))\n",
    },
    "pythonpath": {
        "main": "import sys\nprint(sys.path)\nimport inside\nprint(inside.__file__)\n",
        "files": {"lib/inside.py": ""},
        "env": {"PYTHONPATH": "{folder}/lib:/not/there::relative:{folder}/lib"},
    },
    "pythonpath with sitecustomize": {
        "main": "import sys\nprint('main')\n",
        "files": {"lib/sitecustomize.py": "print('customized')\n", "lib/usercustomize.py": "print('by the user')\n"},
        "env": {"PYTHONPATH": "{folder}/lib"},
    },
    "user site": {
        "main": "import sys, site, os\nprint(sys.path, site.USER_SITE, site.USER_BASE, site.ENABLE_USER_SITE)\nimport mine\nprint(mine.__file__, os.environ.get('FROM_PTH'))\n",
        "files": {
            "home/.local/lib/python{version}/site-packages/mine.py": "",
            "home/.local/lib/python{version}/site-packages/extra.pth": "import os; os.environ['FROM_PTH'] = 'yes'\n{folder}/more\n",
            "more/keep": "",
        },
        "env": {"HOME": "{folder}/home"},
    },
    "user site that may have another one of what is imported": {
        "main": "import statistics\nprint(statistics.__file__)\n",
        "files": {"home/.local/lib/python{version}/site-packages/statistics.py": ""},
        "env": {"HOME": "{folder}/home"},
        "cold": True,
    },
    "module that hides one of the library": {
        "main": "import random\nprint(random.mine)\nimport tempfile\n",
        "files": {"random.py": "mine = True\n"},
        "cold": True,
    },
    "package that hides one": {
        "main": "import statistics\nprint(statistics.__file__)\n",
        "files": {"lib/statistics/__init__.py": ""},
        "env": {"PYTHONPATH": "{folder}/lib"},
        "cold": True,
    },
    "descriptors of the real interpreter": {
        "main": "import os\nprint(sorted(map(int, os.listdir('/proc/self/fd'))))\n",
        "files": {"json.py": ""},
        "cold": True,
    },
    "script named as a module": {"main": "", "files": {"json.py": "import json\nprint(json.__file__)\n"}, "argv": ["json.py"], "cold": True},
    "environment": {
        "main": """
import os, posix
print(dict(os.environ), list(os.environb.items()), posix.environ)
os.environ['NEW'] = 'x'
os.system('echo $NEW $GIVEN; env | sort')
del os.environ['GIVEN']
os.system('echo "[$GIVEN]"')
print(os.getenv('NEW'), os.path.expanduser('~'), os.path.expandvars('$NEW'))
""",
        "env": {"GIVEN": "ü=1", "EMPTY": ""},
    },
    "usual environment": """
import os, posix
print(dict(os.environ), list(os.environb.items()), posix.environ)
os.system('env | sort')
os.environ['NEW'] = 'x'
del os.environ['LANG']
os.system('echo "$NEW [$LANG]"; env | sort')
""",
    "time zone": {"main": "import time\nprint(time.tzname, time.localtime(0).tm_hour)\n", "env": {"TZ": "Asia/Tokyo"}},
    "flags": "import sys\nprint(sys.flags, sys.warnoptions, sys.dont_write_bytecode, sys.executable, sys.prefix, sys.version, sys.getrecursionlimit(), sys.getswitchinterval())\nprint(sys.implementation.name, sys.getfilesystemencoding(), sys.getdefaultencoding(), sys._xoptions)\n",
    "hooks": "import sys\nprint(sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, sys.unraisablehook is sys.__unraisablehook__, sys.gettrace(), sys.getprofile(), sys.exc_info(), hasattr(sys, 'last_value'), hasattr(sys, 'ps1'))\nprint(sys.meta_path, sys.path_hooks)\n",
    "signals": "import signal\nfor n in sorted(signal.valid_signals()):\n    print(n, signal.getsignal(n))\nprint(signal.pthread_sigmask(0, []))\n",
    # 32 and 33 are libc's own, and whoever started the tests may have them ignored.
    "signals of children": "import os, subprocess\ndef show(text):\n    for line in text.splitlines():\n        name, mask = line.split()\n        print(name, int(mask, 16) & ~(3 << 31))\nshow(subprocess.run(['grep', 'Sig[IBC]', '/proc/self/status'], capture_output=True, text=True).stdout)\nos.system('grep Sig[IBC] /proc/self/status > signals')\nshow(open('signals').read())\n",
    "collector": "import gc\nprint(gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.callbacks, gc.garbage)\n",
    "umask": "import os\nm = os.umask(0)\nprint(oct(m))\nopen('f', 'w').close()\nprint(oct(os.stat('f').st_mode))\n",
    "descriptors": "import os\nprint(sorted(os.listdir('/proc/self/fd')))\n",
    "descriptors of children": "import os\nos.system('ls /proc/self/fd')\n",
    "thread": "import threading\nprint(threading.main_thread().name, threading.current_thread() is threading.main_thread(), threading.active_count())\nprint(threading.get_native_id() == __import__('os').getpid() == threading.main_thread().native_id)\n",
    # What a program leaves behind.
    "atexit": "import atexit\natexit.register(print, 'first')\n@atexit.register\ndef second(): print('second')\nprint('main')\n",
    "atexit after an error": "import atexit\natexit.register(print, 'bye')\n1/0\n",
    "atexit that fails": "import atexit\ndef f(): 1/0\natexit.register(f)\natexit.register(print, 'x')\n",
    "atexit that exits": "import atexit, sys\natexit.register(sys.exit, 7)\n",
    "threads are waited for": "import threading, time\ndef f():\n    time.sleep(0.2)\n    print('thread done')\nthreading.Thread(target=f).start()\nprint('main done')\n",
    "thread with an error": "import threading\nt = threading.Thread(target=lambda: 1/0, name='t')\nt.start()\nt.join()\n",
    "daemon thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(100,), daemon=True).start()\nprint('x')\n",
    "thread pool": "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(4)\nprint(list(pool.map(abs, range(-5, 5))))\npool.submit(print, 'left')\n",
    "finalizer": "class D:\n    def __del__(self): print('gone')\nd = D()\nprint('end')\n",
    "finalizers in order": "class D:\n    def __init__(self, n): self.n = n\n    def __del__(self): print('gone', self.n)\na = D(1)\nb = D(2)\n_c = D(3)\n",
    "finalizers with a function": "class D:\n    def __init__(self, n): self.n = n\n    def __del__(self): print('gone', self.n)\ndef f(): return a\na = D(1)\n_c = D(3)\n",
    "finalizer in a circle": "class D:\n    def __del__(self): print('gone')\nd = D()\nd.me = d\n",
    "finalizer in an old circle": "import gc\nclass D:\n    def __del__(self): print('gone')\nd = D()\nd.me = d\ngc.collect()\ndel d\nprint('end')\n",
    "finalizer in a circle before many others": "class D:\n    def __del__(self): print('gone')\nd = D()\nd.me = d\nkept = [[] for _ in range(100_000)]\ndel d\nprint('end')\n",
    "finalizer in a circle that nobody collects": "import gc\ngc.disable()\nclass D:\n    def __del__(self): print('gone')\nd = D()\nd.me = d\nkept = [[] for _ in range(2000)]\ndel d\nprint('end')\n",
    "finalizer in a circle that was thawed": "import gc\nclass D:\n    def __del__(self): print('gone')\nd = D()\nd.me = d\ngc.freeze()\ngc.unfreeze()\ndel d\nprint('end')\n",
    "finalizer in a frozen circle": "import gc\nclass D:\n    def __del__(self): print('gone')\nd = D()\nd.me = d\ngc.freeze()\ndel d\nprint('end')\n",
    "finalizer in a module": {"main": "import other\nprint('end')\n", "files": {"other.py": "class D:\n    def __del__(self): print('gone')\nd = D()\n"}},
    "finalizer that fails": "class D:\n    def __del__(self): 1/0\n    def __repr__(self): return 'D'\nd = D()\ndel d\nprint('on')\n",
    "finalizer after an error": "class D:\n    def __del__(self): print('gone')\ndef f():\n    d = D()\n    1/0\nf()\n",
    "weakref.finalize": "import weakref\nclass D: pass\nd = D()\nweakref.finalize(d, print, 'finalized')\n",
    "generator left open": "def g():\n    try:\n        yield 1\n    finally:\n        print('closed')\nx = g()\nnext(x)\n",
    "file left open": "import os\nf = open('out', 'w')\nf.write('data')\nos.register_at_fork(before=lambda: None)\nclass D:\n    def __del__(self): print(os.stat('out').st_size)\n",
    "unraisable": "import sys\nsys.unraisablehook = lambda u: print('unraisable', u.exc_type)\nclass D:\n    def __del__(self): 1/0\nD()\n",
    "coroutine never awaited": "async def f(): pass\nf()\n",
    "resource warning": {"main": "import warnings\nwarnings.simplefilter('always')\ndef f(): open('main.py')\nf()\n"},
    # Processes.
    "fork": "import os, sys\npid = os.fork()\nif pid == 0:\n    print('child', flush=True)\n    sys.exit(3)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n",
    "fork with an error": "import os\npid = os.fork()\nif pid == 0:\n    1/0\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n",
    "fork hooks": """
import os, random, threading
seen = []
os.register_at_fork(before=lambda: seen.append('before'), after_in_parent=lambda: seen.append('parent'))
os.register_at_fork(after_in_child=lambda: seen.append('child'))
reading, writing = os.pipe()
pid = os.fork()
if pid == 0:
    os.write(writing, repr((seen, random.getrandbits(64), threading.active_count())).encode())
    os._exit(0)
os.waitpid(pid, 0)
of_child = eval(os.read(reading, 999))
print(seen, of_child[0], of_child[1] != random.getrandbits(64), of_child[2])
""",
    "subprocess": "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'import sys; print(sys.path, sys.flags, sys.stdin.read())'], input='in', capture_output=True, text=True))\nprint(subprocess.run('echo $0; exit 4', shell=True))\n",
    "subprocess that breaks": "import subprocess\nprint(subprocess.run('yes | head -1', shell=True, capture_output=True))\nsubprocess.run(['not-there'])\n",
    "multiprocessing fork": "import multiprocessing as m\ndef f(x): return x * x\nif __name__ == '__main__':\n    with m.get_context('fork').Pool(2) as p: print(p.map(f, range(5)))\n",
    "multiprocessing spawn": "import multiprocessing as m, sys\ndef f(x): return x * x, __name__\nif __name__ == '__main__':\n    with m.get_context('spawn').Pool(1) as p: print(p.map(f, range(3)))\n    print(m.process.ORIGINAL_DIR == __import__('os').getcwd())\n",
    "exec": "import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'import os,signal; print(sorted(os.listdir(\"/proc/self/fd\")), signal.getsignal(13))'])\n",
    "asyncio": "import asyncio\nasync def f():\n    await asyncio.sleep(0.01)\n    p = await asyncio.create_subprocess_exec('echo', 'hi', stdout=-1)\n    print(await p.communicate())\nasyncio.run(f())\n",
    # Libraries that look at `__main__` or keep state.
    "pickle": "import pickle\nclass P:\n    def __init__(self, x): self.x = x\nprint(pickle.loads(pickle.dumps(P(3))).x, pickle.dumps(P))\n",
    "dataclass": "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n    y: 'list[int]' = None\nprint(P(1), P.__module__)\nimport typing\nprint(typing.get_type_hints(P))\n",
    "enum and namedtuple": "import enum, collections\nclass C(enum.Enum):\n    A = 1\nprint(repr(C.A), C.__module__, collections.namedtuple('N', 'a')(1), collections.namedtuple('N', 'a').__module__)\n",
    "logging at the end": "import logging, logging.handlers, sys\nt = logging.StreamHandler(sys.stdout)\nm = logging.handlers.MemoryHandler(9, target=t)\nlogging.getLogger().addHandler(m)\nlogging.warning('kept until the end')\nprint('first')\n",
    "logging of last resort": "import atexit, logging\nclass Last(logging.StreamHandler):\n    def close(self):\n        print('closed')\nlogging.lastResort = Last()\natexit.register(print, 'before')\nlogging.warning('w')\n",
    "logging": "import logging\nlogging.basicConfig(format='%(levelname)s %(name)s %(module)s %(funcName)s %(message)s')\nlogging.warning('w')\nr = logging.makeLogRecord({})\nprint(r.relativeCreated < 5000, logging.getLogger().handlers)\n",
    "tempfile": "import tempfile, os\nprint(tempfile.gettempdir())\nwith tempfile.TemporaryDirectory() as d: print(os.path.dirname(d))\n",
    "unittest": "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(1, 1)\nunittest.main(argv=['x'], testRunner=unittest.TextTestRunner(stream=open('/dev/null', 'w')))\n",
    "doctest": "'''\n>>> 1 + 1\n3\n'''\nimport doctest\ndoctest.testmod()\n",
    "runpy": {"main": "import runpy\nrunpy.run_path('other.py', run_name='__main__')\n", "files": {"other.py": "print(__name__, __file__)\n1/0\n"}},
    "import of main": "import __main__, sys\nx = 5\nprint(__main__.x, __main__ is sys.modules['__main__'], __main__)\n",
    "threads and signals": "import signal, os, time\nsignal.signal(signal.SIGALRM, lambda n, f: print('alarm', f.f_code.co_filename))\nsignal.setitimer(signal.ITIMER_REAL, 0.05)\ntime.sleep(0.2)\n",
    "help of site": "print(exit, quit, copyright is not None, type(help))\n",
    "audit": "import sys\nsys.addaudithook(lambda e, a: print(e) if e == 'sys.excepthook' else None)\n1/0\n",
    "c stdio": "import ctypes\nctypes.CDLL(None).puts(b'from libc')\n",
    "locale": "import locale\nprint(locale.getpreferredencoding(), locale.setlocale(locale.LC_CTYPE), locale.setlocale(locale.LC_NUMERIC))\n",
    "importlib": {"main": "import importlib\nm = importlib.import_module('pack.sub')\nprint(m.__package__, m.__spec__.origin == m.__file__)\n", "files": {"pack/__init__.py": "", "pack/sub.py": ""}},
    "import of a module written now": "open('fresh.py', 'w').write('x = 1')\nimport fresh\nprint(fresh.x, __import__('os').path.exists('__pycache__'))\n",
    "many modules": "import sqlite3, email.message, http.client, xml.etree.ElementTree, zipfile, ssl, curses, asyncio, ctypes\nprint('ok')\n",
    "big recursion": "import sys\nsys.setrecursionlimit(5000)\ndef f(n): return n and 1 + f(n - 1)\nprint(f(4000))\n",
    "stack overflow": "import resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\nimport ctypes\nctypes.string_at(0)\n",
}
