"""The R kernel."""

import base64
import unittest

from tests.basics import Basics
from tests.driver import KernelTest

CODE = {
    "assign": "x <- 41",
    "x plus 1": "x + 1",
    "define and use": "f <- function(a) a + 2\nf(5)",
    "print": "cat('%s\\n')",
    "raise": "inner <- function() stop('bad é')\nouter <- function() inner()\nouter()",
    "raised": ("simpleError", "bad é"),
    "in traceback": "outer()",
    "print both": "cat('to stdout\\n'); message('to stderr')",
    "print then read a line": "cat('early\\n'); line <- readLines(file('stdin'), 1)",
    "what was read": "line",
    "child": "invisible(system('echo from a child'))",
    "much output": "for (i in 1:20000) cat('0123456789\\n'); cat('END')",
    "long text": "text <- '%s'\nnchar(text)",
    "assign a text": "text <- 'a\\'\"\\\\\\t\\né😀%s\\u0041'",
    "length of the text": "nchar(text)",
    "variables of the kernel": "sum(grepl('SANDSTORM_KERNEL', names(Sys.getenv())))",
    "tight loop": "cat('started\\n')\nwhile (TRUE) {}",
    "silent loop": "while (TRUE) {}",
    "wait": "cat('started\\n')\nSys.sleep(1000)",
    "kill itself": "tools::pskill(Sys.getpid(), 9)",
    "syntax error": "y <- 1\noops <- (1 + ]\n",
    "display html": "display('<b>hi</b>', 'text/html')",
    "20 MB": "strrep('a', 2e7)",
    "150 MB": "strrep('a', 1.5e8)",
}


class R(Basics, KernelTest):
    language = "r"
    code = CODE
    shown = "[1] %s"

    def test_values_are_what_r_prints(self):
        for code, expected in (
            ("'text'", '[1] "text"'),
            ("c(a = 1, b = 2)", "a b \n1 2 "),
            ("NULL", "NULL"),
            ("list(1, 'a')", '[[1]]\n[1] 1\n\n[[2]]\n[1] "a"\n'),
            ("factor(c('u', 'v'))", "[1] u v\nLevels: u v"),
            ("function(a) {\n  a\n}", "function(a) {\n  a\n}"),
            ("x <- 3; (x <- 4)", "[1] 4"),
        ):
            with self.subTest(code):
                self.assertEqual(self.value(code), expected)
        for code in ("x <- 1", "invisible(7)", "for (i in 1:3) i", "# nothing"):
            self.assertIsNone(self.kernel.run(code).result)
        self.assertEqual(self.value("2 * 3\n.Last.value"), "[1] 6")

    def test_every_value_at_the_top_is_shown_and_the_last_is_the_value(self):
        outcome = self.kernel.run("1\nx <- 2\n3")
        self.assertEqual([shown["data"]["text/plain"] for shown in outcome.displays], ["[1] 1"])
        self.assertEqual(outcome.value, "[1] 3")

    def test_frames_are_tables(self):
        data = self.kernel.run("data.frame(a = 1:2, b = c('x', '<y>'))").result["data"]
        self.assertEqual(list(data), ["text/plain", "text/html"])
        self.assertIn("<td>&lt;y&gt;</td>", data["text/html"])
        self.assertEqual(self.kernel.run("data.frame()").status, "ok")

    def test_plots_are_pictures(self):
        outcome = self.kernel.run("if (!capabilities('cairo')) stop('none'); plot(1:3); hist(c(1, 2, 2))")
        if outcome.error and outcome.error["value"] == "none":
            self.skipTest("this R draws no PNG")
        pictures = [base64.b64decode(shown["data"]["image/png"]) for shown in outcome.displays]
        self.assertEqual([picture[:4] for picture in pictures], [b"\x89PNG"] * 2)
        self.assertEqual(self.kernel.run("x <- 1").displays, [])

    def test_conditions_of_their_own_classes(self):
        outcome = self.kernel.run("stop(structure(class = c('tooMuch', 'error', 'condition'), list(message = 'm', call = NULL)))")
        self.assertEqual((outcome.error["name"], outcome.error["value"]), ("tooMuch", "m"))
        self.assertEqual(self.value("tryCatch(stop('a'), error = function(e) 'caught')"), '[1] "caught"')
        self.assertEqual(self.kernel.run("warning('careful')").status, "ok")
        self.kernel.wait_for("stderr", "careful")

    def test_quit_ends_the_cell_and_not_the_context(self):
        self.kernel.run("x <- 41")
        for code, status in (("quit(status = 3)", 3), ("q('no')", 0), ("base::quit()", 0)):
            outcome = self.kernel.run(code)
            self.assertEqual((outcome.error["name"], outcome.error["exit_code"]), ("SystemExit", status))
        self.check_state()

    def test_an_interrupt_can_be_cleaned_up_after(self):
        self.kernel.start("tryCatch({ cat('started\\n'); while (TRUE) {} }, finally = cat('cleaned up\\n'))")
        self.kernel.wait_for("stdout", "started")
        self.interrupt_until_done()
        self.kernel.wait_for("stdout", "cleaned up")

    def test_a_sink_that_was_left_open_ends_with_the_cell(self):
        self.kernel.run("sink(tempfile()); cat('hidden')")
        self.kernel.run("cat('seen\\n')")
        self.kernel.wait_for("stdout", "seen")

    def test_recursion_without_end_is_an_error(self):
        self.assertEqual(self.kernel.run("f <- function() f()\nf()").status, "error")
        self.assertEqual(self.value("1 + 1"), "[1] 2")

    def test_packages_of_r_are_there(self):
        self.assertEqual(self.value("median(c(1, 5, 9))"), "[1] 5")
        self.assertEqual(self.kernel.run("library(nosuchpackage)").error["name"], "packageNotFoundError")


if __name__ == "__main__":
    unittest.main()
