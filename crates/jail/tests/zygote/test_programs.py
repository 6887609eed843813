"""The same programs by `python3 main.py` and in a guest: output, errors and status are equal byte for byte."""

import os
import re
import shutil
import signal
import subprocess
import unittest

from harness import ENVIRONMENT, INTERPRETER, PATIENCE, Jail, Zygote, folder
from programs import PROGRAMS

# Who uid 1000 of the jail is out here.
OUTSIDE = 101000


def default_signals():
    """Whatever the tests were started with: a guest has no part in it."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def without_addresses(result):
    status, *streams = result
    return (status, *(re.sub(rb"0x[0-9a-f]{6,}", b"0x", stream) for stream in streams))


class Programs(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.zygote, cls.jail = Zygote(), Jail()
        version = cls.zygote.answer["ready"]["version"]
        cls.version = ".".join(version.split(".")[:2])

    @classmethod
    def tearDownClass(cls):
        cls.zygote.end()
        cls.jail.end()

    def prepare(self, place, program):
        """The folder as the program finds it: made anew for each of the two runs."""
        shutil.rmtree(place, ignore_errors=True)
        os.mkdir(place)
        files = {"main.py": program.get("main", ""), **program.get("files", {})}
        fill = {"{folder}": place, "{version}": self.version}
        for name, content in files.items():
            for word, value in fill.items():
                name = name.replace(word, value)
                content = content.replace(word, value) if isinstance(content, str) else content
            path = os.path.join(place, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
        for name, target in program.get("links", {}).items():
            path = os.path.join(place, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(target, path)
        os.chmod(place, 0o777)

    def plain(self, argv, env, cwd, stdin, close_stdout):
        process = subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            user=OUTSIDE,
            group=OUTSIDE,
            extra_groups=[],
            umask=0o022,
            start_new_session=True,
            preexec_fn=default_signals,
        )
        if close_stdout:
            process.stdout.close()
            process.stdout = None
        output, errors = process.communicate(stdin, timeout=PATIENCE)
        return process.returncode, output or b"", errors

    def guest(self, argv, env, cwd, stdin, close_stdout):
        guest = self.zygote.join(self.jail)
        guest.start(argv, env, cwd)
        self.assertIsNone(guest.status())
        return guest.finish(stdin, close_stdout)

    def compare(self, program):
        program = program if isinstance(program, dict) else {"main": program}
        place = folder()
        try:
            argv = [INTERPRETER, *(word.replace("{folder}", place) for word in program.get("argv", ["main.py"]))]
            given = {name: value.replace("{folder}", place) for name, value in program.get("env", {}).items()}
            cwd = os.path.join(place, program.get("cwd", "")).rstrip("/")
            rest = ({**ENVIRONMENT, **given}, cwd, program.get("stdin", "").encode(), program.get("close_stdout", False))
            self.prepare(place, program)
            expected = self.plain(argv, *rest)
            self.prepare(place, program)
            found = self.guest(argv, *rest)
            found, expected = without_addresses(found), without_addresses(expected)
            compared = 3 if program.get("errors", True) else 2
            self.assertEqual(found[:compared], expected[:compared])
        finally:
            shutil.rmtree(place)

    def test_there_are_enough(self):
        self.assertGreaterEqual(len(PROGRAMS), 60)


def add(name, program):
    def test(self):
        self.compare(program)

    setattr(Programs, "test_" + "".join(c if c.isalnum() else "_" for c in name), test)


for name, program in PROGRAMS.items():
    add(name, program)

if __name__ == "__main__":
    unittest.main()
