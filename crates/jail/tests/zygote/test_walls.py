"""What a guest is: measured from inside it, and what happens when a wall cannot be put up."""

import ctypes
import errno
import json
import os
import resource
import shutil
import signal
import struct
import time
import unittest

from harness import ENVIRONMENT, INTERPRETER, NAMESPACES, PROGRAM, Jail, Zygote, encode_job, folder, skip

LOOK = r"""
import ctypes, json, os, resource, signal, stat, sys
libc = ctypes.CDLL(None, use_errno=True)
def refused(function, *arguments):
    return ctypes.get_errno() if function(*arguments) == -1 else 0
status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
def target(number):
    try:
        return os.readlink("/proc/self/fd/%d" % number).split(":")[0]
    except FileNotFoundError:
        return None
print(json.dumps({
    "status": status,
    "descriptors": {number: target(number) for number in range(2000) if target(number)},
    "namespaces": {n: os.readlink("/proc/self/ns/" + n) for n in os.listdir("/proc/self/ns")},
    "ids": [os.getresuid(), os.getresgid(), os.getgroups()],
    "session": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid(), os.getppid(), os.getpid()],
    "securebits": libc.prctl(27, 0, 0, 0, 0),
    "dumpable": libc.prctl(3, 0, 0, 0, 0),
    "death": (lambda word: (libc.prctl(2, ctypes.byref(word), 0, 0, 0), word.value)[1])(ctypes.c_int()),
    "limits": [resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE)],
    "refused": {
        "unshare": refused(libc.unshare, 0x10000000),
        "setns": refused(libc.setns, 0, 0),
        "mount": refused(libc.mount, b"none", b"/tmp", b"tmpfs", 0, None),
        "setuid": refused(libc.setuid, 0),
        "clone3": refused(libc.syscall, 435, 0, 0),
        "bounding": [n for n in range(64) if libc.prctl(23, n, 0, 0, 0) == 1],
    },
    "owner of its own files": os.stat("/proc/self/environ").st_uid,
    "cwd": os.getcwd(),
    "children": os.system("exit 3") >> 8,
}))
"""


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.zygote, cls.jail, cls.place = Zygote(), Jail(), folder()

    @classmethod
    def tearDownClass(cls):
        cls.zygote.end()
        cls.jail.end()
        shutil.rmtree(cls.place)

    def run_in(self, guest, source, **options):
        path = os.path.join(self.place, "main.py")
        with open(path, "w") as file:
            file.write(source)
        guest.start([INTERPRETER, path], cwd=self.place, **options)
        self.assertIsNone(guest.status())
        return guest.finish()


