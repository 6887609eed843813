"""The official Python SDK `e2b`, as it blocks: sandboxes, commands, terminals, files, listing, life and death."""

import os
import sys
import time
import urllib.error
import urllib.request
import uuid

import cases
from cases import raises, until
from e2b import (
    AuthenticationException,
    CommandExitException,
    FileNotFoundException,
    FilesystemEventType,
    FileType,
    InvalidArgumentException,
    NotFoundException,
    Sandbox,
    SandboxException,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
    TimeoutException,
)
from e2b.exceptions import SandboxNotRunningException, SandboxUnreachableException
from e2b.sandbox.commands.command_handle import PtySize

OTHER_KEY = os.environ["OTHER_E2B_API_KEY"]


class fresh:
    """A sandbox for one case."""

    def __init__(self, *args, **kwargs):
        self.args, self.kwargs = args, kwargs

    def __enter__(self):
        self.sandbox = Sandbox.create(*self.args, **{"timeout": 120, **self.kwargs})
        return self.sandbox

    def __exit__(self, *_):
        self.sandbox.kill()


def case_create_and_kill():
    sandbox = Sandbox.create(timeout=60)
    assert len(sandbox.sandbox_id) == 26 and sandbox.sandbox_id.isalnum()
    assert sandbox.is_running()
    assert sandbox.kill() is True
    assert sandbox.kill() is False
    assert not sandbox.is_running()
    raises(SandboxNotFoundException, sandbox.get_info)
    raises(SandboxNotFoundException, sandbox.set_timeout, 10)
    raises(SandboxNotFoundException, Sandbox.connect, sandbox.sandbox_id)
    assert isinstance(raises(SandboxNotRunningException, sandbox.commands.run, "true"), TimeoutException)
    raises(SandboxNotRunningException, sandbox.files.read, "a")


def case_commands():
    with fresh(envs={"WHOLE": "sandbox"}) as sandbox:
        run = sandbox.commands.run
        assert run("echo hi").stdout == "hi\n"
        result = run("echo out; echo err >&2; pwd; whoami")
        assert (result.stderr, result.exit_code, result.error) == ("err\n", 0, None)
        assert result.stdout == "out\n/home/user\nuser\n", result
        assert run("pwd", cwd="/tmp").stdout == "/tmp\n"
        assert run("echo $WHOLE $ONE $E2B_SANDBOX $E2B_SANDBOX_ID", envs={"ONE": "command"}).stdout == (
            f"sandbox command true {sandbox.sandbox_id}\n"
        )
        error = raises(CommandExitException, run, "echo bad; exit 3")
        assert (error.exit_code, error.stdout, error.error) == (3, "bad\n", "exit status 3")
        heard = []
        run("echo 1; echo 2 >&2", on_stdout=heard.append, on_stderr=heard.append)
        assert sorted(heard) == ["1\n", "2\n"]
        assert run("printf 'ü%.0s' $(seq 50000)").stdout == "ü" * 50000
        raises(InvalidArgumentException, run, "true", cwd="/no/such/folder")
        raises(AuthenticationException, run, "true", user="nobody")
        raises(TimeoutException, run, "sleep 20", timeout=1)


def case_background_and_stdin():
    with fresh() as sandbox:
        handle = sandbox.commands.run("cat; echo over", background=True, stdin=True)
        listed = {process.pid: process for process in sandbox.commands.list()}
        assert listed[handle.pid].cmd == "/bin/bash" and listed[handle.pid].args[-1] == "cat; echo over"
        sandbox.commands.send_stdin(handle.pid, "one\n")
        handle.send_stdin(b"two\n")
        sandbox.commands.stream_input(handle.pid, ["three\n", b"four\n"])
        sandbox.commands.close_stdin(handle.pid)
        assert handle.wait().stdout == "one\ntwo\nthree\nfour\nover\n"
        assert handle.pid not in {process.pid for process in sandbox.commands.list()}

        sleeper = sandbox.commands.run("sleep 1000", background=True)
        assert sandbox.commands.kill(sleeper.pid) is True
        error = raises(CommandExitException, sleeper.wait)
        assert (error.exit_code, error.error) == (-1, "signal: killed")
        assert sandbox.commands.kill(sleeper.pid) is False
        raises(NotFoundException, sandbox.commands.connect, 7)
        raises(NotFoundException, sandbox.commands.send_stdin, 7, "x")


