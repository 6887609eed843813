"""The Java kernel."""

import unittest

from tests.basics import Basics
from tests.driver import KernelTest

CODE = {
    "assign": "int x = 41;",
    "x plus 1": "x + 1",
    "define and use": "int f(int a) { return a + 2; }\nf(5)",
    "print": 'System.out.println("%s");',
    "raise": 'void inner() { throw new IllegalStateException("bad é"); }\ninner();',
    "raised": ("java.lang.IllegalStateException", "bad é"),
    "in traceback": "inner",
    "print both": 'System.out.println("to stdout"); System.err.println("to stderr");',
    "print then read a line": 'System.out.println("early"); var line = new Scanner(System.in, "UTF-8").nextLine();',
    "what was read": "line",
    "child": 'new ProcessBuilder("echo", "from a child").inheritIO().start().waitFor();',
    "much output": 'for (int i = 0; i < 20_000; i++) System.out.println("0123456789");\nSystem.out.print("END");',
    "long text": 'var text = new StringBuilder();\nfor (var part : new String[] {PARTS}) text.append(part);\ntext.length()',
    "assign a text": "String text = \"a'\\\"\\\\\\t\\né😀%s\\u0041\";",
    "length of the text": "text.codePointCount(0, text.length())",
    "variables of the kernel": 'System.getenv().keySet().stream().filter(name -> name.contains("SANDSTORM_KERNEL")).count()',
    "tight loop": 'System.out.println("started");\nwhile (true) {}',
    "silent loop": "while (true) {}",
    "wait": 'System.out.println("started");\nThread.sleep(1_000_000);',
    "kill itself": "Runtime.getRuntime().halt(3);",
    "syntax error": "int y = 1;\nint oops = (1 + ];\n",
    "display html": 'display("<b>hi</b>", "text/html");',
    "20 MB": '"a".repeat(20_000_000)',
    "150 MB": '"a".repeat(150_000_000)',
}


class Java(Basics, KernelTest):
    language = "java"
    code = CODE
    syntax_error = ("CompilationError", "^")

    def test_a_program_of_several_frames(self):
        # No constant of Java is longer than 65,535 bytes.
        parts = ", ".join(['"%s"' % ("é" * 30_000)] * 20)
        self.assertEqual(self.answer(self.code["long text"].replace("PARTS", parts)), "600000")

    def test_values(self):
        for code, expected in (
            ('"text"', '"text"'),
            ("List.of(1, 2).stream().map(i -> i * 2).collect(Collectors.toList())", "[2, 4]"),
            ("new int[] {1, 2}", "int[2] { 1, 2 }"),
            ("record P(int a, int b) {}\nnew P(1, 2)", "P[a=1, b=2]"),
            ("int n = 3; n * 2", "6"),
            ("var map = new HashMap<String, Integer>();\nmap.put(\"a\", 1);\nmap", "{a=1}"),
            ("// a comment\n7", "7"),
            ("null", "null"),
        ):
            with self.subTest(code):
                self.assertEqual(self.value(code), expected)
        for code in ("int a = 3;", "a + 1;", "System.out.print(\"\")", "", "import java.time.*;", "for (;;) break;"):
            with self.subTest(code):
                self.assertIsNone(self.kernel.run(code).result)

    def test_a_name_can_be_declared_again(self):
        self.value("int again = 1; again")
        self.assertEqual(self.value('String again = "two"; again'), '"two"')
        self.kernel.run("class C { int a() { return 1; } }")
        self.assertEqual(self.value("class C { int a() { return 2; } }\nnew C().a()"), "2")

    def test_a_whole_program_runs(self):
        program = 'public class Main {\n  public static void main(String[] a) { System.out.println("from main"); }\n}'
        self.assertEqual(self.kernel.run(program).status, "ok")
        self.kernel.wait_for("stdout", "from main\n")
        failing = "class Other { public static void main(String[] a) throws Exception { throw new Exception(\"of main\"); } }"
        self.assertEqual(self.kernel.run(failing).error["value"], "of main")

    def test_what_does_not_compile_says_why(self):
        outcome = self.kernel.run('int before = 1;\nString s = 5;\nSystem.out.println("not reached");')
        self.assertEqual(outcome.error["name"], "CompilationError")
        self.assertIn("int cannot be converted to java.lang.String", outcome.error["value"])
        self.assertEqual(outcome.error["traceback"][:2], ["String s = 5;", "           ^"])
        self.assertEqual(self.kernel.streams["stdout"], b"")
        self.assertIn("foo", self.kernel.run("foo(3)").error["value"])
        self.assertIn("Missing", self.kernel.run("Missing m;").error["value"])
        self.assertEqual(self.kernel.run("int y = (").error["value"], "the code ends too early")
        self.assertEqual(self.value("before"), "1")

    def test_causes_and_deep_traces(self):
        lines = self.kernel.run('throw new RuntimeException("outer", new Exception("root"));').error["traceback"]
        self.assertIn("Caused by: java.lang.Exception: root", lines)
        outcome = self.kernel.run("int deep() { return deep() + 1; }\ndeep()")
        self.assertEqual(outcome.error["name"], "java.lang.StackOverflowError")
        self.assertLess(len(outcome.error["traceback"]), 100)
        self.assertIn("more", outcome.error["traceback"][-1])

    def test_lines_are_written_whole(self):
        self.kernel.run('System.out.print("half "); System.out.print("a line"); System.out.println();')
        self.kernel.wait_for("stdout", "half a line\n")

    def test_images_are_base64(self):
        outcome = self.kernel.run('display(new byte[] {(byte) 0x89, 0x50, 0x4e, 0x47}, "image/png");')
        self.assertEqual(outcome.displays[0]["data"]["image/png"], "iVBORw==")

    def test_a_program_that_closes_its_output_does_not_close_the_next_ones(self):
        self.kernel.run("System.out.close();")
        self.kernel.run('System.out.println("still there");')
        self.kernel.wait_for("stdout", "still there")

    def test_interrupt_of_a_program_that_catches_everything(self):
        self.kernel.run("int x = 41;")
        self.kernel.start('System.out.println("started");\nfor (;;) { try { Thread.sleep(10); } catch (Exception e) {} }')
        self.kernel.wait_for("stdout", "started")
        self.interrupt_until_done()
        self.check_state()


if __name__ == "__main__":
    unittest.main()
