"""The zygote itself: what it preloads, what its guests do not share, and that it stays as it is."""

import errno
import os
import shutil
import signal
import unittest
import unittest.mock

from harness import INTERPRETER, PROGRAM, Jail, Zygote, folder, skip

RANDOM = """
import os, random, secrets, sys, tempfile, uuid
print(random.random(), random.getrandbits(64), random.SystemRandom().random())
print(secrets.token_hex())
print(uuid.uuid4(), uuid.uuid1())
print(next(tempfile._get_candidate_names()))
print(os.urandom(8))
import ssl
print(ssl.RAND_bytes(8))
if "numpy" in sys.modules:
    import numpy
    print(numpy.random.rand(), numpy.random.randint(1 << 60))
    print(numpy.random.default_rng().random())
"""


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.jail, cls.place = Jail(), folder()

    @classmethod
    def tearDownClass(cls):
        cls.jail.end()
        shutil.rmtree(cls.place)

    def module(self, name, text):
        """A module that a zygote can import: it has no other place of its own than the interpreter's libraries, so the test
        starts it from a copy of the program beside the module."""
        with open(os.path.join(self.place, name + ".py"), "w") as file:
            file.write(text)

    def run_in(self, guest, source):
        path = os.path.join(self.place, "main.py")
        with open(path, "w") as file:
            file.write(source)
        guest.start([INTERPRETER, path], cwd=self.place)
        self.assertIsNone(guest.status())
        return guest.finish()


class Preload(Case):
    def setUp(self):
        import harness

        self.kept = harness.PROGRAM
        harness.PROGRAM = os.path.join(self.place, "zygote.py")
        shutil.copy(PROGRAM, harness.PROGRAM)

    def tearDown(self):
        import harness

        harness.PROGRAM = self.kept

    def test_imported_missing_and_failing(self):
        self.module("fine_one", "value = 7\n")
        self.module("failing_one", "1/0\n")
        self.module("leaving_one", "raise SystemExit(3)\n")
        zygote = Zygote(preload=["fine_one", "failing_one", "leaving_one", "not_there"])
        ready = zygote.answer["ready"]
        self.assertEqual(ready["preloaded"], ["fine_one"])
        self.assertEqual(ready["missing"], ["failing_one", "leaving_one", "not_there"])
        os.rename(os.path.join(self.place, "fine_one.py"), os.path.join(self.place, "moved"))
        status, output, errors = self.run_in(zygote.join(self.jail), "import fine_one\nprint(fine_one.value)\n")
        self.assertEqual((status, output), (0, b"7\n"), errors)
        zygote.end()

    def test_nothing_is_left_of_a_package_that_fails_half_way(self):
        # As one that finds no place for its files: a guest has such a place.
        self.module("half_part", "value = 7\n")
        self.module("half_one", "import os, half_part\nif not os.path.exists('/proc/self'): raise OSError('no place')\n")
        zygote = Zygote(preload=["half_one"])
        self.assertEqual(zygote.answer["ready"]["missing"], ["half_one"])
        status, output, errors = self.run_in(
            zygote.join(self.jail), "import sys\nprint([name for name in sys.modules if name.startswith('half')])\n"
        )
        self.assertEqual((status, output), (0, b"[]\n"), errors)
        zygote.end()

    def test_a_module_that_starts_a_thread_is_left_out(self):
        self.module("fine_one", "value = 7\n")
        self.module("threaded_one", "import threading, time\nthreading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()\n")
        # A thread that Python's own list does not know.
        self.module("native_one", "import _thread, time\n_thread.start_new_thread(time.sleep, (1e6,))\n")
        zygote = Zygote(preload=["threaded_one", "fine_one", "native_one"])
        ready = zygote.answer["ready"]
        self.assertEqual(ready["preloaded"], ["fine_one"])
        self.assertEqual(sorted(ready["missing"]), ["native_one", "threaded_one"])
        status, output, _ = self.run_in(zygote.join(self.jail), "print(open('/proc/self/status').read().count('Threads:\\t1\\n'))\n")
        self.assertEqual((status, output), (0, b"1\n"))
        zygote.end()

    def test_fork_hooks_of_preloaded_modules_run(self):
        self.module("hooked_one", "import os\nseen = []\nos.register_at_fork(after_in_child=lambda: seen.append(1))\n")
        zygote = Zygote(preload=["hooked_one"])
        # Beside the script it would be imported anew.
        os.unlink(os.path.join(self.place, "hooked_one.py"))
        status, output, errors = self.run_in(zygote.join(self.jail), "import hooked_one\nprint(hooked_one.seen)\n")
        self.assertEqual((status, output, errors), (0, b"[1]\n", b""))
        zygote.end()

    def test_known_program_begins_with_its_last_statement(self):
        known, main = (os.path.join(self.place, name) for name in ("known.py", "main.py"))
        source = "import os\nmade_by = os.getpid()\ndef tell(): print(__name__, __file__, tell.__code__.co_filename, made_by == os.getpid())\ntell()\n"
        with open(known, "w") as file:
            file.write(source)
        words = "__main__ %s %s %s\n"
        zygote = Zygote(known=[(known, main)])
        self.assertEqual(self.run_in(zygote.join(self.jail), source), (0, (words % (main, main, False)).encode(), b""))
        # Other bytes, or another name, and it is a program like any other.
        self.assertEqual(self.run_in(zygote.join(self.jail), source + "\n"), (0, (words % (main, main, True)).encode(), b""))
        zygote.end()
        zygote = Zygote(known=[(known, known)])
        self.assertEqual(self.run_in(zygote.join(self.jail), source), (0, (words % (main, main, True)).encode(), b""))
        zygote.end()

    def test_known_program_does_not_remember_a_guest(self):
        known, main = (os.path.join(self.place, name) for name in ("known.py", "main.py"))
        source = "seen = []\ndef tell(): seen.append(1); print(seen)\ntell()\n"
        with open(known, "w") as file:
            file.write(source)
        zygote = Zygote(known=[(known, main)])
        for _ in range(2):
            self.assertEqual(self.run_in(zygote.join(self.jail), source), (0, b"[1]\n", b""))
        zygote.end()

    def test_known_program_that_is_missing(self):
        zygote = Zygote(known=[("/not/there.py", "/main.py")])
        self.assertEqual(zygote.answer, {"failed": 0, "step": "known program", "errno": errno.ENOENT})
        zygote.end()

    def test_unknown_greeting(self):
        zygote = Zygote(hello=2)
        self.assertEqual(zygote.answer, {"failed": 0, "step": "hello", "errno": errno.EPROTO})
        zygote.end()


