"""Starts a kernel as a real process and speaks its protocol, over either transport."""

import atexit
import base64
import json
import os
import queue
import re
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

KERNELS = Path(__file__).resolve().parent.parent
PYTHON = os.environ.get("SANDSTORM_TEST_PYTHON", "/usr/bin/python3")
NODE = os.environ.get("SANDSTORM_TEST_NODE", "/usr/bin/node")
REQUIRE_ALL = os.environ.get("SANDSTORM_REQUIRE_ALL") == "1"
PATIENCE = float(os.environ.get("SANDSTORM_TEST_PATIENCE", "60"))
MORE = 1 << 31
MAX_FRAME = 1 << 20


# The catalogue's own files say how each kernel is started.
def command(language):
    import tomllib

    with open(KERNELS.parent / "data" / (language + ".toml"), "rb") as file:
        data = tomllib.load(file)
    chosen = {"python": PYTHON, "node": NODE}
    programs = {
        name: chosen.get(name) or next(filter(None, map(shutil.which, known)), "/usr/bin/" + known[0])
        for name, known in data["programs"].items()
    }
    kernel = data["kernel"]
    arguments = [*kernel["argv"], str(delivered(kernel["file"])), *kernel.get("args", ())]
    return [re.sub(r"\{(\w+)\}", lambda name: programs[name[1]], argument) for argument in arguments]


def delivered(name):
    """A kernel's file as the binary delivers it: TypeScript's is put together of two."""
    if name != "typescript.js":
        return KERNELS / name
    folder = Path(tempfile.mkdtemp(prefix="kernels-"))
    atexit.register(shutil.rmtree, folder)
    (folder / name).write_text((KERNELS / name).read_text() + (KERNELS / "javascript.js").read_text())
    return folder / name


COMMANDS = {language: command(language) for language in ("bash", "java", "javascript", "python", "r", "typescript")}


def missing(reason):
    """A skip with its reason; a failure where everything is required."""
    if REQUIRE_ALL:
        raise AssertionError(reason)
    raise unittest.SkipTest(reason)


class Outcome:
    """Everything that one cell produced."""

    def __init__(self, messages):
        self.messages = messages
        self.done = messages[-1]
        self.status = self.done["status"]
        self.displays = [m for m in messages if m["type"] == "display"]
        self.result = next((m for m in messages if m["type"] == "result"), None)
        self.error = next((m for m in messages if m["type"] == "error"), None)

    @property
    def value(self):
        return self.result and self.result["data"]["text/plain"]