def case_reconnect_to_a_command():
    with fresh() as sandbox:
        handle = sandbox.commands.run("echo first; read line; echo got $line", background=True, stdin=True)
        for out, _, _ in handle:
            assert out == "first\n"
            break
        handle.disconnect()
        again = sandbox.commands.connect(handle.pid)
        sandbox.commands.send_stdin(handle.pid, "it\n")
        assert again.wait().stdout == "got it\n"


def case_terminal():
    with fresh() as sandbox:
        handle = sandbox.pty.create(PtySize(rows=24, cols=80), envs={"FOO": "bar"}, cwd="/tmp")
        sandbox.pty.resize(handle.pid, PtySize(rows=30, cols=100))
        sandbox.pty.send_stdin(handle.pid, b"stty size; echo $FOO $TERM; pwd; exit 0\n")
        seen = bytearray()
        result = handle.wait(on_pty=seen.extend)
        assert result.exit_code == 0
        for wanted in (b"30 100", b"bar xterm-256color", b"/tmp"):
            assert wanted in seen, seen
        other = sandbox.pty.create(PtySize(rows=24, cols=80))
        assert sandbox.pty.kill(other.pid) is True
        assert sandbox.pty.kill(other.pid) is False


def case_files():
    with fresh() as sandbox:
        files = sandbox.files
        info = files.write("a.txt", "hello ü")
        assert (info.path, info.name) == ("/home/user/a.txt", "a.txt")
        assert files.read("a.txt") == "hello ü" == files.read("/home/user/a.txt") == files.read("~/a.txt")
        assert files.read("a.txt", format="bytes") == "hello ü".encode()
        files.write("deep/er/b.bin", bytes(range(256)) * 4000)
        assert files.read("deep/er/b.bin", format="bytes") == bytes(range(256)) * 4000
        assert b"".join(files.read("deep/er/b.bin", format="stream")) == bytes(range(256)) * 4000
        assert files.read("deep/er/b.bin", format="bytes", gzip=True) == bytes(range(256)) * 4000
        files.write("packed.txt", "x" * 100_000, gzip=True)
        assert files.read("packed.txt") == "x" * 100_000
        with open(__file__, "rb") as this:
            files.write("stream.py", this)
        assert "official Python SDK" in files.read("stream.py")
        written = files.write_files([{"path": "/tmp/x/1", "data": "1"}, {"path": "2", "data": b"2"}])
        assert [one.path for one in written] == ["/tmp/x/1", "/home/user/2"]
        assert (files.read("/tmp/x/1"), files.read("2")) == ("1", "2")

        assert files.exists("a.txt") and not files.exists("none")
        entry = files.get_info("a.txt")
        assert (entry.type, entry.size, entry.permissions) == (FileType.FILE, 8, "-rw-r--r--"), entry
        assert (entry.owner, entry.group, entry.mode) == ("user", "user", 0o644)
        assert files.make_dir("d/e") is True and files.make_dir("d/e") is False
        names = {entry.path: entry.type for entry in files.list("deep", depth=2)}
        assert names == {"/home/user/deep/er": FileType.DIR, "/home/user/deep/er/b.bin": FileType.FILE}
        assert files.rename("a.txt", "moved/a.txt").path == "/home/user/moved/a.txt"
        files.remove("moved")
        assert not files.exists("moved")
        sandbox.commands.run("ln -s deep link")
        assert [entry.path for entry in files.list("link")] == ["/home/user/link/er"]
        assert files.get_info("link").symlink_target == "/home/user/deep"

        raises(FileNotFoundException, files.read, "none")
        raises(FileNotFoundException, files.list, "none")
        raises(FileNotFoundException, files.get_info, "none")
        raises(FileNotFoundException, files.rename, "none", "other")
        raises(InvalidArgumentException, files.list, "packed.txt")
        raises(InvalidArgumentException, files.read, "deep")
        raises(InvalidArgumentException, files.make_dir, "packed.txt")
        raises(AuthenticationException, files.read, "packed.txt", user="nobody")