class Walls(Case):
    def look(self, **options):
        guest = self.zygote.join(self.jail, **options)
        status, output, errors = self.run_in(guest, LOOK)
        self.assertEqual((status, errors), (0, b""))
        return guest, json.loads(output)

    def test_measured_from_inside(self):
        limits = [[resource.RLIMIT_NOFILE, 100, 200], [resource.RLIMIT_CORE, 0, 0]]
        guest, seen = self.look(rlimits=limits)
        said = seen["status"]
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(said[name], 16), 0, name)
        self.assertEqual(said["NoNewPrivs"], "1")
        self.assertEqual(said["Seccomp"], "2")
        self.assertEqual(said["Threads"], "1")
        self.assertEqual(said["TracerPid"], "0")
        self.assertEqual(said["Groups"].split(), [])
        self.assertEqual(said["SigBlk"], "0" * 16)
        self.assertEqual(seen["ids"], [[1000] * 3, [1000] * 3, []])
        self.assertEqual(seen["session"][:3], [True, True, 0])
        self.assertEqual(seen["session"][3], guest.pid)
        self.assertEqual(seen["securebits"], 0xEF)
        self.assertEqual(seen["dumpable"], 1)
        self.assertEqual(seen["death"], signal.SIGKILL)
        self.assertEqual(seen["limits"], [[100, 200], [0, 0]])
        self.assertEqual(seen["owner of its own files"], 1000)
        self.assertEqual(seen["children"], 3)
        refused = seen["refused"]
        self.assertEqual(refused["bounding"], [])
        self.assertEqual(refused["clone3"], errno.ENOSYS)
        for name in ("unshare", "setns", "mount", "setuid"):
            self.assertEqual(refused[name], errno.EPERM, name)

    def test_namespaces_are_those_of_the_jail(self):
        _, seen = self.look()
        for name in NAMESPACES:
            self.assertEqual(seen["namespaces"][name], os.readlink("/proc/%d/ns/%s" % (self.jail.pid, name)))
            self.assertNotEqual(seen["namespaces"][name], os.readlink("/proc/self/ns/" + name))

    def test_no_descriptor_but_the_streams(self):
        _, seen = self.look()
        self.assertEqual(seen["descriptors"], {"0": "pipe", "1": "pipe", "2": "pipe"})

    def test_side_channel_only_when_wanted(self):
        guest = self.zygote.join(self.jail)
        source = "import os\nos.write(3, os.read(3, 9)[::-1])\nos.system('ls /proc/self/fd')\n"
        path = os.path.join(self.place, "side.py")
        with open(path, "w") as file:
            file.write(source)
        guest.side.sendall(encode_job([INTERPRETER, path], ENVIRONMENT, "/", (), True))
        self.assertIsNone(guest.status())
        guest.side.sendall(b"abc")
        self.assertEqual(guest.side.recv(9), b"cba")
        status, output, errors = guest.finish()
        self.assertEqual((status, output.split(), errors), (0, [b"0", b"1", b"2", b"3", b"4"], b""))

    def test_a_job_comes_in_whatever_pieces(self):
        path = os.path.join(self.place, "pieces.py")
        content = b"print(len(open(__file__).read()))\n" + b"#" * 100_000
        job = encode_job([INTERPRETER, path], ENVIRONMENT, "/", [(path.encode(), content)], False)
        for border in (1, 3, 4, 5, 300, 4096, 4097, len(job) - 1):
            guest = self.zygote.join(self.jail)
            guest.side.sendall(job[:border])
            time.sleep(0.05)
            guest.side.sendall(job[border:])
            self.assertIsNone(guest.status())
            self.assertEqual(guest.finish()[:2], (0, b"%d\n" % len(content)), border)

    def test_one_that_is_alone_is_believed_but_for_its_own_name(self):
        """It is told so, and then it does not look; a script may still be called like a module."""
        with open(os.path.join(self.place, "json.py"), "w") as file:
            file.write("mine = True\n")
        source = b"import json\nprint(hasattr(json, 'mine'), __name__)\n"
        for name, untouched, seen in (
            ("alone.py", True, b"False __main__\n"),
            ("alone.py", False, b"True __main__\n"),
            ("json.py", True, b"False json\nFalse __main__\n"),
        ):
            path = os.path.join(self.place, name)
            if os.path.exists(path):
                os.unlink(path)
            argv, files = [INTERPRETER, path], [(path.encode(), source)]
            guest = self.zygote.join(self.jail)
            guest.side.sendall(encode_job(argv, ENVIRONMENT, self.place, files, False, untouched))
            self.assertIsNone(guest.status())
            self.assertEqual(guest.finish()[:2], (0, seen), (name, untouched))
        os.unlink(os.path.join(self.place, "json.py"))

    def test_more_than_a_job_is_refused(self):
        guest = self.zygote.join(self.jail)
        guest.side.sendall(encode_job([INTERPRETER, "main.py"], ENVIRONMENT, "/", (), False) + b"more")
        self.assertEqual(guest.status(), ("job", errno.EINVAL))

    def test_says_what_it_is(self):
        guest = self.zygote.join(self.jail, uid=1234, gid=4321)
        self.assertEqual((guest.uid, guest.gid, guest.capabilities), (1234, 4321, 0))
        self.assertEqual((guest.no_new_privs, guest.seccomp), (1, 2))
        guest.abandon()

    def test_limits_hold(self):
        guest = self.zygote.join(self.jail, rlimits=[[resource.RLIMIT_FSIZE, 10, 10]])
        status, _, errors = self.run_in(guest, "with open('big', 'w') as file: file.write('x' * 20)\n")
        self.assertEqual(status, 1)
        self.assertIn(b"File too large", errors)

    def test_infinite_limits(self):
        infinite = (1 << 64) - 1
        before = resource.getrlimit(resource.RLIMIT_CPU)
        self.assertEqual(before[1], resource.RLIM_INFINITY)
        guest = self.zygote.join(self.jail, rlimits=[[resource.RLIMIT_CPU, infinite, infinite]])
        guest.abandon()

    def test_groups_are_entered_before_anything_else(self):
        reading, writing = os.pipe()
        guest = self.zygote.join(self.jail, tasks=writing)
        self.assertEqual(os.read(reading, 9), b"0")
        guest.abandon()
        os.close(reading)
        os.close(writing)

    def test_unified_group(self):
        with open("/proc/mounts") as file:
            mounts = [line.split()[1] for line in file if line.split()[2] == "cgroup2"]
        if not mounts:
            skip("no unified hierarchy")
        group = os.path.join(mounts[0], "zygote-test-%d" % os.getpid())
        os.mkdir(group)
        try:
            directory = os.open(group, os.O_RDONLY | os.O_DIRECTORY)
            guest = self.zygote.join(self.jail, unified=directory)
            with open(os.path.join(group, "cgroup.procs")) as file:
                self.assertEqual(len(file.read().split()), 1)
            guest.abandon()
            os.close(directory)
        finally:
            os.rmdir(group)

    def test_cgroup_namespace(self):
        own = os.open("/proc/self/ns/cgroup", os.O_RDONLY)
        guest = self.zygote.join(self.jail, leave_out=(), cgroup=own)
        # Ours is the host's, over which root of the jail has no rights.
        self.assertEqual(guest.failure, ("cgroup namespace", errno.EPERM))
        guest.abandon()
        os.close(own)


