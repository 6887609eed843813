"""A process that runs commands as somebody and times each of them.

There is one for each kind of caller, forked before anything is measured, so that changing the user or hiding the control
groups is not part of any figure. It is a subreaper: what a command leaves behind to end by itself is waited for after the
clock has stopped, and its CPU time is counted too.
"""

import ctypes
import json
import os
import pwd
import socket
import sys
import time
import traceback

PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNS = 0x00020000
MS_REC, MS_PRIVATE, MNT_DETACH = 0x4000, 0x40000, 2

libc = ctypes.CDLL(None, use_errno=True)


def check(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def hide_control_groups():
    check(libc.unshare(CLONE_NEWNS))
    check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None))
    with open("/proc/self/mountinfo") as mounts:
        points = [line.split()[4] for line in mounts if " - cgroup" in line]
    for point in reversed(points):
        check(libc.umount2(point.encode(), MNT_DETACH))


def become(user):
    entry = pwd.getpwnam(user)
    os.setgroups([])
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


class Spawner:
    def __init__(self, user=None, control_groups=True, home="/nonexistent"):
        self.channel, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                self.channel.close()
                serve(theirs, user, control_groups, home)
                code = 0
            except BaseException:
                traceback.print_exc()
            os._exit(code)
        theirs.close()
        self.answers = self.channel.makefile("r")

    def run(self, argv, inputs=()):
        """Runs a command and returns (wall ms, CPU ms). `inputs` are files that it finds open from descriptor 10 on."""
        self.channel.sendall(json.dumps({"argv": argv, "inputs": list(inputs)}).encode() + b"\n")
        answer = json.loads(self.answers.readline() or '{"failed": "the spawner ended"}')
        if "failed" in answer:
            sys.exit(f"bench: {' '.join(argv[:4])} …: {answer['failed']}")
        return answer["wall_ms"], answer["cpu_ms"]

    def close(self):
        # Said in so many words: later spawners hold a copy of this socket, so closing it ends nothing.
        self.channel.sendall(b"\n")
        self.answers.close()
        self.channel.close()
        os.waitpid(self.pid, 0)


def serve(channel, user, control_groups, home):
    check(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
    if not control_groups:
        hide_control_groups()
    if user:
        become(user)
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": home, "LANG": "C.UTF-8"}
    for line in channel.makefile("r"):
        if not line.strip():
            return
        request = json.loads(line)
        channel.sendall(json.dumps(timed(request["argv"], request["inputs"], environment)).encode() + b"\n")


def timed(argv, inputs, environment):
    actions = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0), (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]
    actions += [(os.POSIX_SPAWN_OPEN, 10 + n, path, os.O_RDONLY, 0) for n, path in enumerate(inputs)]
    start = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, environment, file_actions=actions)
    _, status, usage = os.wait4(pid, 0)
    wall = time.perf_counter() - start
    cpu = usage.ru_utime + usage.ru_stime
    while True:
        try:
            _, _, usage = os.wait4(-1, 0)
        except ChildProcessError:
            break
        cpu += usage.ru_utime + usage.ru_stime
    if status != 0:
        return {"failed": f"ended with wait status {status}"}
    return {"wall_ms": wall * 1e3, "cpu_ms": cpu * 1e3}
