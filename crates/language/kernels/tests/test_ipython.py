"""What the Python kernel takes from IPython: shell commands, magics, help and `IPython.display`."""

import base64
import os
import tempfile
import unittest

from tests import driver
from tests.driver import KERNELS, PYTHON, KernelTest, missing

PNG = b"\x89PNG\r\n\x1a\n"


class IPythonTest(KernelTest):
    language = "python"

    def setUp(self):
        super().setUp()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.kernel.run("import os\nos.chdir(%r)" % self.folder.name)

    def printed(self, code, stream="stdout"):
        """What an ordinary cell prints."""
        self.kernel.streams[stream].clear()
        outcome = self.kernel.run(code)
        self.assertEqual(outcome.status, "ok", outcome.messages)
        self.kernel.run("import sys\nprint('THE END', file=sys.%s)" % stream)
        return self.kernel.wait_for(stream, "THE END\n").replace("THE END\n", "")

    def failure(self, code):
        outcome = self.kernel.run(code)
        self.assertEqual(outcome.status, "error", outcome.messages)
        return outcome.error


class Notation(IPythonTest):
    def test_a_shell_command(self):
        self.assertEqual(self.printed("print('first', end=' ')\n!echo second"), "first second\n")
        self.assertEqual(self.printed("    !echo 'of an indented cell'"), "of an indented cell\n")
        self.assertEqual(self.printed("for i in range(2):\n    !echo {i} $i"), "0 0\n1 1\n")
        self.assertEqual(self.printed("!echo one \\\n  two\nprint('three')"), "one two\nthree\n")
        self.assertEqual(self.printed("!echo wrong >&2", "stderr"), "wrong\n")
        self.assertEqual(self.printed("!exit 3\nprint(_exit_code)"), "3\n")

    def test_names_in_a_command(self):
        self.kernel.run("x, name = 5, 'a b'\nos.environ['SHOWN'] = 'shown'")
        self.assertEqual(self.printed("!echo {x + 1} {x:03d} $x.txt \"$name\" $SHOWN"), "6 005 5.txt a b shown\n")
        self.assertEqual(self.printed("!echo ${SHOWN}"), "shown\n")
        self.assertEqual(self.printed("!echo a b | awk '{print $2}'"), "b\n")
        self.assertEqual(self.printed("def f(inner):\n    !echo {inner}\nf(7)"), "7\n")

    def test_the_output_of_a_command_as_a_value(self):
        self.assertEqual(self.value("found = !echo a; echo b\nfound, found.n, found.s"), "(['a', 'b'], 'a\\nb', 'a b')")
        self.assertEqual(self.value("!!echo c"), "['c']")
        self.assertEqual(self.value("here = %pwd\nhere == os.getcwd()"), "True")

    def test_what_is_python_stays_python(self):
        code = "text = '''\n%not\n!not\nnot?\n'''\nrest = (7\n% 4)\nmore = 9 \\\n% 5\n!true\ntext, rest, more"
        self.assertEqual(self.value(code), "('\\n%not\\n!not\\nnot?\\n', 3, 4)")
        self.assertEqual(self.value("x = 7\nx %= 4\nx"), "3")
        self.assertEqual(self.value("# isn't a \"quote\"\n!true\n'%d' % 5"), "'5'")

    def test_errors_of_python_are_those_of_python(self):
        for code in ("x = = 5 % 3", "a = 1; !ls", "print('what?'", "'%d' % 1 1"):
            with self.subTest(code):
                error = self.failure(code)
                self.assertEqual(error["name"], "SyntaxError")
                self.assertIn(code.split("\n")[0], "\n".join(error["traceback"]))

    def test_lines_keep_their_numbers(self):
        text = "\n".join(self.failure("!echo \\\n a\n\n1 / 0")["traceback"])
        self.assertIn('File "<cell 2>", line 4', text)
        text = "\n".join(self.failure("%%time\nx = 1\n1 / 0")["traceback"])
        self.assertIn('File "<cell 3>", line 3', text)
        self.assertNotIn("sandstorm", text)
        self.assertNotIn("python.py", text)

    def test_pip_without_its_mark(self):
        self.kernel.run("class pip_is: pass")
        self.assertIn("Usage", self.printed("pip help install"))
        self.assertEqual(self.failure("x = 1\npip help install")["name"], "SyntaxError")

    def test_an_await_beside_a_command(self):
        self.assertEqual(self.printed("import asyncio\nawait asyncio.sleep(0)\n!echo both"), "both\n")

    def test_an_interrupt_ends_a_command(self):
        self.kernel.start("!echo started; exec sleep 1000")
        self.kernel.wait_for("stdout", "started")
        self.kernel.interrupt()
        self.assertEqual(self.kernel.finish().status, "interrupted")
        self.assertEqual(self.value("1 + 1"), "2")

    def test_nothing_of_it_is_loaded_before_it_is_used(self):
        self.kernel.run("1 +")
        self.kernel.run("'%d' % 1")
        self.assertEqual(self.value("get_ipython.__closure__[0].cell_contents.ipython_module"), None)


