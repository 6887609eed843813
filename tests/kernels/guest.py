"""The checks inside an emulated machine. Runs as root with nothing around it.

    guest.py short|each|all

Prints one line for each check, `name TAB verdict TAB words`: `ok`, `fail`, or `missing` where Sandstorm itself says that it
cannot give something here. The last line is `end TAB ok`. What must be there and what may be missing is the business of
`run.py` on the other side, so that a check which does not report is noticed.
"""

import json
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import time
import traceback
import urllib.error
import urllib.request

SANDSTORM = "/usr/bin/sandstorm"
SERVER = "http://127.0.0.1:7300"
# An address that looks like a public one, behind a wire to another network namespace: lists may name only such.
OUTSIDE, INSIDE = "223.255.255.2", "223.255.255.1"
# An emulated machine is slow, and the one that emulates it is busy: nothing here is a matter of seconds.
PATIENCE = 600
GROUPS = pathlib.Path("/sys/fs/cgroup")

ATTACKS = [
    "host_files", "proc", "mounts", "namespaces", "privileges", "tracing", "kernel", "keys", "cgroups", "devices", "signals",
    "descriptors", "init_program",
]

# What every sandbox shows, and the host has too.
SHOWN = ["/usr", "/usr/bin", "/usr/bin/env", "/usr/bin/python3", "/etc/passwd"]


def say(name, verdict, words=""):
    print(name, verdict, " ".join(str(words).split())[:400], sep="\t", flush=True)


class Failed(Exception):
    pass


def need(condition, words):
    if not condition:
        raise Failed(words)


class Caller:
    """Who runs the binary."""

    def __init__(self, name, user, groups=None):
        self.name, self.user, self.groups = name, user, groups
        self.home = pathlib.Path("/tmp") / f"home-{name}"
        # Not 700: a server that root starts becomes an ordinary user.
        self.home.mkdir(mode=0o755)
        shutil.chown(self.home, user, user)

    def environment(self):
        words = {
            "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.home), "LANG": "C.UTF-8",
            "SANDSTORM_STATE_DIR": str(self.home / "state"), "SANDSTORM_LIMITS_WALL": "10m",
        }
        if self.groups:
            words["SANDSTORM_CGROUP_PARENT"] = f"{self.groups}/sandstorm"
        return words

    def command(self, *arguments):
        words = [SANDSTORM, *arguments]
        if self.user != "root":
            # Not `su`: that would start a session of its own and ask for modules that are not here.
            entry = pwd.getpwnam(self.user)
            words = ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups", "--", *words]
        if self.groups:
            # Who moves processes between groups needs rights over the group above both.
            session = GROUPS / self.groups / "session" / "cgroup.procs"
            words = ["sh", "-c", f'echo $$ >{session}; exec "$@"', "sh", *words]
        return words

    def run(self, *arguments, stdin=""):
        return subprocess.run(
            self.command(*arguments), input=stdin, capture_output=True, text=True, env=self.environment(), timeout=PATIENCE)

    def result(self, *arguments):
        done = self.run("run", "--json", *arguments)
        need(done.stdout.startswith("{"), f"no result: {done.stderr} {done.stdout}")
        return json.loads(done.stdout)


def check(name, attempt):
    """Says what came of it, and whether it held."""
    try:
        words = attempt()
    except Failed as failed:
        say(name, "fail", failed)
    except Exception:
        say(name, "fail", traceback.format_exc().splitlines()[-1])
    else:
        say(name, "ok", words or "")
        return True
    return False


def runs(caller):
    done = caller.run("run", "-l", "python", "-c", "print(6 * 7)")
    need((done.returncode, done.stdout) == (0, "42\n"), f"{done.returncode} {done.stdout} {done.stderr}")


def strict(caller):
    """`missing` where a strict run is refused with a reason."""
    done = caller.run("run", "--strict", "-l", "bash", "-c", "echo strict")
    if (done.returncode, done.stdout) == (0, "strict\n"):
        return say(f"{caller.name}/strict", "ok")
    refused = done.returncode == 125 and done.stderr
    return say(f"{caller.name}/strict", "missing" if refused else "fail", f"{done.returncode} {done.stdout} {done.stderr}")