def case_file_metadata():
    with fresh() as sandbox:
        files, kept = sandbox.files, {"author": "Ada L.", "purpose": "upload"}
        assert files.write("d/m.txt", "x", metadata=kept).metadata == kept
        assert files.get_info("d/m.txt").metadata == kept
        assert [entry.metadata for entry in files.list("d")] == [kept]
        assert files.rename("d/m.txt", "d/n.txt").metadata == kept
        with open(__file__, "rb") as this:
            assert files.write("stream.py", this, metadata={"Key": "v"}).metadata == {"key": "v"}
        assert files.get_info("stream.py").metadata == {"key": "v"}
        both = files.write_files([{"path": "1", "data": "1"}, {"path": "2", "data": "2"}], metadata=kept)
        assert [info.metadata for info in both] == [files.get_info(name).metadata for name in ("1", "2")] == [kept, kept]
        assert files.write("1", "again").metadata is None and files.get_info("1").metadata is None
        # Programs keep it in the same place, and find it there.
        run = sandbox.commands.run
        run("python3 -c \"import os; os.setxattr('1', 'user.e2b.by', b'a program')\"")
        assert files.get_info("1").metadata == {"by": "a program"}
        assert run("python3 -c \"import os; print(os.getxattr('2', 'user.e2b.author').decode())\"").stdout == "Ada L.\n"
        # What a program keeps there without end is not told without end.
        run("python3 -c \"import os; os.setxattr('1', 'user.e2b.large', b'x' * 8000)\" || true")
        assert files.get_info("1").metadata == {"by": "a program"}
        for bad in ({"bad key": "v"}, {"": "v"}, {"k": "a\nb"}, {"k": "x" * 5000}):
            raises(InvalidArgumentException, files.write, "bad.txt", "x", metadata=bad)
        assert not files.exists("bad.txt")


def case_watch():
    with fresh() as sandbox:
        sandbox.files.make_dir("w/below")
        handle = sandbox.files.watch_dir("w", recursive=True)
        sandbox.files.write("w/below/new.txt", "x")
        sandbox.commands.run("echo 1 > w/a; echo 2 >> w/a; mv w/a w/b; rm w/b")
        seen = set()

        def complete():
            seen.update((event.name, event.type) for event in handle.get_new_events())
            return {
                ("a", FilesystemEventType.CREATE),
                ("a", FilesystemEventType.WRITE),
                ("b", FilesystemEventType.REMOVE),
            } <= seen and any(name.endswith("new.txt") for name, _ in seen)

        try:
            until(complete)
        except AssertionError:
            raise AssertionError(seen)
        assert ("a", FilesystemEventType.RENAME) in seen, seen
        handle.stop()
        raises(SandboxException, handle.get_new_events)
        raises(FileNotFoundException, sandbox.files.watch_dir, "none")
        raises(InvalidArgumentException, sandbox.files.watch_dir, "/etc/passwd")


def case_watched_writes():
    """Exactly what the caller did is told, at once, and nothing of how files are written here."""
    kinds = FilesystemEventType
    with fresh() as sandbox:
        files = sandbox.files
        files.make_dir("w")
        handle = files.watch_dir("w", recursive=True, include_entry=True, allow_network_mounts=True)

        def seen():
            return [(event.name, event.type) for event in handle.get_new_events()]

        files.write("w/a", "12345")
        events = handle.get_new_events()
        assert [(event.name, event.type) for event in events] == [
            ("a", kinds.CREATE),
            ("a", kinds.CHMOD),
            ("a", kinds.WRITE),
        ], events
        assert all((event.entry.path, event.entry.size) == ("/home/user/w/a", 5) for event in events), events
        files.write("w/a", "again")
        assert seen() == [("a", kinds.WRITE)]
        sandbox.commands.run("chmod 600 w/a")
        assert seen() == [("a", kinds.CHMOD)]
        files.rename("w/a", "w/b")
        assert seen() == [("a", kinds.RENAME), ("b", kinds.CREATE)]
        files.make_dir("w/new")
        files.write("w/new/c", "x")
        told = []
        until(lambda: told.extend(seen()) or ("new/c", kinds.WRITE) in told)
        assert ("new", kinds.CREATE) in told and not [name for name, _ in told if "sandstorm" in name], told
        files.remove("w/new")
        until(lambda: told.extend(seen()) or ("new", kinds.REMOVE) in told)
        assert not [name for name, _ in told if name[0] in ".#"], told
        handle.stop()


