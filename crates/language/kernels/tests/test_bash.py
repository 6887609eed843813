"""The Bash kernel."""

import unittest

from tests.basics import Basics
from tests.driver import PATIENCE, KernelTest

CODE = {
    "assign": "x=41",
    "x plus 1": "echo $((x + 1))",
    "define and use": "f() { local a=$1; echo $((a + 2)); }\nf 5",
    "print": "echo '%s'",
    "raise": "f() { cat /nosuchfile; }\nf",
    "raised": ("ExitError", "exit status 1"),
    "in traceback": "",
    "print both": "echo to stdout; echo to stderr >&2",
    "print then read a line": "echo early; read -r line",
    "what was read": 'echo "$line"',
    "child": "/bin/echo from a child",
    "much output": "for i in {1..20000}; do echo 0123456789; done; printf END",
    "long text": "text='%s'\necho ${#text}",
    "assign a text": "text=$'a\\'\"\\\\\\t\\né😀%s\\u0041'",
    "length of the text": "echo ${#text}",
    "variables of the kernel": "env | grep -c SANDSTORM_KERNEL; true",
    "tight loop": "echo started\nwhile true; do :; done",
    "silent loop": "while :; do :; done",
    "wait": "echo started\nsleep 1000",
    "kill itself": "kill -KILL $BASHPID",
    "syntax error": "if oops (",
}


class Bash(Basics, KernelTest):
    language = "bash"
    code = CODE
    values = False

    test_display = test_a_result_of_20_megabytes = test_a_result_over_the_maximum_says_so = None

    def test_syntax_error_shows_the_line(self):
        outcome = self.kernel.run(self.code["syntax error"])
        self.assertEqual((outcome.status, outcome.error["value"]), ("error", "exit status 2"))
        self.kernel.wait_for("stderr", "syntax error near")

    def test_what_ends_a_shell_ends_the_cell_alone(self):
        self.kernel.run("x=41; declare -A map=([a]=1); f() { echo f$1; }; cd /; exec 7</etc/hostname")
        for code, status in (
            ("exit 3", 3),
            ("g() { local inner=1; exit 4; }\ng", 4),
            ("set -e\nfalse\necho not reached", 1),
            ("set -u\necho $nosuch\necho not reached", 1),
            ("(exit 5)", 5),
            ("false", 1),
        ):
            with self.subTest(code):
                outcome = self.kernel.run(code)
                self.assertEqual((outcome.status, outcome.error["value"]), ("error", "exit status %d" % status))
                self.assertEqual(outcome.error["exit_code"], status)
                self.check_state()
        self.assertEqual(self.kernel.run("exit 0").status, "ok")
        self.kernel.run("set +eu")
        self.assertEqual(self.answer('echo ${map[a]} $(f 2) $PWD ${inner-none}; [[ -e /dev/fd/7 ]] && echo open'), "1 f2 / none\nopen")
        self.assertNotIn(b"not reached", self.kernel.streams["stdout"])

    def test_options_stay(self):
        self.kernel.run("set -e; shopt -s extglob")
        self.assertEqual(self.kernel.run("false").error["value"], "exit status 1")
        self.assertIn("e", self.answer("echo $-"))
        self.assertEqual(self.answer("[[ aab == +(a)b ]] && echo matches"), "matches")

    def test_traces_are_of_the_cells_alone(self):
        self.kernel.run("set -x")
        self.kernel.run("echo traced")
        self.kernel.run("exit 2")
        self.kernel.run("echo again")
        self.kernel.run("set +x")
        self.kernel.wait_for("stderr", "set +x")
        self.assertNotIn("sandstorm", self.kernel.streams["stderr"].decode())
        self.assertIn("echo again", self.kernel.streams["stderr"].decode())

    def test_a_trap_at_exit_runs_when_the_cell_exits_or_the_context_ends(self):
        self.kernel.run("trap 'echo bye; rm -f /nosuch' EXIT")
        self.kernel.run("y=1")
        self.assertNotIn(b"bye", self.kernel.streams["stdout"])
        self.assertEqual(self.kernel.run("exit 0").status, "ok")
        self.kernel.wait_for("stdout", "bye\n")
        self.assertEqual(self.answer("echo $y"), "1")
        self.kernel.run("trap 'echo the end' EXIT; ( trap 'echo of a subshell' EXIT )")
        self.kernel.wait_for("stdout", "of a subshell\n")
        self.kernel.send({"type": "shutdown"})
        self.kernel.wait_for("stdout", "the end\n")
        self.assertEqual(self.kernel.process.wait(PATIENCE), 0)

    def test_interrupts_of_functions_pipes_and_reads(self):
        self.kernel.run("x=41; f() { local mine=1; echo started; while :; do :; done; }")
        for code in ("f", "echo started; for i in 1 2; do sleep 1000; done | cat", "echo started; read -r line", "sleep 1000 & job=$!; echo started; wait"):
            with self.subTest(code):
                self.kernel.streams["stdout"].clear()
                self.kernel.start(code)
                self.kernel.wait_for("stdout", "started\n")
                self.interrupt_until_done()
                self.check_state()
        self.assertEqual(self.answer("echo ${mine-none}; kill $job"), "none")

    def test_many_exits_leave_no_processes(self):
        self.kernel.run("x=41")
        for _ in range(40):
            self.kernel.run("exit 1")
        # Those that have ended and wait for whoever inherits them do not count.
        living = self.answer("ps --no-headers -g $$ -o stat | grep -vc Z")
        self.assertLess(int(living), 10)
        self.check_state()

    def test_an_interrupt_handler_of_the_users_does_not_cost_the_next_cell_its_interrupt(self):
        self.kernel.run("trap 'echo mine' INT")
        self.interrupt(self.code["tight loop"])

    def test_a_background_process_does_not_hold_the_cell(self):
        self.kernel.run("sleep 1000 & job=$!")
        self.assertEqual(self.answer("kill -0 $job && echo there"), "there")
        self.kernel.run("kill $job")

    def test_messages_of_the_shell_name_bash(self):
        self.kernel = self.new_kernel()
        self.kernel.run("nosuchcommand")
        self.assertTrue(self.kernel.wait_for("stderr", "command not found").startswith("bash: "))

    def test_own_separators_do_not_matter(self):
        self.kernel.run("IFS=0123456789")
        self.kernel.run("exit 12")
        self.assertEqual(self.answer('echo "$((40 + 2))"'), "42")



if __name__ == "__main__":
    unittest.main()