def reports_walls(caller):
    """Which walls and limits stand is told by every result."""
    walls = caller.result("-l", "bash", "-c", "true")["walls"]
    missing = sorted(wall["name"] for wall in walls["missing"]) + sorted(limit["name"] for limit in walls["limits"]["missing"])
    landlock = (walls.get("landlock") or {}).get("abi", 0)
    return f"landlock={landlock} groups={walls['cgroup']['version']} missing={','.join(missing) or '-'}"


def is_stopped_by_time(caller):
    done = caller.run("run", "--timeout", "1s", "-l", "bash", "-c", "while :; do :; done")
    need(done.returncode == 124, f"{done.returncode} {done.stderr}")


def is_stopped_by_memory(caller):
    done = caller.run("run", "--memory", "64M", "-l", "python", "-c", "b'x' * 10**9")
    need(done.returncode == 137, f"{done.returncode} {done.stderr}")


def space_is_apart(caller):
    """More is written than programs may have of memory, and nothing is ended for it."""
    code = "head -c 80M /dev/zero > big; echo $?; head -c 40M /dev/zero > more; echo $?"
    done = caller.run("run", "--memory", "64M", "--disk", "96M", "-l", "bash", "-c", code)
    need(done.stdout == "0\n1\n" and done.returncode == 0, f"{done.returncode} {done.stdout} {done.stderr}")


def keeps_its_score(caller):
    """No program goes later than others when memory runs out: by Landlock, or by the lowest score that its PID 1 has."""
    code = "for to in 0 399; do echo $to >/proc/self/oom_score_adj && echo $to; done; cat /proc/self/oom_score_adj"
    done = caller.run("run", "-l", "bash", "-c", code)
    need(done.stdout == "800\n", f"{done.returncode} {done.stdout} {done.stderr}")


def doctor(caller, works):
    done = caller.run("doctor")
    first = done.stdout.splitlines()[0] if done.stdout else done.stderr
    need((done.returncode == 0) == works, f"{done.returncode} {first}")
    need(first.startswith("sandboxes can start here" if works else "no sandbox can start here"), first)
    return first


def matrix(caller):
    """Each wall, limit and escape case of `doctor --matrix` is a line of its own."""
    done = caller.run("doctor", "--matrix", "--json")
    need(done.stdout.startswith("{"), f"{done.returncode} {done.stderr}")
    verdicts = {"pass": "ok", "refused": "missing", "fail": "fail"}
    for row in json.loads(done.stdout)["engines"][0]["cases"]:
        say(f"{caller.name}/{row['suite']}/{row['name'].replace(' ', '-')}", verdicts[row["outcome"]], row["reason"])


def attack(caller, name):
    folder = pathlib.Path("/kernels/escape")
    code = (folder / "attack.py").read_text() + (folder / f"{name}.py").read_text()
    arguments = ["/root/secret", "/etc/shadow"] if name == "host_files" else []
    done = caller.run("run", "-l", "python", "-c", code, "--", *arguments)
    last = done.stdout.splitlines()[-1:] or [""]
    need(done.returncode == 0 and last[0].endswith(" attempts, 0 broken") and not last[0].startswith("0 "),
         f"{done.returncode} {done.stdout} {done.stderr}")
    return last[0]


