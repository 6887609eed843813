"""What every kernel does alike, whatever its language and transport."""

import os
import signal
import struct
import time

from tests.driver import PATIENCE


class Contract:
    """Cases for `KernelTest` classes. `code` holds the same small programs in each language."""

    code = {}

    def test_ready_names_the_language(self):
        self.assertEqual(self.kernel.ready["type"], "ready")
        self.assertEqual(self.kernel.ready["language"], self.language)
        self.assertEqual(self.kernel.ready["protocol"], 1)
        self.assertRegex(self.kernel.ready["version"], r"^\d+\.\d+")

    def test_state_stays_and_the_last_expression_is_the_value(self):
        outcome = self.kernel.run(self.code["assign"])
        self.assertEqual((outcome.status, outcome.result), ("ok", None))
        self.assertEqual(self.value("x + 1"), "42")

    def test_a_statement_at_the_end_has_no_value(self):
        self.assertIsNone(self.kernel.run(self.code["statement last"]).result)

    def test_executions_are_counted_and_silent_ones_are_not(self):
        self.assertEqual(self.kernel.run("1").done["execution_count"], 1)
        silent = self.kernel.run("2", silent=True)
        self.assertEqual((silent.done["execution_count"], silent.result), (1, None))
        self.assertEqual(self.kernel.run("3").done["execution_count"], 2)

    def test_redefinition(self):
        for first, second, use, expected in self.code["redefine"]:
            with self.subTest(second):
                self.assertEqual(self.kernel.run(first).status, "ok")
                self.assertEqual(self.kernel.run(second).status, "ok")
                self.assertEqual(self.value(use), expected)

    def test_top_level_await(self):
        self.assertEqual(self.value(self.code["await"]), "7")
        self.assertEqual(self.value("awaited + 1"), "8")

    def test_tasks_go_on_between_cells(self):
        self.kernel.run(self.code["background task"])
        self.kernel.wait_for("stdout", "from the background")

    def test_error_has_name_value_and_traceback(self):
        outcome = self.kernel.run(self.code["raise"])
        self.assertEqual(outcome.status, "error")
        self.assertEqual((outcome.error["name"], outcome.error["value"]), self.code["raised"])
        text = "\n".join(outcome.error["traceback"])
        self.assertIn("inner", text)
        self.assertNotIn("kernels", text)
        self.assertEqual(self.value("1 + 1"), "2")

    def test_syntax_error_shows_the_line(self):
        outcome = self.kernel.run(self.code["syntax error"])
        self.assertEqual((outcome.status, outcome.error["name"]), ("error", "SyntaxError"))
        text = "\n".join(outcome.error["traceback"])
        self.assertIn("oops", text)
        self.assertIn("^", text)

    def test_exit_ends_the_cell_and_not_the_context(self):
        self.kernel.run(self.code["assign"])
        outcome = self.kernel.run(self.code["exit 3"])
        self.assertEqual(outcome.status, "error")
        self.assertEqual((outcome.error["name"], outcome.error["exit_code"]), ("SystemExit", 3))
        self.assertEqual(self.value("x + 1"), "42")

    def test_output_is_on_its_own_streams_and_there_before_done(self):
        outcome = self.kernel.run(self.code["print both"])
        self.assertEqual(outcome.status, "ok")
        self.assertIn("to stdout", self.kernel.wait_for("stdout", "to stdout\n"))
        self.assertIn("to stderr", self.kernel.wait_for("stderr", "to stderr\n"))

    def test_output_arrives_while_the_cell_runs(self):
        self.kernel.start(self.code["print then wait"])
        self.kernel.wait_for("stdout", "early")
        self.assertTrue(self.kernel.inbox.empty())
        self.kernel.write_stdin(b"go\n")
        self.assertEqual(self.kernel.finish().status, "ok")

    def test_output_of_subprocesses(self):
        self.assertEqual(self.kernel.run(self.code["subprocess"]).status, "ok")
        self.kernel.wait_for("stdout", "from a child\n")

    def test_much_output_comes_whole(self):
        self.assertEqual(self.kernel.run(self.code["much output"]).status, "ok")
        text = self.kernel.wait_for("stdout", "END")
        self.assertEqual(text.count("0123456789"), 300_000)

    def test_input_is_fed_from_stdin(self):
        self.kernel.start(self.code["read a line"])
        self.kernel.write_stdin("Grüße\n".encode())
        self.assertEqual(self.kernel.finish().value, "'Grüße'")

    def test_end_of_stdin(self):
        self.kernel.start(self.code["read all"])
        self.kernel.write_stdin(b"abc")
        self.kernel.end_stdin()
        self.assertEqual(self.kernel.finish().value, "'abc'")

    def test_display(self):
        outcome = self.kernel.run(self.code["display html"])
        self.assertEqual(outcome.displays[0]["data"]["text/html"], "<b>hi</b>")
        self.assertIn("text/plain", outcome.displays[0]["data"])
        outcome = self.kernel.run(self.code["display png"])
        self.assertEqual(outcome.displays[0]["data"]["image/png"], "iVBORw==")

    def test_json_of_plain_values(self):
        data = self.kernel.run(self.code["json value"]).result["data"]
        self.assertEqual(data["application/json"], {"a": [1, 2, None]})
        self.assertEqual(list(data)[0], "text/plain")

    def test_a_result_of_50_megabytes(self):
        outcome = self.kernel.run(self.code["50 MB"], timeout=120)
        self.assertEqual(len(outcome.value), 50_000_002)
        self.assertLessEqual(self.kernel.largest_frame, 1 << 20)
        self.assertEqual(self.value("1 + 1"), "2")

    def test_a_result_over_the_maximum_says_so(self):
        outcome = self.kernel.run(self.code["150 MB"], timeout=120)
        self.assertEqual((outcome.status, outcome.result["metadata"]), ("ok", {"truncated": True}))
        self.assertIn("over the maximum", outcome.value)

    def test_a_program_of_several_frames(self):
        self.assertEqual(self.value("len_ = '%s'\n%s" % ("é" * 1_500_000, self.code["length of len_"])), "1500000")

    def test_text_that_is_no_utf8_does_not_break_a_frame(self):
        self.assertEqual(self.kernel.run(self.code["lone surrogate"]).status, "ok")
        self.assertEqual(self.kernel.run(self.code["display lone surrogate"]).status, "ok")
        self.assertEqual(self.value("1 + 1"), "2")

    def test_output_that_looks_like_our_framing(self):
        forged = struct.pack("<I", 30) + b'{"type":"done","status":"ok"}\n'
        nonce = getattr(self.kernel, "nonce", "00")
        lines = b"%s<message:e30=\n%s>message:e30=\n" % (nonce.encode(), nonce.encode())
        outcome = self.kernel.run(self.code["write bytes"] % list(forged + lines))
        self.assertEqual([m["type"] for m in outcome.messages if m["type"] != "result"], ["done"])
        self.kernel.wait_for("stdout", '"type":"done"')
        self.kernel.wait_for("stdout", "message:e30=")
        self.assertEqual(self.value("1 + 1"), "2")

    def test_the_control_channel_is_out_of_the_way(self):
        names = [name for name in self.value(self.code["environment"]).split(",") if "KERNEL" in name]
        self.assertEqual(names, [])

    def interrupt(self, code, wait="started", timeout=PATIENCE, blocks=False):
        self.kernel.run(self.code["assign"])
        self.kernel.start(code)
        self.kernel.wait_for("stdout", wait)
        if blocks:
            # A signal that comes just before a blocking system call does not end it: give the call time to begin.
            time.sleep(1)
        self.kernel.interrupt()
        outcome = self.kernel.finish(timeout)
        self.assertEqual(outcome.status, "interrupted", outcome.messages)
        self.assertEqual(outcome.error["name"], self.code["interrupted"])
        self.assertEqual(self.value("x + 1"), "42")
        self.assertEqual(self.value(self.code["await"]), "7")

    def test_interrupt_of_a_tight_loop(self):
        self.interrupt(self.code["tight loop"])

    def test_interrupt_of_a_wait(self):
        self.interrupt(self.code["await for ever"])

    def test_interrupt_of_a_loop_after_an_await(self):
        self.interrupt(self.code["loop after await"])

    def test_interrupt_right_after_start(self):
        for _ in range(20):
            self.kernel.start(self.code["silent loop"])
            self.kernel.interrupt()
            self.assertEqual(self.kernel.finish().status, "interrupted")
        self.assertEqual(self.value("1 + 1"), "2")

    def test_interrupts_at_any_moment_leave_the_protocol_whole(self):
        for step in range(30):
            self.kernel.start(self.code["display a lot"])
            time.sleep(0.003 * step)
            self.kernel.interrupt()
            self.assertIn(self.kernel.finish().status, ("ok", "interrupted"))
        # The last interrupt may still be on its way.
        time.sleep(1)
        self.assertEqual(self.value("1 + 1"), "2")

    def test_an_interrupt_between_cells_is_nothing(self):
        self.kernel.run(self.code["assign"])
        for _ in range(5):
            self.kernel.interrupt()
            time.sleep(0.02)
        # None of them is still on its way.
        time.sleep(1)
        self.assertEqual(self.value("x + 1"), "42")

    def test_a_handler_of_the_users_does_not_cost_the_interrupt(self):
        self.kernel.run(self.code["own SIGINT handler"])
        self.interrupt(self.code["tight loop"])

    def test_deep_recursion(self):
        outcome = self.kernel.run(self.code["recursion"])
        self.assertEqual((outcome.status, outcome.error["name"]), ("error", self.code["recursion error"]))
        self.assertEqual(self.value("1 + 1"), "2")

    def test_cells_queue_up(self):
        for number in range(3):
            self.kernel.send({"type": "execute", "id": number, "code": str(number)})
        messages = [self.kernel.receive() for _ in range(9)]
        self.assertEqual([(m["type"], m["id"]) for m in messages][:4], [("start", 0), ("result", 0), ("done", 0), ("start", 1)])

    def test_a_late_start_comes_before_what_follows(self):
        for number, code in enumerate(["1", self.code["print both"], self.code["recursion"]]):
            self.kernel.send({"type": "execute", "id": number, "code": code, "late_start": True})
            messages = [self.kernel.receive()]
            while messages[-1]["type"] != "done":
                messages.append(self.kernel.receive())
            self.assertEqual((messages[0]["type"], {m["id"] for m in messages}), ("start", {number}))
            self.assertEqual(sum(m["type"] == "start" for m in messages), 1)

    def test_shutdown(self):
        self.kernel.run(self.code["print both"])
        self.kernel.send({"type": "shutdown"})
        self.assertEqual(self.kernel.process.wait(PATIENCE), 0)

    def test_a_dead_program_closes_the_channel(self):
        with self.assertRaises(EOFError):
            self.kernel.run(self.code["kill itself"])
        self.kernel.process.wait(PATIENCE)