def case_root():
    with fresh() as sandbox:
        files, run = sandbox.files, sandbox.commands.run
        assert run("id -u; whoami; pwd; echo $HOME", user="root").stdout == "0\nroot\n/root\n/root\n"
        for folder in ("/", "/home/user", "/tmp", "/workspace", "/usr/bin", "/root"):
            assert run("pwd", user="root", cwd=folder).stdout == f"{folder}\n"
        info = files.write("notes/a.txt", "root's", user="root")
        assert info.path == "/root/notes/a.txt"
        entry = files.get_info("~/notes/a.txt", user="root")
        assert (entry.owner, entry.group, entry.size) == ("root", "root", 6)
        assert files.read("/root/notes/a.txt", user="root") == "root's"
        assert run("cat notes/a.txt; echo more > notes/b.txt", user="root").stdout == "root's"
        assert [entry.name for entry in files.list("/root/notes", user="root")] == ["a.txt", "b.txt"]
        assert files.rename("notes/a.txt", "c.txt", user="root").path == "/root/c.txt"
        files.remove("/root/notes", user="root")
        assert files.make_dir("/root/made", user="root") is True
        # It is root's alone.
        raises(SandboxException, files.write, "/root/x", "x")
        raises(SandboxException, files.read, "/root/c.txt")
        assert raises(CommandExitException, run, "ls /root").exit_code == 2
        # In places that everybody writes, root's files are root's; in the user's, where root has no rights, the user's.
        files.write("/tmp/of-root", "x", user="root")
        assert files.get_info("/tmp/of-root").owner == "root"
        files.write("/tmp/of-user", "x")
        files.write("/tmp/of-user", "again", user="root")
        files.write("/home/user/deep/er/a", "x", user="root")
        assert (files.get_info("deep/er/a").owner, files.read("deep/er/a")) == ("user", "x")
        files.write("/workspace/a", "x", user="root")
        run("echo user > deep/er/a; mkdir -m 700 closed; echo secret > closed/a")
        assert files.read("/home/user/closed/a", user="root") == "secret\n"
        assert [entry.name for entry in files.list("/home/user/closed", user="root")] == ["a"]
        files.remove("/home/user/closed", user="root")
        watcher = files.watch_dir("/root", user="root")
        files.write("/root/seen", "x", user="root")
        assert [event.name for event in watcher.get_new_events()] == ["seen"] * 3
        raises(SandboxException, files.write, "/usr/bin/x", "x", user="root")
        raises(SandboxException, files.write, "/etc/x", "x", user="root")


def case_sudo_and_python():
    with fresh() as sandbox:
        run = sandbox.commands.run
        assert run("python -c 'print(6 * 7)'").stdout == "42\n"
        assert run("sudo -n -E -u root VALUE=1 sh -c 'echo $VALUE'").stdout == "1\n"
        assert run("sudo -i 'echo shell'; sudo -v && sudo -n true && echo fine").stdout == "shell\nfine\n"
        assert raises(CommandExitException, run, "sudo sh -c 'exit 3'").exit_code == 3
        # It gives nothing that the caller has not.
        assert raises(CommandExitException, run, "sudo touch /usr/bin/x").exit_code == 1
        assert run("sudo -u root id -u; sudo grep CapEff /proc/self/status").stdout == "1000\nCapEff:\t0000000000000000\n"
        assert run("sudo id -u", user="root").stdout == "0\n"


def fetch(url, data=None, headers=None):
    request = urllib.request.Request(url, data=data, headers=headers or {})
    with urllib.request.urlopen(request) as answer:
        return answer.read()


def case_signed_urls():
    with fresh() as sandbox, fresh() as other:
        sandbox.files.write("a b.txt", "signed")
        other.files.write("a b.txt", "other")
        assert fetch(sandbox.download_url("a b.txt")) == b"signed"
        assert fetch(sandbox.download_url("a b.txt", use_signature_expiration=60)) == b"signed"
        form = (
            b"--cut\r\nContent-Disposition: form-data; name=\"file\"; filename=\"up.txt\"\r\n\r\nuploaded\r\n--cut--\r\n"
        )
        head = {"Content-Type": "multipart/form-data; boundary=cut"}
        fetch(sandbox.upload_url("up.txt"), form, head)
        assert sandbox.files.read("up.txt") == "uploaded"
        assert not other.files.exists("up.txt")
        late = sandbox.download_url("a b.txt", use_signature_expiration=-60)
        assert "already expired" in raises(urllib.error.HTTPError, fetch, late).read().decode()
        for forged in (
            sandbox.download_url("a b.txt").replace("signature=v1_", "signature=v1_x"),
            sandbox.download_url("a b.txt").replace("a%20b.txt", "up.txt").replace("a+b.txt", "up.txt"),
        ):
            error = raises(urllib.error.HTTPError, fetch, forged)
            assert error.code == 401 and "invalid signature" in error.read().decode()