class Magics(IPythonTest):
    def test_unknown_magics_are_named(self):
        error = self.failure("%nothere a")
        self.assertEqual(error["name"], "UsageError")
        self.assertIn("`%nothere` not found", error["value"])
        self.assertIn("`%%nothere` not found", self.failure("%%nothere\nx")["value"])
        self.assertIn("The cell magic `%%bash` exists", self.failure("%bash x")["value"])
        self.assertIn("%%bash", self.printed("%lsmagic"))

    def test_without_an_effect(self):
        self.assertEqual(self.printed("%matplotlib inline\n%load_ext autoreload\n%autoreload 2\n%config A.b = 'c'"), "")

    def test_scripts(self):
        self.assertEqual(self.printed("%%bash\nfor i in 1 2; do\n  echo $i {}\ndone"), "1 {}\n2 {}\n")
        self.assertEqual(self.printed("%%sh -s a\necho $1"), "a\n")
        self.assertEqual(self.printed("%%python\nprint('x' * 3)"), "xxx\n")
        self.assertEqual(self.printed("%%script bash -e\necho script"), "script\n")
        self.assertEqual(self.value("%%bash --out kept\necho kept\n").__class__, type(None))
        self.assertEqual(self.value("kept"), "'kept\\n'")
        self.assertEqual(self.failure("%%bash\nexit 3")["name"], "CalledProcessError")
        self.assertIn("not installed", self.failure("%%script nothere\nx")["value"])

    def test_time(self):
        outcome = self.kernel.run("%time 6 * 7")
        self.assertEqual(outcome.value, "42")
        self.kernel.wait_for("stdout", "Wall time: ")
        self.assertEqual(self.value("%%time\ny = 1\n!true\ny + 1"), "2")
        self.assertEqual(self.value("y"), "1")

    def test_timeit(self):
        self.assertIn("per loop (mean \xb1 std. dev. of 2 runs, 3 loops each)", self.printed("%timeit -n3 -r 2 sum(range(10))"))
        self.kernel.run("n = 10")
        self.assertIn("1 loop each", self.printed("%%timeit -n 1 -r 1 m = n\nk = m + 1"))
        self.assertEqual(self.value("t = %timeit -q -o -n 1 -r 2 1\nlen(t.timings)"), "2")

    def test_places_and_variables_of_the_environment(self):
        self.kernel.run("os.mkdir('inner')")
        self.assertTrue(self.printed("%cd inner").endswith("/inner\n"))
        self.assertEqual(self.value("%cd -q ..\nos.path.basename(os.getcwd())"), repr(os.path.basename(self.folder.name)))
        self.assertEqual(self.printed("%cd -"), os.path.realpath(self.folder.name) + "/inner\n")
        self.assertEqual(self.printed("%env A_NAME=a value"), "env: A_NAME=a value\n")
        self.assertEqual(self.value("%env A_NAME"), "'a value'")
        self.assertEqual(self.printed("!echo $A_NAME"), "a value\n")
        self.assertEqual(self.failure("%env NOT_HERE")["name"], "UsageError")

    def test_files(self):
        self.assertEqual(self.printed("%%writefile one.py\nimport sys\nw = sys.argv\nprint(__name__)\n"), "Writing one.py\n")
        self.assertEqual(self.printed("%%writefile -a one.py\nv = 2\n"), "Appending to one.py\n")
        self.assertEqual(self.printed("%ls"), "one.py\n")
        self.assertEqual(self.printed("%run one.py a 'b c'"), "__main__\n")
        self.assertEqual(self.value("w, v"), "(['one.py', 'a', 'b c'], 2)")
        self.assertEqual(self.value("import sys\nsys.argv, sys.modules['__main__'].__dict__ is globals()"), "([''], True)")
        self.assertIn("no file nothere.py", self.failure("%run nothere.py")["value"])
        self.kernel.run("%%writefile bad.py\n\n1 / 0")
        self.assertIn('File "bad.py", line 2', "\n".join(self.failure("%run bad")["traceback"]))

    def test_who(self):
        self.kernel.run("del os\nnumber = 5\n_hidden = 1")
        self.assertEqual(self.printed("%who"), "number\n")
        self.assertEqual(self.value("%who_ls int"), "['number']")
        self.assertIn("number     int      5", self.printed("%whos"))

    def test_capture(self):
        code = "%%capture taken\nprint('text')\n!echo shell\ndisplay(1)\nimport sys\nprint('bad', file=sys.stderr)\n2"
        outcome = self.kernel.run(code)
        self.assertEqual((outcome.status, outcome.displays, outcome.result), ("ok", [], None))
        self.assertEqual(self.value("taken.stdout, taken.stderr, len(taken.outputs)"), "('text\\nshell\\n', 'bad\\n', 2)")
        self.assertEqual(len(self.kernel.run("taken.show()").displays), 2)
        self.assertEqual(len(self.kernel.run("display(1)").displays), 1)
        self.assertEqual(self.failure("%%capture\n1 / 0")["name"], "ZeroDivisionError")
        self.assertEqual(self.printed("print('seen')"), "seen\n")

    def test_types_of_cells(self):
        self.assertEqual(self.kernel.run("%%html\n<b>x</b>").displays[0]["data"]["text/html"], "<b>x</b>")

    def test_own_magics(self):
        self.kernel.run("from IPython.core.magic import register_line_magic, register_cell_magic")
        self.kernel.run("@register_line_magic\ndef hello(line):\n    return 'hello ' + line")
        self.kernel.run("@register_cell_magic('twice')\ndef f(line, cell):\n    return cell * 2")
        self.assertEqual(self.value("%hello you"), "'hello you'")
        self.assertEqual(self.value("%%twice\nab"), "'abab'")

    def test_packages_that_a_command_installs_are_found(self):
        self.kernel.run("import site, sys\nsite.USER_SITE = os.path.abspath('site')\nsite.ENABLE_USER_SITE = True")
        self.kernel.run("!mkdir site; echo 'here = 7' > site/installed_later.py")
        self.assertEqual(self.value("import installed_later\ninstalled_later.here"), "7")

    def test_pip(self):
        if self.kernel.run("import pip").status != "ok":
            missing("pip is not installed")
        self.assertIn("pip ", self.printed("%pip --version"))