def inodes_are_apart(caller):
    """A sandbox with watches and locks on what all are shown, another one and the host that open and try to lock the same."""
    code = pathlib.Path("/kernels/escape/inodes.py").read_text()
    # Without root the nodes in /dev are the host's, and the report says so.
    places = SHOWN + (["/dev/null"] if caller.user == "root" else [])
    look = ["run", "-l", "python", "-c", code, "--", "look", *places]
    holder = subprocess.Popen(
        caller.command("run", "-l", "python", "-c", code, "--", "hold", *places), env=caller.environment(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        line = holder.stdout.readline()
        need(line == "held\n", f"{line} {holder.stderr.read() if not line else ''}")
        other = caller.run(*look)
        need((other.returncode, other.stdout) == (0, "[]\n"), f"another sandbox: {other.stdout} {other.stderr}")
        host = subprocess.run(["python3", "-c", code, "look", *places], capture_output=True, text=True, timeout=PATIENCE)
        need(host.stdout == "[]\n", f"the host: {host.stdout} {host.stderr}")
    finally:
        events, complaint = holder.communicate("\n", timeout=PATIENCE)
    need(events == "[]\n", f"it saw {events} {complaint}")


def space_on_disk(caller):
    """What is written to a space on disk is no memory of the sandbox."""
    code = "head -c 100M /dev/zero > big && stat -f -c %T . && head -c 100M /dev/zero > more; echo $?"
    done = caller.run("run", "--space", "disk", "--memory", "64M", "--disk", "160M", "-l", "bash", "-c", code)
    need(done.returncode == 0 and done.stdout == "ext2/ext3\n1\n", f"{done.returncode} {done.stdout} {done.stderr}")


def connect_outside():
    """A server in another network namespace, reached over a wire."""
    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True)

    ip("netns", "add", "outside")
    ip("link", "add", "wire", "type", "veth", "peer", "name", "end", "netns", "outside")
    ip("addr", "add", f"{INSIDE}/24", "dev", "wire")
    ip("link", "set", "wire", "up")
    for words in (["addr", "add", f"{OUTSIDE}/24", "dev", "end"], ["link", "set", "end", "up"], ["link", "set", "lo", "up"]):
        ip("-n", "outside", *words)
    folder = pathlib.Path("/tmp/outside")
    folder.mkdir()
    (folder / "greeting").write_text("hello from outside\n")
    subprocess.Popen(
        ["ip", "netns", "exec", "outside", "python3", "-m", "http.server", "80", "--directory", str(folder)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait(lambda: b"hello" in urllib.request.urlopen(f"http://{OUTSIDE}/greeting", timeout=20).read(), "the server outside")


def captured_network(caller):
    code = ("import urllib.request, socket\n"
            f"print(urllib.request.urlopen('http://{OUTSIDE}/greeting', timeout=300).read().decode(), end='')\n"
            "try:\n"
            f"    s = socket.create_connection(('{INSIDE}', 7300), timeout=60); print(s.recv(1) and 'reached the host')\n"
            "except OSError: print('closed')\n")
    done = caller.run("run", "--network", f"ip:{OUTSIDE}:80", "-l", "python", "-c", code)
    need("hello from outside" in done.stdout and "reached" not in done.stdout, f"{done.returncode} {done.stdout} {done.stderr}")
    done = caller.run("run", "-l", "python", "-c", code)
    need(done.returncode != 0 and "hello" not in done.stdout, f"without a policy: {done.returncode} {done.stdout}")


def wait(condition, what):
    """Until the condition holds; errors mean that it does not yet."""
    deadline, last = time.monotonic() + PATIENCE, None
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except (OSError, ValueError) as error:
            last = error
        time.sleep(0.1)
    raise Failed(f"{what} did not come: {last}")


def api(method, path, body=None, headers=(), raw=False):
    request = urllib.request.Request(SERVER + path, method=method, headers=dict(headers))
    if body is not None:
        request.data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request.add_header("Content-Type", "application/octet-stream" if isinstance(body, bytes) else "application/json")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            said = answer.read()
    except urllib.error.HTTPError as error:
        raise Failed(f"{method} {path}: {error.code} {error.read().decode()}") from error
    return said if raw else json.loads(said) if said else None


class Server:
    def __init__(self, caller):
        self.caller, self.process = caller, None
        self.log = open("/tmp/serve.log", "a")

    def start(self):
        command = self.caller.command("serve", "--dev-no-auth")
        self.process = subprocess.Popen(command, env=self.caller.environment(), stdout=self.log, stderr=self.log)
        try:
            wait(lambda: self.process.poll() is not None or api("GET", "/readyz", raw=True), "the server")
            need(self.process.poll() is None, "the server ended")
        except Failed as failed:
            raise Failed(f"{failed}: {pathlib.Path('/tmp/serve.log').read_text()[-300:]}") from None

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait(PATIENCE)


def metric(name):
    text = api("GET", "/metrics", raw=True).decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))


# Nothing is printed where every score below that of PID 1 is refused.
LOWER = """import os
for to in (b"0", b"399"):
    try: os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), to); print("lowered to", to)
    except OSError: pass
"""


def pool():
    """A run that finds a sandbox ready, with its program in a fork of a warm interpreter."""
    def hit():
        # Whoever runs something meanwhile keeps the pool from being filled.
        if not metric('sandstorm_pool_ready{kind="python"}'):
            time.sleep(1)
            return False
        result = api("POST", "/v1/runs", {"language": "python", "code": LOWER + "print(6 * 7)"})
        need(result["stdout"] == "42\n", result)
        return metric("sandstorm_pool_hits_total") and metric('sandstorm_guests_total{way="pooled"}')

    wait(hit, "a sandbox out of the pool")


def files():
    sandbox = api("POST", "/v1/sandboxes", {"lifetime": "1h"})["id"]
    content = bytes(range(256)) * 300
    api("PUT", f"/v1/sandboxes/{sandbox}/files?path=data", content)
    need(api("GET", f"/v1/sandboxes/{sandbox}/files?path=data", raw=True) == content, "the file came back changed")
    result = api("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": "wc -c <data"})
    need(result["stdout"].strip() == str(len(content)), result)
    api("DELETE", f"/v1/sandboxes/{sandbox}")