class Randomness(Case):
    def differ(self, preload):
        zygote = Zygote(preload=preload)
        if zygote.answer["ready"]["missing"]:
            skip("%s is not installed" % preload)
        outputs = []
        for _ in range(3):
            status, output, errors = self.run_in(zygote.join(self.jail), RANDOM)
            self.assertEqual((status, errors), (0, b""))
            outputs.append(output.decode().splitlines())
        zygote.end()
        for lines in zip(*outputs):
            words = [word for line in lines for word in line.split()]
            self.assertEqual(len(words), len(set(words)), lines)

    def test_of_the_standard_library(self):
        self.differ(["ssl"])

    def test_of_numpy(self):
        self.differ(["numpy"])

    def test_first_pid_is_not_what_makes_the_difference(self):
        """Two jails: both guests have the same pid, and still nothing in common."""
        zygote, other = Zygote(preload=["ssl"]), Jail()
        first, second = zygote.join(self.jail), zygote.join(other)
        lines = [self.run_in(guest, RANDOM)[1].decode().splitlines() for guest in (first, second)]
        for pair in zip(*lines):
            self.assertTrue(set(pair[0].split()).isdisjoint(pair[1].split()), pair)
        zygote.end()
        other.end()


class Layout(Case):
    def test_code_of_the_interpreter_is_no_file_in_large_pieces(self):
        zygote, large = Zygote(), 1 << 21
        with open("/proc/%d/maps" % zygote.pid) as file:
            maps = [line.split() for line in file]
        self.assertEqual(zygote.join(self.jail).abandon(), 0)
        zygote.end()
        for place, protection, *rest in maps:
            start, end = (int(address, 16) for address in place.split("-"))
            self.assertFalse("w" in protection and "x" in protection, place)
            if len(rest) > 3 and rest[3] == os.path.realpath(INTERPRETER):
                self.assertGreater(-(-start // large) * large + large, end, "%s is a file" % place)


class Endurance(Case):
    def test_two_thousand_joins_leave_it_as_it_was(self):
        zygote = Zygote()

        def size():
            with open("/proc/%d/status" % zygote.pid) as file:
                status = dict(line.split(":", 1) for line in file)
            resident = int(status["VmRSS"].split()[0])
            return resident, len(os.listdir("/proc/%d/fd" % zygote.pid)), int(status["Threads"])

        for _ in range(100):
            zygote.join(self.jail).abandon()
        before = size()
        for _ in range(2000):
            zygote.join(self.jail).abandon()
        after = size()
        self.assertEqual(after[1:], before[1:])
        self.assertLess(after[0] - before[0], 256, "KiB more than before")
        # It forks into its own pid namespace again when it is back.
        self.assertEqual(
            os.readlink("/proc/%d/ns/pid_for_children" % zygote.pid), os.readlink("/proc/self/ns/pid")
        )
        self.assertEqual(zygote.end(), 0)

    def test_many_guests_at_once(self):
        zygote = Zygote()
        guests = [zygote.join(self.jail) for _ in range(50)]
        self.assertEqual(len({guest.pid for guest in guests}), 50)
        for guest in guests:
            self.assertEqual(guest.abandon(), 0)
        zygote.end()

    def test_killed_guests_do_not_matter(self):
        zygote = Zygote()
        for _ in range(5):
            guest = zygote.join(self.jail)
            signal.pidfd_send_signal(guest.pidfd, signal.SIGKILL)
            self.assertEqual(guest.abandon(), -signal.SIGKILL)
        self.assertEqual(zygote.join(self.jail).abandon(), 0)
        zygote.end()


if __name__ == "__main__":
    unittest.main()