class Landlock(Case):
    """With a ruleset of the jail."""

    @classmethod
    def setUpClass(cls):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall.restype = ctypes.c_long
        if libc.syscall(444, None, 0, 1) < 1:
            skip("this kernel has no Landlock")
        cls.zygote, cls.jail, cls.place = Zygote(landlock=True), Jail(), folder()
        # Reading files and folders is handled; it is allowed under /usr, /proc, /etc/… and in the test's folder.
        attributes = struct.pack("<Q", 0b1100)
        cls.ruleset = libc.syscall(444, attributes, len(attributes), 0)
        for path in ("/usr", "/lib", "/lib64", "/proc", cls.place, os.path.dirname(os.path.dirname(INTERPRETER))):
            beneath = os.open(path, os.O_PATH)
            rule = struct.pack("<Qi", 0b1100, beneath)
            assert libc.syscall(445, ctypes.c_long(cls.ruleset), 1, rule, 0) == 0
            os.close(beneath)

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        os.close(cls.ruleset)

    def test_reading_outside_fails(self):
        guest = self.zygote.join(self.jail, landlock=self.ruleset)
        source = "print(len(open('/usr/lib/os-release').read()) > 0)\ntry:\n    open('/etc/hostname')\nexcept PermissionError as e:\n    print(e)\nimport os\nfor n in range(3, 2000):\n    try:\n        print(n, os.fstat(n))\n    except OSError:\n        pass\n"
        status, output, errors = self.run_in(guest, source)
        self.assertEqual((status, errors), (0, b""))
        self.assertEqual(output, b"True\n[Errno 13] Permission denied: '/etc/hostname'\n")

    def test_a_join_without_the_rules_is_refused(self):
        answer, descriptors, side = self.zygote.ask(self.jail)
        self.assertEqual((answer["step"], answer["errno"], descriptors), ("request", errno.EINVAL, []))
        side.close()

    def test_what_is_no_ruleset_fails_by_name(self):
        null = os.open("/dev/null", os.O_RDONLY)
        guest = self.zygote.join(self.jail, landlock=null)
        self.assertEqual(guest.failure[0], "landlock domain")
        self.assertEqual(guest.abandon(), 125)
        os.close(null)