def cell(sandbox, context, code):
    answer = api("POST", f"/v1/sandboxes/{sandbox}/contexts/{context}/execute", {"code": code})
    return json.dumps(answer.get("results")) + answer.get("stdout", "")


def context(kept):
    kept["sandbox"] = api("POST", "/v1/sandboxes", {"lifetime": "1h"})["id"]
    kept["context"] = api("POST", f"/v1/sandboxes/{kept['sandbox']}/contexts", {"language": "python"})["id"]
    cell(kept["sandbox"], kept["context"], "x = 41")
    said = cell(kept["sandbox"], kept["context"], "x + 1")
    need('"42"' in said, said)


def fork(kept):
    # A machine that is busy enough starts an interpreter that cannot be forked; then another one is asked for.
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            forks = api("POST", f"/v1/sandboxes/{kept['sandbox']}/fork", {"count": 2})["forks"]
            break
        except Failed as failed:
            if "interpreter of a zygote" not in str(failed) or time.monotonic() > deadline:
                raise
            api("DELETE", f"/v1/sandboxes/{kept['sandbox']}")
            context(kept)
    for made in forks:
        need(made["problem"] is None, made)
        sandbox, copy = made["sandbox"]["id"], made["contexts"][0]["to"]
        said = cell(sandbox, copy, "x += 1; x")
        need('"42"' in said, said)
        api("DELETE", f"/v1/sandboxes/{sandbox}")
    said = cell(kept["sandbox"], kept["context"], "x")
    need('"41"' in said, f"the source has {said}")


def pause(kept):
    api("POST", f"/v1/sandboxes/{kept['sandbox']}/pause")
    need(api("GET", f"/v1/sandboxes/{kept['sandbox']}")["state"] == "paused", "it is not paused")
    api("POST", f"/v1/sandboxes/{kept['sandbox']}/resume")
    said = cell(kept["sandbox"], kept["context"], "x")
    need('"41"' in said, said)


def takeover(server, kept):
    server.end(signal.SIGTERM)
    server.start()
    said = cell(kept["sandbox"], kept["context"], "x + 2")
    need('"43"' in said, said)


