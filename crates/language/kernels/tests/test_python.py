"""The Python kernel."""

import ast
import os
import pathlib
import tempfile
import textwrap
import time
import unittest

from tests.contract import DescriptorContract, NonceContract
from tests.driver import KernelTest

CODE = {
    "assign": "x = 41",
    "own pid": "import os\nos.getpid()",
    "statement last": "1\ny = 2",
    "redefine": [
        ("r = 1", "def r(): return 2", "r()", "2"),
        ("def helper(): return 1\ndef main(): return helper()", "def helper(): return 2", "main()", "2"),
        ("class C: a = 1", "class C: a = 2", "C().a", "2"),
    ],
    "await": "import asyncio\nawaited = await asyncio.sleep(0.01, 7)\nawaited",
    "background task": textwrap.dedent(
        """
        import asyncio
        async def later():
            await asyncio.sleep(0.2)
            print('from the background')
        task = asyncio.ensure_future(later())
        await asyncio.sleep(0)
        """
    ),
    "raise": "def inner():\n    raise ValueError('bad é')\ninner()",
    "raised": ("ValueError", "bad é"),
    "syntax error": "y = 1\noops = (1 +\n",
    "exit 3": "import sys\nsys.exit(3)",
    "print both": "import sys\nprint('to stdout')\nprint('to stderr', file=sys.stderr)",
    "print then wait": "print('early')\n_ = input()",
    "subprocess": "import subprocess\nsubprocess.run(['echo', 'from a child'])",
    "much output": "for _ in range(300_000): print('0123456789')\nprint('END', end='')",
    "read a line": "input()",
    "read all": "import sys\nsys.stdin.read()",
    "display html": "display('<b>hi</b>', mime='text/html')",
    "display png": "display(b'\\x89PNG', mime='image/png')",
    "json value": "{'a': [1, 2, None]}",
    "50 MB": "'a' * 50_000_000",
    "150 MB": "'a' * 150_000_000",
    "length of len_": "len(len_)",
    "lone surrogate": "'\\ud800'",
    "display lone surrogate": "display('\\ud800', mime='text/html')",
    "write bytes": "import os\nos.write(1, bytes(%s))",
    "environment": "import os\n','.join(os.environ)",
    "interrupted": "KeyboardInterrupt",
    "tight loop": "print('started')\nwhile True: pass",
    "silent loop": "while True: pass",
    "await for ever": "import asyncio\nprint('started')\nawait asyncio.sleep(1000)",
    "loop after await": "import asyncio\nawait asyncio.sleep(0.01)\nprint('started')\nwhile True: pass",
    "display a lot": "for i in range(200): display('x' * 20_000)",
    "own SIGINT handler": "import signal\n_ = signal.signal(signal.SIGINT, lambda *_: None)",
    "recursion": "def f(): return f()\nf()",
    "recursion error": "RecursionError",
    "kill itself": "import os\nos.kill(os.getpid(), 9) if os.getppid() else None",
    "descriptors of a child": "import subprocess\nsubprocess.run('ls -l /proc/self/fd', shell=True, capture_output=True, text=True, close_fds=False).stdout",
    "wait for a child": "import subprocess\nsubprocess.run(['sh', '-c', 'echo started; exec sleep 1000'])",
}


class PythonTest(KernelTest):
    language = "python"
    code = CODE


