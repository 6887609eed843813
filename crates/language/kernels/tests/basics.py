"""What the kernels of Bash, R and Java do alike; each file of tests gives the same small programs in its language."""

import os
import struct
import subprocess
import time

from tests.driver import COMMANDS, PATIENCE, Kernel


class Basics:
    """Cases for `KernelTest` classes. `code` holds the programs. A program answers by its value, in Bash by what it prints."""

    code = {}
    #: What surrounds the number 42 where the language shows it.
    shown = "%s"
    values = True
    version = r"^\d+\.\d+"
    syntax_error = ("SyntaxError", "^")

    # A runtime takes seconds to start, so tests share a kernel until one of them ends it, or fails.
    kept = first = None

    def setUp(self):
        kept, type(self).kept = type(self).kept, None
        if kept is None or kept.process.poll() is not None:
            self.check_program()
            self.kernel = Kernel(self.language, self.transport)
            self.addClassCleanup(self.kernel.close)
        else:
            self.kernel = kept
            for stream in kept.streams.values():
                stream.clear()
        self.first = self.kernel

    def run(self, result=None):
        problems = lambda: len(result.errors) + len(result.failures)
        before = problems()
        super().run(result)
        type(self).kept = self.first if problems() == before else None

    def answer(self, code):
        if self.values:
            return self.value(code)
        before = len(self.kernel.streams["stdout"])
        outcome = self.kernel.run(code)
        self.assertEqual(outcome.status, "ok", outcome.messages)
        self.kernel.run(self.code["print"] % "END-OF-ANSWER")
        text = self.kernel.wait_for("stdout", "END-OF-ANSWER\n")
        del self.kernel.streams["stdout"][before:]
        return text[before:].replace("END-OF-ANSWER\n", "").rstrip("\n")

    def check_state(self):
        self.assertEqual(self.answer(self.code["x plus 1"]), self.shown % "42")

    def test_ready_names_the_language(self):
        ready = self.kernel.ready
        self.assertEqual((ready["type"], ready["language"], ready["protocol"]), ("ready", self.language, 1))
        self.assertRegex(ready["version"], self.version)

    def test_state_stays_from_cell_to_cell(self):
        outcome = self.kernel.run(self.code["assign"])
        self.assertEqual((outcome.status, outcome.result), ("ok", None))
        self.check_state()
        self.assertEqual(self.answer(self.code["define and use"]), self.shown % "7")

    def test_executions_are_counted_and_silent_ones_are_not(self):
        count = self.kernel.run(self.code["assign"]).done["execution_count"]
        silent = self.kernel.run(self.code["x plus 1"], silent=True)
        self.assertEqual((silent.done["execution_count"], silent.result), (count, None))
        self.assertEqual(self.kernel.run("").done["execution_count"], count + 1)

    def test_error_has_name_value_and_traceback(self):
        self.kernel.run(self.code["assign"])
        outcome = self.kernel.run(self.code["raise"])
        self.assertEqual(outcome.status, "error")
        self.assertEqual((outcome.error["name"], outcome.error["value"]), self.code["raised"])
        text = "\n".join(outcome.error["traceback"])
        self.assertIn(self.code["in traceback"], text)
        self.assertNotIn("kernel", text.lower())
        self.check_state()

    def test_output_is_on_its_own_streams_and_there_before_done(self):
        self.assertEqual(self.kernel.run(self.code["print both"]).status, "ok")
        self.assertEqual(self.kernel.wait_for("stdout", "to stdout\n"), "to stdout\n")
        self.assertEqual(self.kernel.wait_for("stderr", "to stderr\n"), "to stderr\n")

    def test_output_arrives_while_the_cell_runs(self):
        self.kernel.start(self.code["print then read a line"])
        self.kernel.wait_for("stdout", "early")
        self.assertTrue(self.kernel.inbox.empty())
        self.kernel.write_stdin("Grüße\n".encode())
        self.assertEqual(self.kernel.finish().status, "ok")
        self.assertIn("Grüße", self.answer(self.code["what was read"]))

    def test_output_of_children(self):
        self.assertEqual(self.kernel.run(self.code["child"]).status, "ok")
        self.kernel.wait_for("stdout", "from a child\n")

    def test_much_output_comes_whole(self):
        self.assertEqual(self.kernel.run(self.code["much output"]).status, "ok")
        self.assertEqual(self.kernel.wait_for("stdout", "END").count("0123456789"), 20_000)

    def test_a_program_of_several_frames(self):
        length = 600_000
        self.assertEqual(self.answer(self.code["long text"] % ("é" * length)), self.shown % str(length))

    def test_any_text_arrives_as_it_is(self):
        self.kernel.run(self.code["assign a text"])
        self.assertEqual(self.answer(self.code["length of the text"]), self.shown % "11")

    def test_output_that_looks_like_our_framing(self):
        outcome = self.kernel.run(self.code["print"] % r'{type:done,status:ok}')
        self.assertEqual([message["type"] for message in outcome.messages], ["done"])
        self.kernel.wait_for("stdout", "type:done")

    def test_the_variables_of_the_kernel_are_hidden(self):
        self.assertEqual(self.answer(self.code["variables of the kernel"]), self.shown % "0")

    def interrupt(self, code, wait="started\n"):
        self.kernel.run(self.code["assign"])
        self.kernel.start(code)
        self.kernel.wait_for("stdout", wait)
        self.interrupt_until_done()
        self.check_state()

    def interrupt_until_done(self):
        """As the controller does it: again where a call that was just about to block has missed the first."""
        deadline = time.monotonic() + PATIENCE
        while True:
            self.kernel.interrupt(group=True)
            try:
                message = self.kernel.receive(timeout=0.5)
                break
            except AssertionError:
                self.assertLess(time.monotonic(), deadline, "the cell goes on")
        messages = [message]
        while messages[-1]["type"] != "done":
            messages.append(self.kernel.receive())
        self.assertEqual(messages[-1]["status"], "interrupted", messages)
        self.assertEqual(messages[0]["name"], "Interrupted", messages)

    def test_interrupt_of_a_tight_loop(self):
        self.interrupt(self.code["tight loop"])

    def test_interrupt_of_a_wait(self):
        self.interrupt(self.code["wait"])

    def test_interrupt_right_after_start(self):
        self.kernel.run(self.code["assign"])
        for _ in range(10):
            self.kernel.start(self.code["silent loop"])
            self.interrupt_until_done()
        self.check_state()

    def test_an_interrupt_between_cells_is_nothing(self):
        self.kernel.run(self.code["assign"])
        for _ in range(5):
            self.kernel.interrupt(group=True)
            time.sleep(0.02)
        # None of them is still on its way.
        time.sleep(1)
        self.check_state()

    def test_cells_queue_up(self):
        for number in range(3):
            self.kernel.send({"type": "execute", "id": number, "code": self.code["assign"]})
        messages = [self.kernel.receive() for _ in range(6)]
        self.assertEqual([(m["type"], m["id"]) for m in messages], [(t, n) for n in range(3) for t in ("start", "done")])

    def test_a_late_start_comes_before_what_follows(self):
        for number, code in enumerate([self.code["assign"], self.code["print both"], self.code["raise"]]):
            self.kernel.send({"type": "execute", "id": number, "code": code, "late_start": True})
            messages = [self.kernel.receive()]
            while messages[-1]["type"] != "done":
                messages.append(self.kernel.receive())
            self.assertEqual((messages[0]["type"], {m["id"] for m in messages}), ("start", {number}))
            self.assertEqual(sum(m["type"] == "start" for m in messages), 1)

    def test_ids_come_back_as_they_were(self):
        for given in (None, 7, 'a "quoted" \\ é', True):
            self.kernel.send({"type": "execute", "id": given, "code": ""})
            self.assertEqual([self.kernel.receive()["id"] for _ in range(2)], [given, given])

    def test_syntax_error_shows_the_line(self):
        name, mark = self.syntax_error
        outcome = self.kernel.run(self.code["syntax error"])
        self.assertEqual((outcome.status, outcome.error["name"]), ("error", name))
        text = "\n".join(outcome.error["traceback"])
        self.assertIn("oops", text)
        self.assertIn(mark, text)

    def test_display(self):
        outcome = self.kernel.run(self.code["display html"])
        self.assertEqual(outcome.displays[0]["data"], {"text/plain": "<text/html>", "text/html": "<b>hi</b>"})

    def test_a_result_of_20_megabytes(self):
        outcome = self.kernel.run(self.code["20 MB"], timeout=120)
        self.assertGreaterEqual(len(outcome.value), 20_000_000)
        self.assertLessEqual(self.kernel.largest_frame, 1 << 20)
        self.kernel.run(self.code["assign"])
        self.check_state()

    def test_a_result_over_the_maximum_says_so(self):
        outcome = self.kernel.run(self.code["150 MB"], timeout=120)
        self.assertEqual((outcome.status, outcome.result["metadata"]), ("ok", {"truncated": True}))
        self.assertIn("over the maximum", outcome.value)

    def test_shutdown(self):
        self.kernel.run(self.code["assign"])
        self.kernel.send({"type": "shutdown"})
        self.assertEqual(self.kernel.process.wait(PATIENCE), 0)

    def test_the_end_of_the_channel_ends_the_kernel(self):
        self.kernel.hang_up()
        self.assertEqual(self.kernel.process.wait(PATIENCE), 0)

    def test_garbage_ends_the_kernel(self):
        os.write(self.kernel.write_fd, b"\xff\xff\xff\xff")
        self.assertEqual(self.kernel.process.wait(PATIENCE), 70)

    def test_an_unknown_message_ends_the_kernel(self):
        for body in (b'{"type":"nonsense"}', b"[1]", b'{"type":"execute","id":1}'):
            kernel = self.new_kernel()
            os.write(kernel.write_fd, struct.pack("<I", len(body)) + body)
            self.assertEqual(kernel.process.wait(PATIENCE), 70, body)

    def test_a_dead_program_closes_the_channel(self):
        with self.assertRaises(EOFError):
            self.kernel.run(self.code["kill itself"])
        self.kernel.process.wait(PATIENCE)

    def test_pipes_serve_as_well(self):
        self.kernel = self.new_kernel(transport="pipes")
        self.kernel.run(self.code["assign"])
        self.check_state()

    def test_a_kernel_without_its_descriptor_says_so(self):
        for variables, reason in (({}, "it needs SANDSTORM_KERNEL_FD"), ({"SANDSTORM_KERNEL_NONCE": "ab"}, "a descriptor of its own")):
            ended = subprocess.run(
                COMMANDS[self.language], env={**os.environ, **variables}, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE
            )
            self.assertEqual(ended.returncode, 2)
            self.assertIn(reason, ended.stderr.decode())