def case_metadata_and_listing():
    mark = uuid.uuid4().hex
    with fresh(metadata={"mark": mark, "n": "1", "odd": "a=b&c d"}) as one, fresh(metadata={"mark": mark}) as two:
        query = SandboxQuery(metadata={"mark": mark})
        pager = Sandbox.list(query=query, limit=1)
        seen = []
        while pager.has_next:
            seen.extend(info.sandbox_id for info in pager.next_items())
        assert seen == [two.sandbox_id, one.sandbox_id]
        since = SandboxQuery(metadata={"mark": mark}, started_after=two.get_info().started_at)
        assert two.sandbox_id in [info.sandbox_id for info in Sandbox.list(query=since).next_items()]
        oldest = Sandbox.list(query=query, order="asc").next_items()
        assert [info.sandbox_id for info in oldest] == seen[::-1]
        found = Sandbox.list(query=SandboxQuery(metadata={"mark": mark, "odd": "a=b&c d"})).next_items()
        assert [info.sandbox_id for info in found] == [one.sandbox_id]
        info = one.get_info()
        assert info.metadata == {"mark": mark, "n": "1", "odd": "a=b&c d"}
        assert (info.state, info.template_id) == (SandboxState.RUNNING, "base")
        assert info.cpu_count >= 1 and info.memory_mb >= 128 and info.end_at > info.started_at
        two.pause()
        paused = Sandbox.list(query=SandboxQuery(metadata={"mark": mark}, state=[SandboxState.PAUSED])).next_items()
        assert [info.sandbox_id for info in paused] == [two.sandbox_id]
        assert not Sandbox.list(query=query, api_key=OTHER_KEY).next_items()


def case_timeouts():
    with fresh(timeout=60) as sandbox:
        before = sandbox.get_info().end_at
        sandbox.set_timeout(600)
        after = sandbox.get_info().end_at
        assert 500 < (after - before).total_seconds() < 600
        Sandbox.connect(sandbox.sandbox_id, timeout=5)
        assert sandbox.get_info().end_at == after
        raises(SandboxException, sandbox.set_timeout, 10**7)
        sandbox.set_timeout(1)
        until(lambda: not sandbox.is_running())
        raises(SandboxNotRunningException, sandbox.commands.run, "true")


def case_pause_and_connect():
    with fresh() as sandbox:
        sandbox.files.write("kept.txt", "kept")
        handle = sandbox.commands.run("sleep 2; echo done > done.txt", background=True)
        assert sandbox.pause() is True
        assert sandbox.pause() is False
        assert sandbox.get_info().state == SandboxState.PAUSED
        assert not sandbox.is_running()
        raises(SandboxNotRunningException, sandbox.files.read, "kept.txt")
        time.sleep(3)
        again = Sandbox.connect(sandbox.sandbox_id, timeout=60)
        assert again.sandbox_id == sandbox.sandbox_id
        assert again.files.read("kept.txt") == "kept"
        assert sandbox.get_info().state == SandboxState.RUNNING
        until(lambda: again.files.exists("done.txt"))
        assert handle.pid


def case_pause_at_the_end_and_wake_by_traffic():
    wake = {"on_timeout": "pause", "auto_resume": True}
    with fresh(timeout=2, lifecycle=wake) as sandbox:
        sandbox.files.write("kept.txt", "kept")
        until(lambda: sandbox.get_info().state == SandboxState.PAUSED)
        assert sandbox.files.read("kept.txt") == "kept"


def case_metrics():
    with fresh() as sandbox:
        sandbox.commands.run("head -c 3000000 /dev/zero > zeros; for i in $(seq 200000); do :; done")
        metrics = until(sandbox.get_metrics, 30)
        last = metrics[-1]
        assert last.cpu_count >= 1 and last.mem_total > last.mem_used > 0
        assert last.disk_total > last.disk_used >= 3_000_000
        assert last.cpu_used_pct >= 0 and last.timestamp