class Socket(PythonTest, DescriptorContract):
    def test_underscore_is_the_last_value(self):
        self.kernel.run("40")
        self.assertEqual(self.value("_ + 2"), "42")

    def test_a_semicolon_hides_the_value(self):
        self.assertIsNone(self.kernel.run("1;").result)

    def test_a_cell_that_is_one_expression(self):
        self.assertEqual(self.value("await __import__('asyncio').sleep(0, 5)"), "5")
        self.assertEqual(self.kernel.run("print(1)").result, None)
        for code, name in (("1 +", "SyntaxError"), ("1 2", "SyntaxError"), ("1/0", "ZeroDivisionError")):
            with self.subTest(code):
                error = self.kernel.run(code).error
                self.assertEqual(error["name"], name)
                self.assertIn(code.strip(), "\n".join(error["traceback"]))

    def test_indentation_of_the_first_line_is_taken_from_all(self):
        self.assertEqual(self.value(" 1"), "1")
        self.assertEqual(self.value("\n\n    x = 1\n    if x:\n        x += 1\n\n    x\n    "), "2")
        self.assertEqual(self.value("\tdef f():\n\t\treturn 3\n\tf()"), "3")
        self.assertEqual(self.value("  text = '''a\n  b\n c'''\n  text"), repr("a\nb\n c"))
        self.assertEqual(self.kernel.run("  x = 1\n    y = 2").error["name"], "IndentationError")
        error = self.kernel.run("\n    x = 1\n    1 / 0").error
        self.assertIn("line 3", "\n".join(error["traceback"]))

    def test_exit_codes(self):
        for code, expected in (("None", 0), ("'message'", 1), ("7", 7)):
            error = self.kernel.run("import sys\nsys.exit(%s)" % code).error
            self.assertEqual(error["exit_code"], expected)

    def test_threads_print_after_the_cell(self):
        code = "import threading\nthreading.Timer(0.3, lambda: print('late thread')).start()"
        self.assertEqual(self.kernel.run(code).status, "ok")
        self.kernel.wait_for("stdout", "late thread")

    def test_threads_may_display(self):
        code = "import threading\nts = [threading.Thread(target=lambda: [display('y' * 9999) for _ in range(50)]) for _ in range(4)]\n"
        outcome = self.kernel.run(code + "for t in ts: t.start()\nfor t in ts: t.join()")
        self.assertEqual(len(outcome.displays), 200)

    def test_interrupt_of_a_sleep(self):
        self.interrupt("import time\nprint('started')\ntime.sleep(1000)", blocks=True)

    def test_interrupt_of_a_long_c_call_arrives_when_it_returns(self):
        self.interrupt("print('started')\nsum(range(10**8))\nwhile True: pass", timeout=120)

    def test_interrupt_of_input(self):
        self.interrupt("print('started')\ninput()", blocks=True)

    def test_a_caught_interrupt_is_the_programs_affair(self):
        self.kernel.start("import time\ntry:\n    print('started')\n    time.sleep(1000)\nexcept KeyboardInterrupt:\n    print('caught')\n5")
        self.kernel.wait_for("stdout", "started")
        time.sleep(1)
        self.kernel.interrupt()
        outcome = self.kernel.finish()
        self.assertEqual((outcome.status, outcome.value), ("ok", "5"))

    def test_interrupt_in_a_broken_exception(self):
        self.kernel.start("class E(Exception):\n    def __str__(self):\n        print('started')\n        while True: pass\nraise E")
        self.kernel.wait_for("stdout", "started")
        self.kernel.interrupt()
        self.assertEqual(self.kernel.finish().error["name"], "E")
        self.assertEqual(self.value("1 + 1"), "2")

    def test_asyncio_run_works_beside_await(self):
        self.assertEqual(self.value(CODE["await"]), "7")
        self.assertEqual(self.value("async def f(): return 5\nasyncio.run(f())"), "5")
        self.assertEqual(self.value("await f()"), "5")

    def test_async_for_and_with(self):
        code = "async def g():\n    yield 1\n    yield 2\nt = 0\nasync for v in g(): t += v\nt"
        self.assertEqual(self.value(code), "3")

    def test_a_cancelled_cell_runs_its_finally(self):
        self.kernel.start("import asyncio\ntry:\n    print('started')\n    await asyncio.sleep(1000)\nfinally:\n    cleaned = True")
        self.kernel.wait_for("stdout", "started")
        self.kernel.interrupt()
        self.assertEqual(self.kernel.finish().status, "interrupted")
        self.assertEqual(self.value("cleaned"), "True")

    def test_main_module(self):
        self.assertEqual(self.value("class P:\n    pass\nimport pickle\ntype(pickle.loads(pickle.dumps(P()))) is P"), "True")
        self.assertEqual(self.value("import __main__\n__main__.P is P and __name__ == '__main__'"), "True")
        code = "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass D:\n    a: int\nD(1)"
        self.assertEqual(self.value(code), "D(a=1)")
        self.assertEqual(self.value("def ann(a: Nowhere): pass\nann.__annotations__"), "{'a': 'Nowhere'}")

    def test_multiprocessing_by_fork(self):
        code = "import multiprocessing\ndef sq(n): return n * n\nwith multiprocessing.get_context('fork').Pool(2) as pool: r = pool.map(sq, [1, 2, 3])\nr"
        self.assertEqual(self.value(code), "[1, 4, 9]")
        self.assertEqual(self.kernel.streams["stderr"], b"")

    def test_a_forked_child_does_not_speak_for_the_kernel(self):
        code = "import os\npid = os.fork()\ndisplay('hi')\nif pid: os.waitpid(pid, 0)\nelse: print('child')\npid > 0"
        outcome = self.kernel.run(code)
        self.assertEqual((len(outcome.displays), outcome.value), (1, "True"))
        self.kernel.wait_for("stdout", "child")
        outcome = self.kernel.run("pid = os.fork()\nif not pid: raise SystemExit(9)\nos.WEXITSTATUS(os.waitpid(pid, 0)[1])")
        self.assertEqual(outcome.value, "9")

    def test_source_lines_of_earlier_cells(self):
        self.kernel.run("def outer():\n    return 1 / zero  # the line")
        self.kernel.run("silent = 1", silent=True)
        text = "\n".join(self.kernel.run("zero = 0\nouter()").error["traceback"])
        self.assertIn("return 1 / zero", text)
        self.assertIn('File "<cell 1>", line 2, in outer', text)
        self.assertIn("def outer", self.value("import inspect\ninspect.getsource(outer)"))

    def test_chained_errors(self):
        text = "\n".join(self.kernel.run("try:\n    1/0\nexcept Exception as e:\n    raise KeyError('k') from e").error["traceback"])
        self.assertIn("direct cause", text)

    def test_a_broken_repr_is_an_error_of_the_cell(self):
        outcome = self.kernel.run("class B:\n    def __repr__(self): raise ValueError('no repr')\nB()")
        self.assertEqual((outcome.status, outcome.error["value"]), ("error", "no repr"))

    def test_rich_methods(self):
        code = """
class R:
    def __repr__(self): return 'R!'
    def _repr_html_(self): return '<i>r</i>'
    def _repr_svg_(self): return '<svg/>'
    def _repr_png_(self): return b'png'
    def _repr_json_(self): return {'n': float('nan')}
    def _repr_markdown_(self): raise ValueError('broken')
    def _repr_latex_(self): return '$r$'
R()
"""
        data = self.kernel.run(code).result["data"]
        self.assertEqual(
            data,
            {
                "text/plain": "R!",
                "text/html": "<i>r</i>",
                "image/svg+xml": "<svg/>",
                "image/png": "cG5n",
                "text/latex": "$r$",
                "application/json": {"n": None},
            },
        )
        self.kernel.wait_for("stderr", "broken")

    def test_mime_bundle(self):
        code = "class M:\n    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/plain': 'p', 'x/y': 'z'}, {'k': 1}\nM()"
        result = self.kernel.run(code).result
        self.assertEqual((result["data"], result["metadata"]), ({"text/plain": "p", "x/y": "z"}, {"k": 1}))

    def test_an_object_that_answers_everything(self):
        self.assertEqual(self.value("from unittest.mock import MagicMock\nm = MagicMock(name='m')\ntype(m).__name__"), "'MagicMock'")
        self.assertEqual(self.kernel.run("m").status, "ok")
        self.assertEqual(self.kernel.run("class K:\n    def _repr_html_(self): return 'x'\nK").status, "ok")

    def test_raw_display(self):
        display = self.kernel.run("display({'text/html': '<p>'}, raw=True, metadata={'w': 1})").displays[0]
        self.assertEqual((display["data"]["text/html"], display["metadata"]), ("<p>", {"w": 1}))

    def test_nothing_heavy_is_imported(self):
        heavy = "{'asyncio', 'matplotlib', 'pandas', 'numpy', 'threading', 'subprocess'}"
        self.assertEqual(self.value("import sys\nsorted(%s & set(sys.modules))" % heavy), "[]")

    def test_warnings_and_unraisable_errors_do_not_end_it(self):
        self.kernel.run("class Z:\n    def __del__(self): 1/0\nz = Z()\ndel z")
        self.kernel.wait_for("stderr", "ZeroDivisionError")
        self.assertEqual(self.value("1 + 1"), "2")

    def test_packages_that_are_installed_meanwhile_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            kernel = self.new_kernel(env={"HOME": folder, "PYTHONPATH": folder + "/later"})
            for name in ("into_the_home", "into_the_layer"):
                self.assertEqual(kernel.run("import " + name).error["name"], "ModuleNotFoundError")
            self.assertEqual(kernel.run("import site\nsite.ENABLE_USER_SITE").value, "True")
            home = ast.literal_eval(kernel.run("site.getusersitepackages()").value)
            self.assertTrue(home.startswith(folder))
            for where, name in ((home, "into_the_home"), (folder + "/later", "into_the_layer")):
                os.makedirs(where)
                pathlib.Path(where, name + ".py").write_text("here = 1")
                self.assertEqual(kernel.run("import %s\n%s.here" % (name, name)).value, "1")
            first = "import sys\nsys.path.index(%r) < sys.path.index(site.getsitepackages()[-1])" % home
            self.assertEqual(kernel.run(first).value, "True")
            self.assertEqual(kernel.run("import not_even_now").error["name"], "ModuleNotFoundError")

    def test_closed_or_replaced_stdout(self):
        self.assertEqual(self.kernel.run("import sys, io\nkeep = sys.stdout\nsys.stdout = None").status, "ok")
        self.assertEqual(self.kernel.run("sys.stdout = keep\nprint('back')").status, "ok")
        self.kernel.wait_for("stdout", "back")

    def test_descriptors_are_moved_up(self):
        self.assertEqual(self.value("import os\nany(int(fd) in range(3, 10) and 'socket' in os.readlink('/proc/self/fd/' + fd) for fd in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + fd))"), "False")


