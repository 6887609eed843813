#!/usr/bin/env python3
"""Walks every route of the session API on a running server and checks what it answers.

    session.py BASE_URL KEY [OTHER_KEY]

OTHER_KEY belongs to another tenant; with it the walls between tenants are checked too. The server must have Python and
a shell in its sandboxes. Standard library only. Prints one line per check that passed and ends with 1 at the first that fails.
"""

import base64
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

PREFIX = "/workspace/se"


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)


class Client:
    def __init__(self, base, key):
        self.base, self.key = base.rstrip("/"), key

    def call(self, method, path, body=None, headers=None, query=None, timeout=60):
        """`path` is sent as it is: what needs percent signs has them."""
        url = self.base + PREFIX + path
        if query:
            url += "?" + urllib.parse.urlencode(query)
        headers = dict(headers or {})
        if self.key:
            headers["Authorization"] = "Bearer " + self.key
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        request = urllib.request.Request(url, data=body, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return Answer(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as answer:
            with answer:
                return Answer(answer.code, answer.headers, answer.read())

    def get(self, path, **more):
        return self.call("GET", path, **more)

    def post(self, path, body=None, **more):
        return self.call("POST", path, body, **more)

    def delete(self, path):
        return self.call("DELETE", path)

    def upload(self, path, content, name="up.bin", field="file", query=None):
        boundary = "boundary" + os.urandom(8).hex()
        named = '; filename="%s"' % name if name is not None else ""
        head = '--%s\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n' % (boundary, field, named)
        body = head.encode() + content + ("\r\n--%s--\r\n" % boundary).encode()
        kind = {"Content-Type": "multipart/form-data; boundary=" + boundary}
        return self.call("POST", path, body, kind, query)


def check(what, passed, seen=""):
    if not passed:
        print("FAILED: %s: %r" % (what, seen), flush=True)
        sys.exit(1)
    print("ok: " + what, flush=True)


def enveloped(what, answer, wanted=None):
    """The fields of a good answer, which must stand at the top and twice below."""
    check(what + ": 200", answer.status == 200, (answer.status, answer.body[:2000]))
    whole = answer.json
    inner = whole["result"]
    check(what + ": envelope", whole["full_result"] == inner and {**whole, **inner} == whole, whole)
    check(what + ": nothing else", set(whole) == set(inner) | {"result", "full_result"}, whole)
    if wanted is not None:
        check(what + ": fields", set(inner) == set(wanted), inner)
    return inner


def refused(what, answer, status, kind):
    check("%s: %d" % (what, status), answer.status == status, (answer.status, answer.body[:2000]))
    detail = answer.json["detail"]
    if kind == "text":
        check(what + ": shape", isinstance(detail, str), detail)
    elif kind == "validation":
        good = isinstance(detail, list) and detail and all({"loc", "msg", "type"} <= set(each) for each in detail)
        check(what + ": shape", good, detail)
    else:
        fields = {
            "sandbox": {"type", "message", "detail"},
            "handler": {"error_code", "description", "error_detail", "solution"},
        }[kind]
        check(what + ": shape", set(detail) == fields, detail)
    return detail


EXECUTED = {"stdout", "stderr", "returncode"}


def sessions(client, name):
    check("healthy", enveloped("healthy", client.get("/healthy")) == {"status": "success"})
    document = client.get("/api.json")
    check("api.json", document.status == 200 and document.json["openapi"].startswith("3."), document.status)

    absent = enveloped("status of nothing", client.get("/status/" + name))
    nothing = {"created_at": None, "mount_point": None, "is_mounted": False, "files": []}
    check("status makes nothing", absent == {"id": name, "exists": False, **nothing}, absent)
    enveloped("delete of nothing", client.delete("/session/" + name), {"status"})

    refused("create without a body", client.post("/session/" + name), 422, "validation")
    refused("create with a bad size", client.post("/session/" + name, {"size": "much"}), 422, "validation")
    made = enveloped("create", client.post("/session/" + name, {"size": "64M"}))
    check("create names it", made == {"session_id": name}, made)
    detail = refused("create twice", client.post("/session/" + name, {}), 409, "sandbox")
    check("create twice: type", detail["type"] == "SandboxError", detail)

    there = enveloped("status", client.get("/status/" + name))
    check("status: exists", there["exists"] and there["is_mounted"] and there["mount_point"] == "/workspace", there)
    check("status: created_at", abs(there["created_at"] - time.time()) < 300, there)
    listed = enveloped("workspaces", client.get("/workspaces"), {"workspaces"})["workspaces"]
    check("workspaces: fields", set(listed[name]) == {"mount_point", "created_at"}, listed)

    refused("unknown route", client.get("/nothing"), 404, "text")
    refused("wrong method", client.get("/session/" + name), 405, "text")
    refused("long id", client.get("/status/" + "x" * 201), 422, "validation")
    odd = urllib.parse.quote("../../odd näme", safe="")
    check("odd id", enveloped("status of an odd id", client.get("/status/" + odd))["id"] == "../../odd näme")


def files(client, name):
    content = os.urandom(3 * 1024 * 1024)
    up = enveloped("upload", client.upload("/upload/" + name, content, name="data.bin"))
    check("upload: answer", up == {"filename": "data.bin", "size": len(content)}, up)
    up = enveloped("upload by query", client.upload("/upload/" + name, b"x", query={"filename": "deep/er/x.txt"}))
    check("upload by query: answer", up == {"filename": "deep/er/x.txt", "size": 1}, up)
    refused("upload without a name", client.upload("/upload/" + name, b"x", name=None), 400, "text")
    refused("upload without the field", client.upload("/upload/" + name, b"x", field="other"), 422, "validation")
    refused("upload that is no form", client.post("/upload/" + name, {}), 422, "validation")
    refused("upload that goes up", client.upload("/upload/" + name, b"x", name="../x"), 400, "text")
    too_much = client.upload("/upload/" + name, bytes(80 * 1024 * 1024), name="big.bin")
    check("upload past the size", 400 <= too_much.status < 500, too_much.status)
    gone = client.get("/download/%s/big.bin" % name)
    refused("nothing of it stays", gone, 404, "text")

    down = client.get("/download/%s/data.bin" % name)
    check("download: bytes", down.status == 200 and down.body == content, (down.status, len(down.body)))
    check("download: type", down.headers["Content-Type"] == "application/octet-stream", dict(down.headers))
    check("download: name", 'filename="data.bin"' in down.headers["Content-Disposition"], dict(down.headers))
    check("download: absolute", client.get("/download/%s//deep/er/x.txt" % name).body == b"x")
    refused("download of nothing", client.get("/download/%s/missing" % name), 404, "text")
    refused("download of a folder", client.get("/download/%s/deep" % name), 400, "text")
    for bad in ("..%2fx", "a/..%2f..%2fetc/passwd", "%2e%2e/x", ".%2fx"):
        refused("download of " + bad, client.get("/download/%s/%s" % (name, bad)), 400, "text")
    host = client.get("/download/%s//etc/passwd" % name)
    refused("no file of the system", host, 404, "text")

    made = enveloped("create a file", client.post("/create/" + name, {"content": "größe\n", "filename": "s/run.sh", "mode": 0o755}))
    check("create a file: answer", made == {"filename": "s/run.sh", "size": 8}, made)
    mode = enveloped("mode", client.post("/execute/" + name, {"command": "stat -c %a s/run.sh"}))
    check("create a file: mode", mode["stdout"] == "755\n", mode)
    refused("create without a name", client.post("/create/" + name, {"content": ""}), 422, "validation")
    refused("create with a bad mode", client.post("/create/" + name, {"content": "", "filename": "a", "mode": 4095}), 422, "validation")
    refused("create that goes up", client.post("/create/" + name, {"content": "", "filename": "a/../../b"}), 400, "text")

    def names(answer):
        return sorted(each["filename"] for each in answer["files"])

    top = enveloped("list", client.get("/files/" + name), {"files"})
    check("list: files only", names(top) == ["data.bin"], top)
    check("list: fields", top["files"][0] == {"filename": "data.bin", "size": len(content), "type": "bin"}, top)
    check("list: slash", names(enveloped("list /", client.get("/files/%s/" % name))) == ["data.bin"])
    every = enveloped("list all", client.get("/files/" + name, query={"recursive": "true"}))
    check("list all: names", names(every) == ["data.bin", "deep/er/x.txt", "s/run.sh"], every)
    below = enveloped("list below", client.get("/files/%s/deep/er" % name))
    check("list below: names", names(below) == ["deep/er/x.txt"], below)
    refused("list of nothing", client.get("/files/%s/missing" % name), 404, "text")
    with_time = enveloped("status with files", client.get("/status/" + name))["files"]
    check("status: times", all(abs(each["modified_at"] - time.time()) < 300 for each in with_time), with_time)

    preview = "/files/preview/%s/" % name
    enveloped("a page", client.post("/create/" + name, {"content": "<b>hi</b>", "filename": "page.html"}))
    page = client.get(preview + "page.html", query={"sid": "any"})
    check("preview", page.status == 200 and page.body == b"<b>hi</b>", (page.status, page.body[:500]))
    check("preview: type", page.headers["Content-Type"].startswith("text/html"), dict(page.headers))
    check("preview: harmless", "sandbox" in page.headers["Content-Security-Policy"], dict(page.headers))
    refused("preview without sid", client.get(preview + "page.html"), 422, "validation")
    refused("preview of other types", client.get(preview + "data.bin", query={"sid": "any"}), 400, "sandbox")
    refused("preview of nothing", client.get(preview + "no.html", query={"sid": "any"}), 404, "text")

    read = "/readfile/%s/" % name
    first = enveloped("read", client.get(read + "s/run.sh", query={"buffer_size": 3}))
    check("read: a cut character waits", first == {"content": "gr", "is_binary": False, "offset": 2, "size": 8, "is_eof": False}, first)
    rest = enveloped("read on", client.get(read + "s/run.sh", query={"offset": first["offset"]}))
    check("read on: end", rest == {"content": "öße\n", "is_binary": False, "offset": 8, "size": 8, "is_eof": True}, rest)
    piece = enveloped("read bytes", client.get(read + "data.bin", query={"offset": 5, "buffer_size": 100}))
    check("read bytes: base64", piece["is_binary"] and base64.b64decode(piece["content"]) == content[5:105], piece)
    past = enveloped("read past the end", client.get(read + "data.bin", query={"offset": 10**9}))
    check("read past the end: end", past["content"] == "" and past["is_eof"], past)
    refused("read nothing", client.get(read + "missing"), 404, "text")
    refused("read before the start", client.get(read + "data.bin", query={"offset": -1}), 422, "validation")
    refused("read too much", client.get(read + "data.bin", query={"buffer_size": 10**10}), 422, "validation")


def execution(client, name):
    def execute(what, command, *args):
        return enveloped(what, client.post("/execute/" + name, {"command": command, "args": list(args)}), EXECUTED)

    out = execute("execute", "echo $((1 + 1)) && pwd && echo err >&2; exit 3")
    check("execute: result", out == {"stdout": "2\n/workspace\n", "stderr": "err\n", "returncode": 3}, out)
    words = execute("arguments", "printf '%s|'", "a b", "$HOME", "it's")
    check("arguments: one word each", words["stdout"] == "a b|$HOME|it's|", words)
    check("surroundings", execute("variables", "echo $HOME $PYTHONPATH")["stdout"] == "/workspace /workspace\n")
    check("signals", execute("a signal", "kill -9 $$")["returncode"] == 137)
    logs = execute("logs", "cat stderr.log stdout.log")
    check("logs: of the one before", logs["returncode"] == 0, logs)
    refused("execute without a command", client.post("/execute/" + name, {}), 422, "validation")
    refused("execute with bad words", client.post("/execute/" + name, {"command": "a", "args": [1]}), 422, "validation")
    refused("execute in a form", client.post("/execute/" + name, b"command=ls"), 422, "validation")
    refused("execute broken JSON", client.call("POST", "/execute/" + name, b"{", {"Content-Type": "application/json"}), 422, "validation")

    def code(what, body, wanted=EXECUTED):
        return enveloped(what, client.post("/execute_code/" + name, body), wanted)

    ran = code("python", {"code": "import sys\nprint(sys.argv[1:])\nx = 1", "args": ["a b"], "filename": "first"})
    check("python: result", ran == {"stdout": "['a b']\n", "stderr": "", "returncode": 0}, ran)
    kept = client.get("/download/%s/first.py" % name)
    check("python: the file stays", kept.body.startswith(b"import sys"), kept.body)
    fresh = code("a new process", {"code": "print('x' in globals())", "script_type": None})
    check("a new process: no variables", fresh["stdout"] == "False\n", fresh)
    code("a module", {"code": "VALUE = 7", "filename": "mine.py"})
    check("modules of the session", code("import", {"code": "import mine; print(mine.VALUE)"})["stdout"] == "7\n")
    failed = code("an exception", {"code": "def f():\n    raise ValueError('no')\nf()", "filename": "bad.py"})
    check("an exception: result", failed["returncode"] == 1 and failed["stderr"].endswith("ValueError: no\n"), failed)
    listed = enveloped("scripts", client.get("/files/" + name))["files"]
    check("scripts: no name given", any(each["filename"].startswith("script_") for each in listed), listed)
    check("scripts: no logs, no byte code", not any(each["type"] in ("log", "pyc") for each in listed), listed)

    shell = code("shell", {"code": 'echo "$1"; [[ -n $BASH ]]', "script_type": "shell", "args": ["a b"]})
    check("shell: result", shell == {"stdout": "a b\n", "stderr": "", "returncode": 0}, shell)
    named = code("a script with an interpreter", {"code": "#!/usr/bin/env python3\nprint(5)", "script_type": "shell"})
    check("a script with an interpreter: result", named["stdout"] == "5\n", named)
    refused("another language", client.post("/execute_code/" + name, {"code": "", "script_type": "ruby"}), 422, "validation")
    refused("code that goes up", client.post("/execute_code/" + name, {"code": "", "filename": "../x"}), 400, "text")

    asked = {"code": "import sys\na = {'n': [1, None]}\nb = {1, 2}.__class__\nc = float('nan')\nprint(sys.argv)", "filename": "vars"}
    told = code("variables out", {**asked, "args": ["z"], "output_params": ["a", "b", "c", "missing"]}, EXECUTED | {"output_variables"})
    wanted = {"a": {"n": [1, None]}, "b": "<class 'set'>", "c": "nan"}
    check("variables out: values", told["output_variables"] == wanted and told["stdout"] == "['vars.py', 'z']\n", told)
    raised = code("variables of a failure", {"code": "a = 1\nraise KeyError('k')", "output_params": ["a"]}, EXECUTED | {"output_variables"})
    check("variables of a failure: values", raised["output_variables"] == {"a": 1} and raised["returncode"] == 1, raised)
    check("variables of a failure: own lines only", "<string>" not in raised["stderr"], raised)
    left = execute("temporary folder", "ls -A /tmp")
    check("nothing of ours is left", ".sandstorm" not in left["stdout"], left)

    hungry = code("a hungry program", {"code": "print(len(bytearray(8 << 30)))"})
    check("a hungry program: fails alone", hungry["returncode"] == 1 and "MemoryError" in hungry["stderr"], hungry)
    check("a hungry program: files stay", client.get("/download/%s/mine.py" % name).body == b"VALUE = 7")

    body = {"file_params": [{"docid": "gns://a/b"}]}
    refused("efast", client.post("/download_from_efast/" + name, body), 501, "sandbox")
    refused("efast without files", client.post("/download_from_efast/" + name, {"file_params": []}), 400, "text")
    refused("efast without fields", client.post("/download_from_efast/" + name, {}), 422, "validation")


def persistent(client, name):
    enveloped("a persistent session", client.post("/session/" + name, {"size": "32M", "persistent": True}))

    def code(what, text, **more):
        return enveloped(what, client.post("/execute_code/" + name, {"code": text, **more}))

    first = code("first cell", "import sys\nx = 41\nprint(sys.argv)", filename="one", args=["z"])
    check("first cell: result", first == {"stdout": "['one.py', 'z']\n", "stderr": "", "returncode": 0}, first)
    second = code("second cell", "x += 1\nprint(x)", output_params=["x", "y"])
    check("variables live on", second["stdout"] == "42\n" and second["output_variables"] == {"x": 42}, second)
    bad = code("a cell that fails", "1 / 0")
    check("a cell that fails: result", bad["returncode"] == 1 and "ZeroDivisionError" in bad["stderr"], bad)
    check("a cell that exits", code("exit", "raise SystemExit(5)")["returncode"] == 5)
    check("a hungry cell", "MemoryError" in code("too much", "len(bytearray(8 << 30))")["stderr"])
    check("still there", code("after failures", "print(x)")["stdout"] == "42\n")
    check("files too", client.get("/download/%s/one.py" % name).status == 200)
    enveloped("delete it", client.delete("/session/" + name))
    again = code("made anew by its use", "print('x' in globals())")
    check("deleted means forgotten", again["stdout"] == "False\n", again)
    enveloped("delete it again", client.delete("/session/" + name))


METRICS = {"duration_ms", "memory_peak_mb", "cpu_time_ms", "timeout_seconds"}


def handlers(client):
    def call(code, event=None, **more):
        return client.post("/v2/execute_code", {"handler_code": code, "event": event or {}, **more})

    good = call("import sys\ndef handler(event):\n    print('out'); print('err', file=sys.stderr)\n    return {'n': event['n'] + 1}", {"n": 1})
    check("handler: 200", good.status == 200, (good.status, good.body[:2000]))
    check("handler: fields", set(good.json) == {"stdout", "stderr", "result", "metrics"}, good.json)
    check("handler: result", good.json["result"] == {"n": 2}, good.json)
    check("handler: streams", (good.json["stdout"], good.json["stderr"]) == ("out\n", "err\n"), good.json)
    metrics = good.json["metrics"]
    check("handler: metrics", set(metrics) == METRICS and metrics["timeout_seconds"] == 300, metrics)
    check("handler: measured", metrics["duration_ms"] > 0 and metrics["cpu_time_ms"] > 0 and metrics["memory_peak_mb"] > 0, metrics)

    context = "def handler(event, context):\n    return [context.function_name, context.function_version, context.get_remaining_time_in_millis() > 0]"
    both = call(context, context={"function_name": "mine"})
    check("handler with a context", both.json.get("result") == ["mine", "$LATEST", True], both.json)
    forged = call("import json\ndef handler(event):\n    print(json.dumps({'outcome': 'ok', 'result': 'forged'}))\n    return 'real'")
    check("what is printed is no result", forged.json["result"] == "real", forged.json)
    state = [call("import os\nseen = os.path.exists('/tmp/mark')\nopen('/tmp/mark', 'w').close()\ndef handler(event): return seen").json["result"] for _ in range(2)]
    check("handlers share nothing", state == [False, False], state)

    def fails(what, answer, status, code):
        detail = refused(what, answer, status, "handler")
        check(what + ": code", detail["error_code"] == code, detail)
        return detail["error_detail"]

    raised = fails("handler that raises", call("def handler(event):\n    raise ValueError('no')"), 500, "Sandbox.ExecException")
    check("handler that raises: detail", raised.endswith("ValueError: no\n") and "handler.py" in raised, raised)
    fails("handler with a slip", call("def handler(event:"), 500, "Sandbox.ExecException")
    fails("handler without JSON", call("def handler(event): return {1}"), 500, "Sandbox.ExecException")
    fails("handler that vanishes", call("import os\ndef handler(event): os._exit(0)"), 500, "Sandbox.ExecException")
    fails("no handler", call("print(1)"), 400, "Sandbox.InvalidParameter")
    before = time.monotonic()
    fails("slow handler", call("import time\ndef handler(event): time.sleep(60)", {"__timeout": 1}), 500, "Sandbox.ExecTimeout")
    check("slow handler: ended in time", time.monotonic() - before < 50, time.monotonic() - before)
    fails("hungry handler", call("def handler(event): return len(bytearray(4 << 30))"), 500, "Sandbox.ExecException")
    refused("handler that is missing", client.post("/v2/execute_code", {}), 422, "validation")
    refused("event that is none", client.post("/v2/execute_code", {"handler_code": "handler", "event": 1}), 422, "validation")


def cleaning(client, name):
    busy, idle = name + "-busy", name + "-idle"
    for each in (busy, idle):
        enveloped("make " + each, client.post("/session/" + each, {}))
    running = threading.Thread(target=client.post, args=("/execute/" + busy, {"command": "touch on; sleep 300"}))
    running.start()
    deadline = time.monotonic() + 60
    while client.get("/download/%s/on" % busy).status != 200:
        check("the command starts", time.monotonic() < deadline)
        time.sleep(0.1)
    gentle = enveloped("clean up", client.post("/cleanup-all", {}), {"total", "success", "failed", "skipped"})
    check("clean up: skips what runs", any(each.startswith(busy) for each in gentle["skipped"]), gentle)
    check("clean up: counts", gentle["total"] == gentle["success"] + len(gentle["failed"]) + len(gentle["skipped"]), gentle)
    check("clean up: ends the rest", not enveloped("idle", client.get("/status/" + idle))["exists"])
    check("clean up: keeps what runs", enveloped("busy", client.get("/status/" + busy))["exists"])
    forced = enveloped("clean up by force", client.post("/cleanup-all", {"force": True}))
    check("clean up by force: all", forced["success"] == forced["total"] and not forced["skipped"], forced)
    check("clean up by force: nothing is left", enveloped("all", client.get("/workspaces"))["workspaces"] == {})
    running.join(60)
    check("what ran has ended", not running.is_alive())


def tenants(client, other, name):
    enveloped("a session of one", client.post("/create/" + name, {"content": "secret", "filename": "s.txt"}))
    check("another sees none", name not in enveloped("others", other.get("/workspaces"))["workspaces"])
    check("another finds none", not enveloped("others", other.get("/status/" + name))["exists"])
    refused("another reads none", other.get("/download/%s/s.txt" % name), 404, "text")
    enveloped("another cleans its own", other.post("/cleanup-all", {"force": True}))
    check("and ends none", client.get("/download/%s/s.txt" % name).body == b"secret")
    enveloped("the end", client.delete("/session/" + name))


def main():
    base, key = sys.argv[1:3]
    client = Client(base, key)
    name = "walk-" + os.urandom(4).hex()
    if key:
        nobody = Client(base, "").get("/status/" + name)
        check("without a key", nobody.status == 401, nobody.status)
    sessions(client, name)
    files(client, name)
    execution(client, name)
    persistent(client, name + "-kept")
    handlers(client)
    cleaning(client, name)
    if len(sys.argv) > 3:
        tenants(client, Client(base, sys.argv[3]), name)
    print("all checks passed")


if __name__ == "__main__":
    main()