def case_fork():
    with fresh() as sandbox:
        sandbox.files.write("kept.txt", "kept", metadata={"k": "v"})
        forks = sandbox.fork(timeout=60, count=2)
        try:
            assert all(isinstance(fork, Sandbox) for fork in forks), forks
            assert len({fork.sandbox_id for fork in forks} | {sandbox.sandbox_id}) == 3
            assert [fork.files.read("kept.txt") for fork in forks] == ["kept", "kept"]
            assert [fork.files.get_info("kept.txt").metadata for fork in forks] == [{"k": "v"}] * 2
        finally:
            for fork in forks:
                fork.kill()


def case_snapshots():
    with fresh() as sandbox:
        sandbox.files.write("kept.txt", "then", metadata={"k": "v"})
        sandbox.files.write("/workspace/deep/er/data.bin", b"\x00" * 2_000_000)
        sandbox.commands.run("chmod 750 kept.txt && ln -s kept.txt link && mkfifo pipe")
        handle = sandbox.commands.run("read line; echo got $line", background=True, stdin=True)
        snapshot = sandbox.create_snapshot()
        try:
            assert snapshot.snapshot_id and snapshot.names == []
            sandbox.files.write("kept.txt", "now")
            sandbox.files.write("later.txt", "later")
            handle.send_stdin("on\n")
            assert handle.wait().stdout == "got on\n", "what runs goes on"
            one, two = (Sandbox.create(snapshot.snapshot_id, timeout=60) for _ in range(2))
            try:
                assert one.get_info().template_id == snapshot.snapshot_id
                one.files.write("kept.txt", "one")
                assert two.files.read("kept.txt") == "then" and two.files.get_info("kept.txt").metadata == {"k": "v"}
                assert not two.files.exists("later.txt")
                seen = two.commands.run("stat -c '%a %F' kept.txt; readlink link; stat -c %F pipe; wc -c </workspace/deep/er/data.bin")
                assert seen.stdout.split("\n")[:4] == ["750 regular file", "kept.txt", "fifo", "2000000"], seen.stdout
                assert two.commands.list() == []
            finally:
                one.kill(), two.kill()
        finally:
            assert Sandbox.delete_snapshot(snapshot.snapshot_id) is True
        assert Sandbox.delete_snapshot(snapshot.snapshot_id) is False
        assert "not found" in str(raises(SandboxException, Sandbox.create, snapshot.snapshot_id))


def case_snapshots_by_name():
    name = f"golden-{uuid.uuid4().hex}"
    made = []
    with fresh() as sandbox:
        try:
            sandbox.files.write("version", "1")
            made.append(Sandbox.create_snapshot(sandbox.sandbox_id, name=name))
            sandbox.files.write("version", "2")
            made.append(sandbox.create_snapshot(name=name, mode="filesystem"))
            assert made[1].names == [name]
            found = Sandbox.list_snapshots(name=name).next_items()
            assert [info.snapshot_id for info in found] == [made[1].snapshot_id], "the newest has the name"
            assert Sandbox.list_snapshots(name=f"{name}-not").next_items() == []
            pages, seen = sandbox.list_snapshots(limit=1), []
            while pages.has_next:
                seen += [info.snapshot_id for info in pages.next_items()]
            assert seen == [info.snapshot_id for info in reversed(made)]
            for template, version in ((name, "2"), (made[0].snapshot_id, "1")):
                started = Sandbox.create(template, timeout=60)
                try:
                    assert started.files.read("version") == version
                finally:
                    started.kill()
            assert "memory cannot be true" in str(raises(SandboxException, sandbox.create_snapshot, mode="full"))
            assert "name of a template" in str(raises(SandboxException, sandbox.create_snapshot, name="base"))
            sandbox.pause()
            raises(SandboxException, sandbox.create_snapshot)
        finally:
            for snapshot in made:
                Sandbox.delete_snapshot(snapshot.snapshot_id)
    raises(SandboxNotFoundException, sandbox.create_snapshot)


def case_killed_while_a_command_runs():
    sandbox = Sandbox.create(timeout=60)
    handle = sandbox.commands.run("echo up; sleep 100", background=True)
    for out, _, _ in handle:
        assert out == "up\n"
        break
    sandbox.kill()
    try:
        handle.wait()
    except (SandboxNotRunningException, SandboxUnreachableException, TimeoutException):
        return
    raise AssertionError("a command outlived its sandbox")


if __name__ == "__main__":
    cases.run(sys.modules[__name__], lambda case: case())
