"""A server of its own for one bench, and the little HTTP that talking to it takes."""

import asyncio
import json
import os
import re
import signal
import subprocess
import tempfile


class Server:
    """`sandstorm serve` on a free port with a state directory of its own."""

    def __init__(self, binary, *settings):
        self.state = tempfile.TemporaryDirectory(prefix="sandstorm-bench-")
        os.chmod(self.state.name, 0o755)
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
        environment.update(pair.split("=", 1) for pair in settings)
        command = [binary, "serve", "--listen", "127.0.0.1:0", "--state-dir", os.path.join(self.state.name, "state")]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                        env=environment)
        self.port, self.key = None, None
        while self.port is None or self.key is None:
            line = self.process.stdout.readline()
            if not line:
                raise SystemExit("the server did not start")
            if found := re.search(r"listening on http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
            if found := re.search(r"(ss_[a-z0-9]+_[A-Za-z0-9_-]{43})", line):
                self.key = found[1]

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1]) * 1024

    def stop(self):
        # An interrupt means a stop that is meant to last: sandboxes and launcher end with it.
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=60)
        self.state.cleanup()


class Connection:
    """One keep-alive connection; one request at a time."""

    def __init__(self, server):
        self.server = server
        self.reader = self.writer = None

    async def send(self, method, path, body=None, accept="application/json"):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.server.port, limit=1 << 20)
        payload = b"" if body is None else json.dumps(body).encode()
        head = (f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self.server.key}\r\n"
                f"Accept: {accept}\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n")
        self.writer.write(head.encode() + payload)
        await self.writer.drain()
        status = int((await self.reader.readline()).split()[1])
        headers = {}
        while (line := await self.reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode().partition(":")
            headers[name.strip().lower()] = value.strip()
        return status, headers

    async def call(self, method, path, body=None):
        """A request with a JSON answer, or none."""
        status, headers = await self.send(method, path, body)
        content = b"".join([piece async for piece in self.pieces(headers)])
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {content[:300]!r}")
        return json.loads(content) if content else None

    async def pieces(self, headers):
        """The body as it arrives."""
        if headers.get("transfer-encoding") == "chunked":
            while size := int(await self.reader.readline(), 16):
                yield await self.reader.readexactly(size)
                await self.reader.readline()
            await self.reader.readline()
        elif length := int(headers.get("content-length", 0)):
            yield await self.reader.readexactly(length)

    async def events(self, path, body):
        """The events of a streaming request, as dictionaries."""
        status, headers = await self.send("POST", path, body, accept="text/event-stream")
        if status != 200:
            content = b"".join([piece async for piece in self.pieces(headers)])
            raise RuntimeError(f"POST {path}: {status} {content[:300]!r}")
        waiting = b""
        async for piece in self.pieces(headers):
            waiting += piece
            while b"\n\n" in waiting:
                block, waiting = waiting.split(b"\n\n", 1)
                data = b"".join(line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:"))
                if data:
                    yield json.loads(data)

    def close(self):
        if self.writer is not None:
            self.writer.close()
