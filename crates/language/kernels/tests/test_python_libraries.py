"""The Python kernel with numpy, pandas and matplotlib. A library that the tested interpreter lacks is a skip, or a failure
when SANDSTORM_REQUIRE_ALL=1."""

import base64
import unittest

from tests.driver import KernelTest, missing

PNG = b"\x89PNG\r\n\x1a\n"


class LibraryTest(KernelTest):
    language = "python"
    library = None

    def setUp(self):
        super().setUp()
        if self.kernel.run("import " + self.library).status != "ok":
            missing("%s is not installed" % self.library)

    def assert_png(self, message):
        self.assertTrue(base64.b64decode(message["data"]["image/png"]).startswith(PNG))


class Numpy(LibraryTest):
    library = "numpy"

    def test_array(self):
        self.assertEqual(self.value("numpy.arange(3)"), "array([0, 1, 2])")

    def test_long_call_keeps_state_when_interrupted(self):
        self.kernel.run("x = 41")
        self.kernel.start("a = numpy.random.rand(1500, 1500)\nprint('started')\nwhile True: a @ a")
        self.kernel.wait_for("stdout", "started")
        self.kernel.interrupt()
        self.assertEqual(self.kernel.finish(60).status, "interrupted")
        self.assertEqual(self.value("x + 1"), "42")


class Pandas(LibraryTest):
    library = "pandas"

    def test_data_frame_is_a_table(self):
        data = self.kernel.run("pandas.DataFrame({'a': [1, 2], 'b': ['x', 'y']})").result["data"]
        self.assertIn("<table", data["text/html"])
        self.assertIn("a  b", data["text/plain"])
        self.assertEqual(list(data)[0], "text/plain")

    def test_displayed_in_the_middle(self):
        outcome = self.kernel.run("display(pandas.DataFrame({'a': [1]}))\n5")
        self.assertIn("<table", outcome.displays[0]["data"]["text/html"])
        self.assertEqual(outcome.value, "5")

    def test_series_is_text(self):
        self.assertIn("dtype: int64", self.value("pandas.Series([1, 2])"))


class Matplotlib(LibraryTest):
    library = "matplotlib"

    def test_figure_left_open_is_shown_once(self):
        outcome = self.kernel.run("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.title('t')\nNone")
        self.assertEqual((outcome.status, len(outcome.displays)), ("ok", 1))
        self.assert_png(outcome.displays[0])
        self.assertEqual(self.kernel.run("1").displays, [])

    def test_show_displays_at_once_and_in_order(self):
        code = "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\ndisplay('between')\nplt.plot([2])\nplt.show()"
        displays = self.kernel.run(code).displays
        self.assertEqual(["image/png" in shown["data"] for shown in displays], [True, False, True])
        self.assertNotIn(b"non-interactive", self.kernel.streams["stderr"])

    def test_figure_as_value(self):
        outcome = self.kernel.run("import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1, 2])\nfig")
        self.assert_png(outcome.result)
        self.assertEqual(outcome.displays, [])

    def test_two_figures_are_two_displays(self):
        code = "import matplotlib.pyplot as plt\nfor i in range(2):\n    plt.figure()\n    plt.plot([i])"
        self.assertEqual(len(self.kernel.run(code).displays), 2)

    def test_figure_of_a_failed_cell_is_shown_before_the_error(self):
        outcome = self.kernel.run("import matplotlib.pyplot as plt\nplt.plot([1])\n1/0")
        self.assertEqual([m["type"] for m in outcome.messages], ["display", "error", "done"])

    def test_backend_is_agg_also_for_children(self):
        self.assertEqual(self.value("matplotlib.get_backend().lower()"), "'agg'")
        code = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import matplotlib.pyplot as p; p.plot([1]); p.savefig(\"/dev/null\", format=\"png\")']).returncode"
        self.assertEqual(self.value(code), "0")

    def test_beside_what_stands_in_for_ipython(self):
        code = "from IPython.display import display\nimport matplotlib.pyplot as plt\nplt.ion()\nplt.plot([1])\nplt.show()\nplt.ioff();"
        self.assertEqual(len(self.kernel.run(code).displays), 1)
        self.assertEqual(self.kernel.run("%%capture taken\nplt.plot([1])").displays, [])
        self.assertIn("image/png", self.value("sorted(taken.outputs[-1].data)"))


class Pillow(LibraryTest):
    library = "PIL.Image"

    def test_an_image_is_a_png(self):
        outcome = self.kernel.run("image = PIL.Image.new('RGB', (3, 2))\nimage")
        self.assert_png(outcome.result)

    def test_show_displays(self):
        outcome = self.kernel.run("PIL.Image.new('RGBA', (3, 2)).show('title')\nPIL.Image.new('CMYK', (3, 2)).show()")
        self.assertEqual((outcome.status, len(outcome.displays)), ("ok", 2))
        for shown in outcome.displays:
            self.assert_png(shown)

    def test_an_image_of_a_cell_that_is_indented_is_saved(self):
        code = "\n    from PIL import Image\n    Image.new('L', (3, 2)).save('/dev/null', 'PNG')\n    print('saved')\n    "
        self.assertEqual(self.kernel.run(code).status, "ok")


if __name__ == "__main__":
    unittest.main()