class Help(IPythonTest):
    def test_of_a_function(self):
        self.kernel.run("def f(a, b=1):\n    'Does f.'\n    return a")
        text = self.printed("f?")
        self.assertIn("f(a, b=1)", text)
        self.assertIn("Does f.", text)
        self.assertNotIn("return a", text)
        self.assertIn("return a", self.printed("f??"))
        self.assertEqual(self.printed("?f"), text)

    def test_of_other_things(self):
        self.assertIn("str.splitlines", self.printed("str.split*?"))
        self.assertEqual(self.printed("nothere?"), "Object `nothere` not found.\n")
        self.assertIn("timeit", self.printed("%timeit?"))
        self.assertIn("int", self.printed("x = 5\nx?"))


class Display(IPythonTest):
    def shown(self, code):
        outcome = self.kernel.run("from IPython.display import *\n" + code)
        self.assertEqual(outcome.status, "ok", outcome.messages)
        return [shown["data"] for shown in outcome.displays]

    def test_objects(self):
        (data,) = self.shown("display(HTML('<b>x</b>'))")
        self.assertEqual(data, {"text/plain": "<IPython.core.display.HTML object>", "text/html": "<b>x</b>"})
        code = "display(Markdown('*m*'), JSON({'a': 1}), SVG('<svg/>'), Latex('$x$'), Javascript('1'), Math('y'))"
        types = ["text/markdown", "application/json", "image/svg+xml", "text/latex", "application/javascript", "text/latex"]
        values = ["*m*", {"a": 1}, "<svg/>", "$x$", "1", "$\\displaystyle y$"]
        self.assertEqual([data[kind] for data, kind in zip(self.shown(code), types)], values)

    def test_images(self):
        self.kernel.run("data = %r\nopen('a.png', 'wb').write(data)" % PNG)
        outcome = self.kernel.run("from IPython.display import Image\nImage('a.png', width=30)")
        self.assertEqual(base64.b64decode(outcome.result["data"]["image/png"]), PNG)
        self.assertEqual(outcome.result["metadata"], {"image/png": {"width": 30}})
        (data,) = self.shown("display(Image(b'\\xff\\xd8\\xff'))")
        self.assertIn("image/jpeg", data)
        (data,) = self.shown("display(Image(url='http://x/?a', height=4))")
        self.assertEqual(data["text/html"], '<img src="http://x/?a" height="4"/>')

    def test_handles(self):
        shown = self.shown("handle = display(1, display_id=True)\nhandle.update(2)\nupdate_display(3, display_id='x')\nclear_output(wait=True)")
        self.assertEqual([data["text/plain"] for data in shown], ["1", "2", "3"])

    def test_modules(self):
        self.assertEqual(self.value("import IPython\nIPython.get_ipython() is get_ipython()"), "True")
        self.assertEqual(self.value("IPython.display.HTML('x')._repr_html_()"), "'x'")
        self.assertEqual(self.value("from IPython.core.display import HTML\nfrom IPython.display import display\nHTML is IPython.display.HTML"), "True")

    def test_what_stands_in_is_small_and_says_so(self):
        if self.value("import IPython\nhasattr(IPython, 'embed')") == "True":
            self.skipTest("IPython is installed")
        self.assertIn("IPython is not installed", self.failure("IPython.embed")["value"])
        self.assertEqual(self.failure("import IPython.nothere")["name"], "ModuleNotFoundError")
        self.assertEqual(self.failure("from IPython import embed")["name"], "ImportError")

    def test_an_ipython_that_is_installed_displays_by_us(self):
        self.kernel.run("os.makedirs('IPython/core')\nfor name in ('', 'core/'): open('IPython/%s__init__.py' % name, 'w').close()")
        self.kernel.run("open('IPython/core/display_functions.py', 'w').write('own = 1\\ndef display(*_): print(1)\\n')")
        self.kernel.run("open('IPython/display.py', 'w').write('from IPython.core.display_functions import *\\n')")
        outcome = self.kernel.run("import sys\nsys.path.insert(0, os.getcwd())\nfrom IPython.display import display, own\ndisplay(5)")
        self.assertEqual((outcome.status, len(outcome.displays)), ("ok", 1))


class AsDelivered(IPythonTest):
    """The one file that contexts get: both texts in one, as `data.rs` joins them."""

    def new_kernel(self, **options):
        text = (KERNELS / "ipython.py").read_text()
        # Of a raw text in three quotes.
        self.assertNotIn("'" * 3, text)
        self.assertTrue(text.isascii() and text.endswith("\n"))
        file = tempfile.NamedTemporaryFile("w", suffix=".py")
        self.addCleanup(file.close)
        file.write("IPYTHON = r'''" + text + "'''\n" + (KERNELS / "python.py").read_text())
        file.flush()
        driver.COMMANDS["as delivered"] = [PYTHON, file.name]
        kernel = driver.Kernel("as delivered", self.transport, **options)
        self.addCleanup(kernel.close)
        return kernel

    def test_a_cell_of_each_kind(self):
        self.assertEqual(self.value("1 + 1"), "2")
        self.assertEqual(self.printed("!echo shell"), "shell\n")
        self.assertEqual(self.printed("%%bash\nprintf '%s\\n' a"), "a\n")
        self.assertEqual(len(self.kernel.run("from IPython.display import HTML, display\ndisplay(HTML('x'))").displays), 1)


if __name__ == "__main__":
    unittest.main()