class Failures(Case):
    """Every step that can be made to fail is reported by name, and nothing runs."""

    def refusal(self, **options):
        answer, descriptors, side = self.zygote.ask(self.jail, **options)
        side.close()
        for descriptor in descriptors:
            os.close(descriptor)
        return answer.get("step"), answer.get("errno")

    def failure(self, **options):
        guest = self.zygote.join(self.jail, **options)
        step = guest.failure[0]
        self.assertEqual(guest.streams, [])
        self.assertEqual(guest.abandon(), 125)
        return step

    def test_by_the_zygote(self):
        null = os.open("/dev/null", os.O_RDONLY)
        self.assertEqual(self.refusal(replace={"pid": null}), ("pid namespace", errno.EINVAL))
        self.assertEqual(self.refusal(unified=null), ("clone", errno.EBADF))
        os.close(null)
        self.assertEqual(self.refusal(leave_out=("user",)), ("request", errno.EINVAL))
        self.assertEqual(self.refusal(uid=0), ("request", errno.EINVAL))
        self.assertEqual(self.refusal(rlimits=[["x", 1, 1]]), ("request", errno.EINVAL))
        # And it serves as before.
        self.assertEqual(self.zygote.join(self.jail).abandon(), 0)

    def test_by_the_guest(self):
        null = os.open("/dev/null", os.O_RDONLY)
        names = {"net": "network", "user": "user", "ipc": "ipc", "uts": "uts", "mnt": "mount"}
        for kind, name in names.items():
            self.assertEqual(self.failure(replace={kind: null}), name + " namespace")
        self.assertEqual(self.failure(tasks=null), "cgroup")
        self.assertEqual(self.failure(rlimits=[[99, 1, 1]]), "resource limits")
        self.assertEqual(self.failure(uid=70000), "user id")
        self.assertEqual(self.failure(gid=70000), "group id")
        os.close(null)

    def test_bad_filter(self):
        for program, step in ((b"\xff" * 16, "seccomp filter"),):
            zygote = Zygote(filter=program)
            guest = zygote.join(self.jail)
            self.assertEqual(guest.failure, (step, errno.EINVAL))
            guest.abandon()
            zygote.end()

    def test_no_filter(self):
        zygote = Zygote(filter=b"")
        self.assertEqual(zygote.answer, {"failed": 0, "step": "seccomp filter", "errno": errno.EINVAL})
        zygote.end()

    def test_job(self):
        locked = os.path.join(self.place, "locked")
        os.mkdir(locked, 0o700)
        cases = (
            (dict(cwd="/not/there"), ("working directory", errno.ENOENT)),
            (dict(cwd=locked), ("working directory", errno.EACCES)),
            (dict(files=[("/usr/x", "x")]), ("files", errno.EACCES)),
            (dict(files=[("/", "x")]), ("files", errno.EINVAL)),
            (dict(files=[(self.place + "/..", "x")]), ("files", errno.EINVAL)),
            (dict(env={"A=B": "x"}), ("environment", errno.EINVAL)),
            (dict(env={"": "x"}), ("environment", errno.EINVAL)),
            (dict(env={"A\0B": "x"}), ("environment", errno.EINVAL)),
            (dict(env={"A": "x\0C=y"}), ("environment", errno.EINVAL)),
        )
        for options, expected in cases:
            guest = self.zygote.join(self.jail)
            guest.start([INTERPRETER, "main.py"], **options)
            self.assertEqual(guest.status(), expected)
            self.assertEqual(guest.abandon(), 127)

    def test_links_are_not_followed(self):
        os.symlink("/etc/passwd", os.path.join(self.place, "link"))
        guest = self.zygote.join(self.jail)
        guest.start([INTERPRETER, "main.py"], files=[(self.place + "/link", "x")])
        self.assertEqual(guest.status(), ("files", errno.ELOOP))
        guest.abandon()

    def test_nonsense_as_a_job(self):
        for body in (b"", b"\xff" * 40, struct.pack("<II", 1, 1 << 31), struct.pack("<I", 0) * 5):
            guest = self.zygote.join(self.jail)
            guest.side.sendall(struct.pack("<I", len(body)) + body)
            self.assertEqual(guest.status(), ("job", errno.EINVAL))
            self.assertEqual(guest.abandon(), 127)