class Kernel:
    """One kernel. `transport` is `socket`, `pipes` or `nonce`; the caller sees no difference."""

    def __init__(self, language, transport="socket", env=None):
        self.inbox = queue.Queue()
        self.readers = []
        self.streams = {"stdout": bytearray(), "stderr": bytearray()}
        self.changed = threading.Condition()
        self.cells = 0
        self.largest_frame = 0
        self.frames_of_last_message = 0
        self.transport = transport
        environment = {**os.environ, **(env or {})}
        if transport == "nonce":
            self.nonce = secrets.token_hex(16)
            environment["SANDSTORM_KERNEL_NONCE"] = self.nonce
            self._spawn(language, environment, ())
            self._follow(self._read_lines)
            self._follow(self._read_stream, "stderr", self.process.stderr)
        else:
            self._open_control(language, environment, transport)
            self._follow(self._read_frames)
            self._follow(self._read_stream, "stdout", self.process.stdout)
            self._follow(self._read_stream, "stderr", self.process.stderr)
        self.ready = self.receive()

    def _open_control(self, language, environment, transport):
        if transport == "socket":
            ours, theirs = socket.socketpair()
            environment["SANDSTORM_KERNEL_FD"] = str(theirs.fileno())
            self._spawn(language, environment, (theirs.fileno(),))
            theirs.close()
            self.read_fd = self.write_fd = ours.detach()
        else:
            (their_read, self.write_fd), (self.read_fd, their_write) = os.pipe(), os.pipe()
            environment["SANDSTORM_KERNEL_IN"] = str(their_read)
            environment["SANDSTORM_KERNEL_OUT"] = str(their_write)
            self._spawn(language, environment, (their_read, their_write))
            os.close(their_read)
            os.close(their_write)

    def _spawn(self, language, environment, descriptors):
        self.process = subprocess.Popen(
            COMMANDS[language],
            env=environment,
            pass_fds=descriptors,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def _follow(self, reader, *args):
        thread = threading.Thread(target=reader, args=args, daemon=True)
        thread.start()
        self.readers.append(thread)

    def _read_stream(self, name, pipe):
        while data := os.read(pipe.fileno(), 65536):
            self._append(name, data)

    def _append(self, name, data):
        with self.changed:
            self.streams[name] += data
            self.changed.notify_all()

    def _read_frames(self):
        body, frames = bytearray(), 0
        while header := self._read_exactly(4):
            (word,) = struct.unpack("<I", header)
            size = word & ~MORE
            self.largest_frame = max(self.largest_frame, size)
            piece = self._read_exactly(size)
            if len(piece) < size:
                break
            body += piece
            frames += 1
            if not word & MORE:
                self._deliver(body, frames)
                body, frames = bytearray(), 0
        self.inbox.put(None)

    def _read_exactly(self, size):
        data = bytearray()
        while len(data) < size:
            try:
                chunk = os.read(self.read_fd, size - len(data))
            except OSError:
                chunk = b""
            if not chunk:
                return b""
            data += chunk
        return data

    def _read_lines(self):
        body, frames = bytearray(), 0
        prefix = (self.nonce + "<").encode()
        for line in self.process.stdout:
            if not line.startswith(prefix):
                continue
            kind, _, text = line[len(prefix) :].strip().partition(b":")
            payload = base64.b64decode(text, validate=True)
            self.largest_frame = max(self.largest_frame, len(payload))
            if kind in (b"stdout", b"stderr"):
                self._append(kind.decode(), payload)
                continue
            body += payload
            frames += 1
            if kind == b"message":
                self._deliver(body, frames)
                body, frames = bytearray(), 0
        self.inbox.put(None)

    def _deliver(self, body, frames):
        self.inbox.put((json.loads(body.decode("utf-8"), parse_constant=not_json), frames))

    def receive(self, timeout=PATIENCE):
        try:
            item = self.inbox.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError("no message from the kernel; stderr: %r" % bytes(self.streams["stderr"])) from None
        if item is None:
            raise EOFError("the kernel closed its control channel; stderr: %r" % bytes(self.streams["stderr"]))
        message, self.frames_of_last_message = item
        return message

    def send(self, message):
        body = json.dumps(message).encode()
        for start in range(0, len(body), MAX_FRAME):
            piece, more = body[start : start + MAX_FRAME], start + MAX_FRAME < len(body)
            if self.transport == "nonce":
                self._send_line("part" if more else "message", piece)
            else:
                data = struct.pack("<I", len(piece) | (MORE if more else 0)) + piece
                while data:
                    data = data[os.write(self.write_fd, data) :]

    def _send_line(self, kind, payload=b""):
        self.process.stdin.write(b"%s>%s:%s\n" % (self.nonce.encode(), kind.encode(), base64.b64encode(payload)))
        self.process.stdin.flush()

    def write_stdin(self, data):
        if self.transport == "nonce":
            self._send_line("stdin", data)
        else:
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def end_stdin(self):
        if self.transport == "nonce":
            self._send_line("stdin_end")
        else:
            self.process.stdin.close()

    def interrupt(self, group=False):
        if self.transport == "nonce":
            self._send_line("interrupt")
        elif group:
            os.killpg(self.process.pid, signal.SIGINT)
        else:
            os.kill(self.process.pid, signal.SIGINT)

    def start(self, code, silent=False):
        """Sends a cell and returns when it has begun."""
        self.cells += 1
        self.send({"type": "execute", "id": "cell-%d" % self.cells, "code": code, "silent": silent})
        message = self.receive()
        assert message["type"] == "start" and message["id"] == "cell-%d" % self.cells, message

    def finish(self, timeout=PATIENCE):
        messages = []
        while not messages or messages[-1]["type"] != "done":
            messages.append(self.receive(timeout))
            assert messages[-1]["id"] == "cell-%d" % self.cells, messages[-1]
        return Outcome(messages)

    def run(self, code, silent=False, timeout=PATIENCE):
        self.start(code, silent)
        return self.finish(timeout)

    def wait_for(self, stream, text, timeout=PATIENCE):
        """Waits until a stream holds `text` and gives all of it."""
        deadline = time.monotonic() + timeout
        wanted = text.encode()
        with self.changed:
            while wanted not in self.streams[stream]:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError("%s never held %r: %r" % (stream, text, bytes(self.streams[stream][-2000:])))
                self.changed.wait(left)
            return self.streams[stream].decode()

    def hang_up(self):
        """Ends what we send, as the death of the controller would."""
        if self.transport == "socket":
            with socket.socket(fileno=os.dup(self.write_fd)) as control:
                control.shutdown(socket.SHUT_WR)
        else:
            os.close(self.write_fd)
            self.write_fd = self.read_fd

    def close(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        # A reader that still runs would read from whatever gets its descriptor's number next.
        for reader in self.readers:
            reader.join(PATIENCE)
            assert not reader.is_alive(), "something outlived the kernel and holds its pipes"
        if self.transport != "nonce":
            for fd in {self.read_fd, self.write_fd}:
                os.close(fd)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                pipe.close()
            except (OSError, ValueError):
                pass


def not_json(name):
    raise AssertionError("%s is not JSON" % name)


class KernelTest(unittest.TestCase):
    language = None
    transport = "socket"

    def setUp(self):
        self.check_program()
        self.kernel = self.new_kernel()

    def check_program(self):
        program = COMMANDS[self.language][0]
        if not os.path.exists(program):
            missing("%s is not installed" % program)

    def new_kernel(self, **options):
        kernel = Kernel(self.language, options.pop("transport", self.transport), **options)
        self.addCleanup(kernel.close)
        return kernel

    def value(self, code):
        outcome = self.kernel.run(code)
        self.assertEqual(outcome.status, "ok", outcome.messages)
        return outcome.value
