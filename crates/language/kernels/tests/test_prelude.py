"""What the dialect of E2B teaches the Python kernel: charts as data, and saved images as results."""

import unittest

from tests.driver import KERNELS
from tests.test_python_libraries import LibraryTest

PRELUDE = KERNELS.parent.parent / "dialect/e2b/src/interpreter/prelude.py"
CHART = "application/vnd.sandstorm.chart+json"


class PreludeTest(LibraryTest):
    def setUp(self):
        super().setUp()
        self.kernel = self.new_kernel()
        self.assertEqual(self.kernel.run(PRELUDE.read_text()).status, "ok")


class Charts(PreludeTest):
    library = "matplotlib"

    def chart(self, code):
        outcome = self.kernel.run("import matplotlib.pyplot as plt\n%s\nplt.show()" % code)
        self.assertEqual((outcome.status, len(outcome.displays)), ("ok", 1), outcome.messages)
        self.assert_png(outcome.displays[0])
        return outcome.displays[0]["data"][CHART]

    def test_numbers_are_floats(self):
        chart = self.chart("plt.plot([1, 2], [3, 4])")
        numbers = [*chart["elements"][0]["points"][0], *chart["x_ticks"], *chart["y_ticks"]]
        self.assertEqual({type(value) for value in numbers}, {float})
        self.assertEqual(type(self.chart("plt.bar(['a'], [3])")["elements"][0]["value"]), float)

    def test_computed_numbers_are_rounded(self):
        chart = self.chart("plt.pie([90, 10], labels=['no', 'yes'], startangle=90)")
        self.assertEqual([(part["angle"], part["radius"]) for part in chart["elements"]], [(324.0, 1.0), (36.0, 1.0)])
        chart = self.chart("plt.pie([1, 2])")
        self.assertEqual([part["angle"] for part in chart["elements"]], [120.0, 240.0])
        box = self.chart("plt.boxplot([[0.1 + 0.2, 0.7, 1.1]])")["elements"][0]
        self.assertEqual((box["min"], box["median"]), (0.3, 0.7))

    def test_labels_that_nobody_gave(self):
        lines = self.chart("plt.plot([1], [2]); plt.plot([1], [3], label='mine')")["elements"]
        self.assertEqual([line["label"] for line in lines], ["Line 0", "mine"])
        self.assertEqual(self.chart("plt.bar(['a'], [1])")["elements"][0]["group"], "Group 0")

    def test_units(self):
        chart = self.chart("plt.plot([1], [2]); plt.xlabel('Time [s]'); plt.ylabel('f(x)')")
        self.assertEqual((chart["x_unit"], chart["y_unit"]), ("s", None))
        self.assertEqual(self.chart("plt.plot([1], [2]); plt.xlabel('Value (V)')")["x_unit"], "V")

    def test_bars_that_lie(self):
        chart = self.chart("plt.barh(['a', 'b'], [1, 2]); plt.xlabel('How many'); plt.ylabel('What')")
        self.assertEqual((chart["x_label"], chart["y_label"]), ("What", "How many"))
        self.assertEqual([(bar["label"], bar["value"]) for bar in chart["elements"]], [("a", 1.0), ("b", 2.0)])

    def test_lines_that_mark_are_no_data(self):
        chart = self.chart("plt.plot([1, 2], [3, 4]); plt.axhline(3.5); plt.axvline(1.5)")
        self.assertEqual(len(chart["elements"]), 1)
        self.assertEqual(self.chart("plt.axhline(1)")["type"], "unknown")

    def test_boxes_drawn_twice_are_boxes_once(self):
        data = "{'a': [85, 90, 78], 'b': [95, 89, 76], 'c': [75, 82, 88]}"
        code = "d = %s\nfigure, axes = plt.subplots()\naxes.boxplot(d.values(), labels=d.keys())\naxes.boxplot(d.values(), labels=d.keys(), patch_artist=True)"
        elements = self.chart(code % data)["elements"]
        self.assertEqual([(box["label"], type(box["min"])) for box in elements], [("a", float), ("b", float), ("c", float)])

    def test_a_saved_figure_is_shown(self):
        outcome = self.kernel.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.savefig('/dev/null', format='png')\nplt.close()")
        self.assertEqual((outcome.status, len(outcome.displays)), ("ok", 1), outcome.messages)
        self.assert_png(outcome.displays[0])


class Images(PreludeTest):
    library = "PIL.Image"

    def setUp(self):
        super().setUp()
        self.kernel.run("from PIL import Image\nimport io")

    def test_an_image_saved_by_name_is_shown(self):
        for mode in ("RGB", "CMYK"):
            outcome = self.kernel.run("Image.new('%s', (3, 2)).save('/dev/null', 'JPEG')" % mode)
            self.assertEqual((outcome.status, len(outcome.displays)), ("ok", 1), outcome.messages)
            self.assert_png(outcome.displays[0])

    def test_an_image_saved_elsewhere_is_not(self):
        self.assertEqual(self.kernel.run("Image.new('RGB', (3, 2)).save(io.BytesIO(), 'PNG')").displays, [])

    def test_an_image_is_shown_once(self):
        self.assertEqual(len(self.kernel.run("Image.new('RGB', (3, 2)).show()").displays), 1)
        outcome = self.kernel.run("Image.new('RGB', (3, 2))")
        self.assertEqual((len(outcome.displays), "image/png" in outcome.result["data"]), (0, True))

    def test_what_cannot_be_saved_is_an_error(self):
        self.assertEqual(self.kernel.run("Image.new('RGB', (3, 2)).save('/nosuch/x.png')").error["name"], "FileNotFoundError")


if __name__ == "__main__":
    unittest.main()