class Lines(KernelTest):
    """The writes of which output consists: each is a chunk for a client that follows it."""

    language = "python"

    def setUp(self):
        self.kernel = self.new_kernel(env={"PYTHONUNBUFFERED": "1"})
        # A pipe in packet mode keeps the writes apart.
        self.kernel.run("import os, sys\npackets, end = os.pipe2(os.O_DIRECT)\nkept = os.dup(1)")

    def writes(self, code):
        self.kernel.run("_ = os.dup2(end, 1)")
        self.assertEqual(self.kernel.run(code).status, "ok")
        self.kernel.run("_ = os.dup2(kept, 1)\nos.set_blocking(packets, False)\nwrites = []")
        self.kernel.run("try:\n    while True: writes.append(os.read(packets, 65536))\nexcept BlockingIOError: pass")
        return ast.literal_eval(self.value("writes"))

    def test_a_line_is_one_write(self):
        self.assertEqual(self.writes("print('a', 1, 'b')\nprint('c')"), [b"a 1 b\n", b"c\n"])

    def test_pieces_of_a_line_are_one_write(self):
        code = "for i in range(3): print(i, end=' ')\nprint()\nsys.stdout.write('half');"
        self.assertEqual(self.writes(code), [b"0 1 2 \n", b"half"])

    def test_a_flush_and_a_carriage_return_send_half_a_line(self):
        code = "print('.', end='', flush=True)\nprint('5%', end='\\r')\nprint('end')"
        self.assertEqual(self.writes(code), [b".", b"5%\r", b"end\n"])

    def test_half_a_line_is_written_before_a_display(self):
        self.assertEqual(self.writes("print('half', end='')\ndisplay(1)\nprint(' whole')"), [b"half", b" whole\n"])

    def test_a_forked_child_does_not_print_half_a_line_again(self):
        code = "print('once', end='')\npid = os.fork()\nif not pid: raise SystemExit(0)\n_ = os.waitpid(pid, 0)"
        self.assertEqual(self.writes(code), [b"once"])


class Pipes(PythonTest, DescriptorContract):
    transport = "pipes"


class Nonce(PythonTest, NonceContract):
    transport = "nonce"


if __name__ == "__main__":
    unittest.main()