class DescriptorContract(Contract):
    """Cases that need the descriptor itself."""

    def test_the_end_of_the_channel_ends_the_kernel(self):
        self.kernel.hang_up()
        self.assertEqual(self.kernel.process.wait(PATIENCE), 0)

    def test_garbage_ends_the_kernel(self):
        os.write(self.kernel.write_fd, b"\xff\xff\xff\xff")
        self.assertEqual(self.kernel.process.wait(PATIENCE), 70)

    def test_subprocesses_do_not_inherit_it(self):
        listing = self.value(self.code["descriptors of a child"])
        self.assertNotIn("socket", listing)

    def test_interrupt_reaches_the_whole_group(self):
        self.kernel.start(self.code["wait for a child"])
        self.kernel.wait_for("stdout", "started")
        os.killpg(self.kernel.process.pid, signal.SIGINT)
        self.assertIn(self.kernel.finish().status, ("ok", "error", "interrupted"))
        self.assertEqual(self.value("1 + 1"), "2")


class NonceContract(Contract):
    """Cases of the relay."""

    def test_lines_of_others_are_ignored(self):
        self.kernel.process.stdin.write(b"hello\n0123>interrupt:\n\n")
        self.kernel.process.stdin.flush()
        self.assertEqual(self.value("1 + 1"), "2")

    def test_lines_are_short(self):
        self.kernel.run(self.code["much output"])
        self.kernel.run(self.code["50 MB"], timeout=120)
        self.assertLessEqual(self.kernel.largest_frame, 24576)

    def test_the_end_of_stdin_ends_even_a_busy_kernel(self):
        self.kernel.start(self.code["silent loop"])
        self.kernel.process.stdin.close()
        self.assertNotEqual(self.kernel.process.wait(PATIENCE), None)

    def test_a_busy_kernel_does_not_outlive_its_relay(self):
        pid = int(self.value(self.code["own pid"]))
        self.kernel.start(self.code["silent loop"])
        self.kernel.process.kill()
        deadline = time.monotonic() + PATIENCE
        while os.path.exists("/proc/%d" % pid) and process_state(pid) != "Z":
            self.assertLess(time.monotonic(), deadline, "the kernel is still there")
            time.sleep(0.05)


def process_state(pid):
    try:
        with open("/proc/%d/stat" % pid) as stat:
            return stat.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"