def leaves_nothing(server):
    server.end(signal.SIGINT)

    def left():
        found = [path for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if b"sandstorm" in read(path)]
        groups = [path for path in GROUPS.glob("**/sandstorm/*/*") if path.is_dir()]
        return found + groups

    wait(lambda: not left(), "the end of everything")


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def without_warmth():
    """A run, and a context with a life of its own, where no interpreter can be warm."""
    result = api("POST", "/v1/runs", {"language": "python", "code": "print(6 * 7)"})
    need(result["stdout"] == "42\n", result)
    kept = {}
    context(kept)
    api("DELETE", f"/v1/sandboxes/{kept['sandbox']}")


def serves_without_root(caller):
    """What an ordinary user's server can do; what it cannot it says at its start."""
    server, name = Server(caller), f"{caller.name}/serve"
    if not check(f"{name}/start", server.start):
        return
    check(f"{name}/run", without_warmth)
    check(f"{name}/files", files)
    check(f"{name}/end", lambda: leaves_nothing(server))


def serves(caller):
    server, kept = Server(caller), {}
    if not check("serve/start", server.start):
        return
    check("serve/pool", pool)
    check("serve/files", files)
    check("serve/context", lambda: context(kept))
    check("serve/fork", lambda: fork(kept))
    check("serve/pause", lambda: pause(kept))
    check("serve/takeover", lambda: takeover(server, kept))
    check("serve/end", lambda: leaves_nothing(server))


def delegate(user):
    """What systemd does for a user: a part of the unified tree that is theirs."""
    top = GROUPS / "user"
    (top / "session").mkdir(parents=True)
    for controller in ("memory", "pids", "cpu"):
        for place in (GROUPS, top):
            try:
                (place / "cgroup.subtree_control").write_text(f"+{controller}")
            except OSError:
                pass
    for path in (top, top / "session"):
        for name in (".", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"):
            shutil.chown(path / name, user, user)
    return "user"


def callers(extent):
    yield Caller("root", "root")
    yield Caller("single", "nobody")
    if extent == "all":
        yield Caller("ranged", "ranged")
        if (GROUPS / "cgroup.controllers").exists():
            yield Caller("delegated", "delegated", delegate("delegated"))


def main(extent):
    release = os.uname().release
    say("kernel", "ok", release)
    say("load", "ok", os.cpu_count())
    pathlib.Path("/root/secret").write_text("secret")
    everybody = list(callers(extent))
    root = everybody[0]
    done = root.run("run", "-l", "bash", "-c", "echo it starts")
    if done.stdout != "it starts\n":
        # Nothing else has a meaning then, but what is said about it.
        say("starts", "missing", done.stderr)
        check("root/doctor", lambda: doctor(root, works=False))
        say("end", "ok")
        return
    say("starts", "ok")
    for caller in everybody:
        check(f"{caller.name}/run", lambda: runs(caller))
        check(f"{caller.name}/walls", lambda: reports_walls(caller))
        check(f"{caller.name}/score", lambda: keeps_its_score(caller))
        if caller is root or caller.groups:
            check(f"{caller.name}/memory", lambda: is_stopped_by_memory(caller))
            check(f"{caller.name}/space", lambda: space_is_apart(caller))
        if extent == "all" or caller is root:
            strict(caller)
            check(f"{caller.name}/time", lambda: is_stopped_by_time(caller))
            check(f"{caller.name}/doctor", lambda: doctor(caller, works=True))
        if extent != "short" or caller is root:
            check(f"{caller.name}/inodes", lambda: inodes_are_apart(caller))
        if caller is root:
            check(f"{caller.name}/disk", lambda: space_on_disk(caller))
        if extent == "all":
            check(f"{caller.name}/matrix", lambda: matrix(caller))
        if extent != "short":
            for name in ATTACKS:
                check(f"{caller.name}/attack/{name}", lambda: attack(caller, name))
    connect_outside()
    for caller in everybody:
        check(f"{caller.name}/network", lambda: captured_network(caller))
    serves(root)
    for caller in everybody[1:] if extent != "short" else []:
        serves_without_root(caller)
    say("end", "ok")


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except Exception:
        say("guest", "fail", traceback.format_exc())
