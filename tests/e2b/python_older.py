"""An older release of the official Python SDK `e2b`, which speaks the API before its second version."""

import sys

import cases
from cases import raises
from e2b import CommandExitException, FileNotFoundException, FileType, PtySize, Sandbox, SandboxQuery, SandboxState


class fresh:
    """A sandbox for one case."""

    def __init__(self, **kwargs):
        self.kwargs = kwargs

    def __enter__(self):
        self.sandbox = Sandbox.create(**{"timeout": 120, **self.kwargs})
        return self.sandbox

    def __exit__(self, *_):
        self.sandbox.kill()


def case_sandboxes_are_made_found_and_ended():
    with fresh(metadata={"release": "older", "odd": "a&b=c d"}) as sandbox:
        query = SandboxQuery(metadata={"odd": "a&b=c d"}, state=[SandboxState.RUNNING])
        listed = Sandbox.list(query=query).next_items()
        assert [one.sandbox_id for one in listed] == [sandbox.sandbox_id]
        assert sandbox.get_info().metadata["release"] == "older"
        sandbox.set_timeout(60)
        again = Sandbox.connect(sandbox.sandbox_id)
        assert again.commands.run("echo again").stdout == "again\n"
    assert not sandbox.is_running()
    assert not sandbox.kill()


def case_commands_run_in_the_foreground_and_the_background():
    with fresh(envs={"FROM": "sandbox"}) as sandbox:
        done = sandbox.commands.run("echo $FROM; echo err >&2; pwd", envs={"X": "1"})
        assert (done.stdout, done.stderr) == ("sandbox\n/home/user\n", "err\n")
        failed = raises(CommandExitException, sandbox.commands.run, "exit 3")
        assert failed.exit_code == 3
        talk = sandbox.commands.run("read line; echo got $line", background=True, stdin=True)
        assert talk.pid in [one.pid for one in sandbox.commands.list()]
        sandbox.commands.send_stdin(talk.pid, "words\n")
        assert talk.wait().stdout == "got words\n"
        sleeper = sandbox.commands.run("sleep 60", background=True)
        assert sandbox.commands.kill(sleeper.pid) and not sandbox.commands.kill(sleeper.pid)


def case_files_are_written_listed_and_removed():
    with fresh() as sandbox:
        sandbox.files.write("folder/a.txt", "one")
        sandbox.files.write_files([{"path": "folder/b", "data": b"\x00\xff"}, {"path": "c", "data": "three"}])
        assert sandbox.files.read("folder/a.txt") == "one"
        assert bytes(sandbox.files.read("folder/b", format="bytes")) == b"\x00\xff"
        entries = {entry.name: entry.type for entry in sandbox.files.list("folder")}
        assert entries == {"a.txt": FileType.FILE, "b": FileType.FILE}
        assert sandbox.files.make_dir("new") and not sandbox.files.make_dir("new")
        sandbox.files.rename("c", "new/c")
        sandbox.files.remove("folder")
        assert not sandbox.files.exists("folder") and sandbox.files.exists("new/c")
        raises(FileNotFoundException, sandbox.files.read, "folder/a.txt")


def case_terminals_and_pauses():
    with fresh() as sandbox:
        terminal = sandbox.pty.create(size=PtySize(rows=24, cols=80))
        sandbox.pty.send_stdin(terminal.pid, b"echo $((40 + 2)); exit 5\n")
        seen = []
        failed = raises(CommandExitException, terminal.wait, on_pty=seen.append)
        assert failed.exit_code == 5 and b"42" in b"".join(seen)
        sandbox.files.write("kept", "x")
        assert sandbox.beta_pause() is not False
        assert sandbox.connect().files.read("kept") == "x"


if __name__ == "__main__":
    cases.run(sys.modules[__name__], lambda case: case())