class Jobs(Case):
    def test_files(self):
        guest = self.zygote.join(self.jail)
        big = "x" * 3_000_000
        script = "import os\nprint(os.getcwd(), len(open('deep/er/big').read()), oct(os.stat('deep/er').st_mode), oct(os.stat('deep/er/big').st_mode))\n"
        files = [(self.place + "/made/main.py", script), (self.place + "/made/deep/er/big", big)]
        # In pieces, as a socket gives them; the folder of the script does not exist yet, so it runs above it.
        data = encode_job([INTERPRETER, "made/main.py"], ENVIRONMENT, self.place, files, False)
        guest.side.sendall(data[:2])
        time.sleep(0.05)
        guest.side.sendall(data[2:])
        self.assertIsNone(guest.status())
        status, output, errors = guest.finish()
        self.assertEqual((status, output), (1, b""))
        self.assertIn(b"FileNotFoundError", errors)
        guest = self.zygote.join(self.jail)
        guest.start([INTERPRETER, "main.py"], cwd=self.place + "/made", files=files)
        self.assertIsNone(guest.status())
        status, output, errors = guest.finish()
        self.assertEqual((status, errors), (0, b""))
        self.assertEqual(output.decode().split()[1:], ["3000000", "0o40755", "0o100644"])

    def test_runs_in_the_fork_itself_unless_it_cannot(self):
        # The last word of the command line, which is the zygote's.
        source = "print(open('/proc/self/cmdline').read().split(chr(0))[-2:-1])\n"
        status, output, errors = self.run_in(self.zygote.join(self.jail), source)
        self.assertEqual((status, errors), (0, b""))
        self.assertEqual(output.decode(), "%r\n" % [os.path.realpath(PROGRAM)])
        beside = os.path.join(self.place, "statistics.py")
        open(beside, "w").close()
        status, output, errors = self.run_in(self.zygote.join(self.jail), source)
        os.unlink(beside)
        self.assertEqual((status, errors), (0, b""))
        self.assertEqual(output.decode(), "%r\n" % [os.path.join(self.place, "main.py")])

    def test_end_of_the_agent_ends_a_waiting_guest(self):
        self.assertEqual(self.zygote.join(self.jail).abandon(), 0)

    def test_half_a_job_and_the_end(self):
        guest = self.zygote.join(self.jail)
        guest.side.sendall(struct.pack("<I", 100) + b"half")
        self.assertEqual(guest.abandon(), 0)

    def test_end_of_the_zygote_leaves_its_guests(self):
        zygote = Zygote()
        guest = zygote.join(self.jail)
        self.assertEqual(zygote.end(), 0)
        status, output, _ = self.run_in(guest, "print('alive')\n")
        self.assertEqual((status, output), (0, b"alive\n"))

    def test_signals_reach_the_program(self):
        guest = self.zygote.join(self.jail)
        path = os.path.join(self.place, "sleep.py")
        with open(path, "w") as file:
            file.write("import sys, time\nsys.stdout.write('ready')\ntime.sleep(60)\n")
        guest.start([INTERPRETER, path])
        self.assertIsNone(guest.status())
        self.assertEqual(os.read(guest.streams[1], 99), b"ready")
        signal.pidfd_send_signal(guest.pidfd, signal.SIGINT)
        status, _, errors = guest.finish()
        self.assertEqual(status, -signal.SIGINT)
        self.assertTrue(errors.endswith(b"KeyboardInterrupt\n"), errors)

    def test_kernel_of_contexts(self):
        kernel = os.path.join(os.path.dirname(__file__), "../../../language/kernels/python.py")
        with open(kernel, "rb") as file:
            source = file.read()
        known = os.path.join(self.place, "known.py")
        with open(known, "wb") as file:
            file.write(source)
        path = self.place + "/kernel/python.py"
        zygote = Zygote(known=[(known, path)])
        guest = zygote.join(self.jail)
        guest.start([INTERPRETER, path], {**ENVIRONMENT, "SANDSTORM_KERNEL_FD": "3"}, "/", [(path, source)], True)
        self.assertIsNone(guest.status())

        def say(message):
            body = json.dumps(message).encode()
            guest.side.sendall(struct.pack("<I", len(body)) + body)

        def hear():
            (size,) = struct.unpack("<I", guest._exactly(4))
            return json.loads(guest._exactly(size))

        self.assertEqual(hear()["type"], "ready")
        say({"type": "execute", "id": 1, "code": "import sys\nx = 20\nprint(sys.argv)\nx + 22"})
        heard = [hear()]
        while heard[-1]["type"] != "done":
            heard.append(hear())
        self.assertEqual([m["data"]["text/plain"] for m in heard if m["type"] == "result"], ["42"])
        say({"type": "execute", "id": 2, "code": "def f():\n    1/0\nf()"})
        error = hear()
        while error["type"] != "error":
            error = hear()
        self.assertNotIn("python.py", "".join(error["traceback"]))
        say({"type": "shutdown"})
        status, output, errors = guest.finish()
        self.assertEqual((status, output, errors), (0, b"['']\n", b""))
        zygote.end()


if __name__ == "__main__":
    unittest.main()
