"""The official Python SDK `e2b`, as it waits: what it does otherwise than the blocking one."""

import asyncio
import sys

import cases
from cases import araises
from e2b import (
    AsyncSandbox,
    CommandExitException,
    FileNotFoundException,
    FilesystemEventType,
    SandboxNotFoundException,
    TimeoutException,
)
from e2b.exceptions import SandboxNotRunningException
from e2b.sandbox.commands.command_handle import PtySize


class fresh:
    def __init__(self, **kwargs):
        self.kwargs = {"timeout": 120, **kwargs}

    async def __aenter__(self):
        self.sandbox = await AsyncSandbox.create(**self.kwargs)
        return self.sandbox

    async def __aexit__(self, *_):
        await self.sandbox.kill()


async def case_life():
    sandbox = await AsyncSandbox.create(timeout=60, metadata={"a": "b"})
    assert await sandbox.is_running()
    assert (await sandbox.get_info()).metadata == {"a": "b"}
    assert await sandbox.pause() is True and await sandbox.pause() is False
    again = await AsyncSandbox.connect(sandbox.sandbox_id)
    assert (await again.commands.run("echo awake")).stdout == "awake\n"
    assert await sandbox.kill() is True and await sandbox.kill() is False
    await araises(SandboxNotFoundException, sandbox.get_info())
    await araises(SandboxNotRunningException, sandbox.commands.run("true"))


async def case_a_sandbox_that_ends_takes_its_commands_along():
    async with fresh() as sandbox:
        command = await sandbox.commands.run("sleep 60", background=True)
        await sandbox.set_timeout(0)
        error = await araises(SandboxNotRunningException, command.wait())
        assert "killed or reached its end of life" in str(error), error
        assert not await sandbox.is_running()


async def case_a_pause_without_memory():
    async with fresh() as sandbox:
        await sandbox.files.write("kept.txt", "kept")
        command = await sandbox.commands.run("sleep 600", background=True)
        assert await sandbox.pause(keep_memory=False) is True
        await araises(SandboxNotRunningException, command.wait())
        assert await sandbox.pause(keep_memory=False) is False
        again = await sandbox.connect()
        assert await again.files.read("kept.txt") == "kept" and await again.commands.list() == []


async def case_snapshots():
    async with fresh() as sandbox:
        await sandbox.files.write("kept", "then")
        snapshot = await sandbox.create_snapshot()
        try:
            async with fresh(template=snapshot.snapshot_id) as started:
                assert await started.files.read("kept") == "then"
            pages = AsyncSandbox.list_snapshots(sandbox_id=sandbox.sandbox_id)
            assert [info.snapshot_id for info in await pages.next_items()] == [snapshot.snapshot_id]
        finally:
            assert await AsyncSandbox.delete_snapshot(snapshot.snapshot_id) is True
        assert await AsyncSandbox.delete_snapshot(snapshot.snapshot_id) is False


async def case_commands():
    async with fresh() as sandbox:
        many = await asyncio.gather(*(sandbox.commands.run(f"echo {n}") for n in range(20)))
        assert [result.stdout for result in many] == [f"{n}\n" for n in range(20)]
        error = await araises(CommandExitException, sandbox.commands.run("exit 4"))
        assert error.exit_code == 4
        await araises(TimeoutException, sandbox.commands.run("sleep 20", timeout=1))
        heard = []
        handle = await sandbox.commands.run("cat", background=True, stdin=True, on_stdout=heard.append)
        await sandbox.commands.send_stdin(handle.pid, "hello")
        await sandbox.commands.close_stdin(handle.pid)
        assert (await handle.wait()).stdout == "hello" == "".join(heard)


async def case_terminal():
    async with fresh() as sandbox:
        seen = bytearray()
        handle = await sandbox.pty.create(PtySize(rows=24, cols=80), on_data=seen.extend)
        await sandbox.pty.send_stdin(handle.pid, b"echo to$((1+1))gether; exit 7\n")
        error = await araises(CommandExitException, handle.wait())
        assert error.exit_code == 7 and b"to2gether" in seen


async def case_files_and_watch():
    async with fresh() as sandbox:
        events = []
        await sandbox.files.make_dir("w")
        handle = await sandbox.files.watch_dir("w", on_event=events.append)
        await sandbox.files.write("w/a.txt", "x")
        for _ in range(100):
            if any(event.name == "a.txt" for event in events):
                break
            await asyncio.sleep(0.1)
        kinds = {event.type for event in events if event.name == "a.txt"}
        assert kinds & {FilesystemEventType.CREATE, FilesystemEventType.WRITE}, events
        await handle.stop()
        assert await sandbox.files.read("w/a.txt") == "x"
        stream = await sandbox.files.read("w/a.txt", format="stream")
        assert b"".join([piece async for piece in stream]) == b"x"
        await araises(FileNotFoundException, sandbox.files.read("none"))
        names = [entry.name for entry in await sandbox.files.list("w")]
        assert names == ["a.txt"]


async def case_many_sandboxes():
    made = await asyncio.gather(*(AsyncSandbox.create(timeout=60) for _ in range(5)))
    try:
        said = await asyncio.gather(*(one.commands.run("echo $E2B_SANDBOX_ID") for one in made))
        assert [result.stdout.strip() for result in said] == [one.sandbox_id for one in made]
    finally:
        await asyncio.gather(*(one.kill() for one in made))


if __name__ == "__main__":
    cases.run(sys.modules[__name__], lambda case: asyncio.run(case()))
