"""Hooks for schemathesis: ids of things that live, so that requests get past the question whether something is there.

Where a generated id has the right shape, one of a living sandbox, context or program takes its place, made anew when an
earlier request ended it. An id of another shape is left as it is: such ids must be refused. What requests make is ended
at once, so that no quota fills up. What events of a stream carry is checked here, since OpenAPI 3.1 cannot describe it.

SANDSTORM_URL and SANDSTORM_API_KEY lead to the server, SANDSTORM_ADMIN_URL to its operators' routes. Which operations
were answered with success is written to SANDSTORM_FUZZ_REACHED at the end.
"""

import atexit
import itertools
import json
import os
import re
import threading
import urllib.error
import urllib.parse
import urllib.request

import jsonschema_rs
import schemathesis

URL, ADMIN_URL, KEY = (os.environ["SANDSTORM_" + name] for name in ("URL", "ADMIN_URL", "API_KEY"))
SHAPE = {
    "sandbox": re.compile(r"sbx_[a-z2-7]{26}"),
    "context": re.compile(r"ctx_[a-z2-7]{26}"),
    "exec": re.compile(r"exec_[a-z2-7]{26}"),
    "key": re.compile(r"[^/?#%]{1,40}"),
}
LIFETIME = "1h"
DONE = (200, 201, 202, 204)
LANGUAGES = ["bash", "python", "javascript"]
NUMBERS = itertools.count()


def ask(method, path, body=None, url=URL, wanted=DONE):
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
    request = urllib.request.Request(url + path, data=data, headers={"X-API-Key": KEY, "Content-Type": kind}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as refusal:
        with refusal:
            status, text = refusal.code, refusal.read()
    if wanted and status not in wanted:
        raise RuntimeError("%s %s: %d %r" % (method, path, status, text))
    return status, json.loads(text) if text else None


class Living:
    """One sandbox with an interpreter, a program that runs and one that has ended."""

    def __init__(self):
        self.ids = {}

    def is_there(self, kind, path, state):
        if kind not in self.ids:
            return False
        status, body = ask("GET", path % self.ids, wanted=None)
        return status == 200 and state(body)

    def make(self, kind, path, wish):
        self.ids[kind] = ask("POST", path % self.ids, wish)[1]["id"]

    def sandbox(self):
        if not self.is_there("sandbox", "/v1/sandboxes/%(sandbox)s", lambda body: body["state"] in ("ready", "running")):
            if "sandbox" in self.ids:
                ask("DELETE", "/v1/sandboxes/%(sandbox)s" % self.ids, wanted=None)
            self.ids = {}
            self.make("sandbox", "/v1/sandboxes", {"lifetime": LIFETIME})
        return self.ids["sandbox"]

    def context(self):
        self.sandbox()
        if not self.is_there("context", "/v1/sandboxes/%(sandbox)s/contexts/%(context)s", lambda _: True):
            self.make("context", "/v1/sandboxes/%(sandbox)s/contexts", {"language": "python"})
        return self.ids["context"]

    def exec(self):
        self.sandbox()
        if not self.is_there("exec", "/v1/sandboxes/%(sandbox)s/execs/%(exec)s", lambda body: body["running"]):
            wish = {"command": "cat > /dev/null", "background": True, "stdin_stream": True, "timeout": LIFETIME}
            self.make("exec", "/v1/sandboxes/%(sandbox)s/exec", wish)
        return self.ids["exec"]

    def ended(self):
        self.sandbox()
        if "ended" not in self.ids:
            self.make("ended", "/v1/sandboxes/%(sandbox)s/exec", {"command": "echo hi"})
        return self.ids["ended"]

    def key(self):
        return ask("POST", "/v1/admin/keys", {"name": "fuzzed", "scopes": ["run"]}, url=ADMIN_URL)[1]["id"]


LOCAL = threading.local()
REACHED = set()
EVENTS = None


def living():
    # One for each worker: they would end each other's.
    if not hasattr(LOCAL, "living"):
        LOCAL.living = Living()
    return LOCAL.living


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """Makes valid requests likely, and tells what events look like. The rules stay those of the document."""
    global EVENTS
    schemas = raw_schema["components"]["schemas"]
    EVENTS = jsonschema_rs.Draft202012Validator(
        {"$ref": "#/components/schemas/StreamEvent", "components": {"schemas": json.loads(json.dumps(schemas))}}
    )
    schemas["LanguageText"] = {"enum": LANGUAGES}
    ways = {
        "StartExec": [("command",), ("language", "code"), ("context", "code")],
        "SignalRequest": [("signal",), ("resize",)],
        "Extend": [("seconds",), ("lifetime",)],
    }
    for name, each in ways.items():
        schemas[name] = {"oneOf": [one_way(schemas[name]["properties"], each, way) for way in each]}
    # 3.1 has one schema for a stream and its events; schemathesis takes it for the latter.
    for item in raw_schema["paths"].values():
        for operation in item.values():
            for answer in operation["responses"].values():
                stream = answer.get("content", {}).get("text/event-stream")
                if stream:
                    stream["schema"] = {"type": "object", "required": ["event", "data"]}


def one_way(fields, ways, required):
    """One of several ways to fill an object, as an object of its own: a generator hardly ever finds it otherwise."""
    others = {name for way in ways for name in way} - set(required)
    kept = {name: field for name, field in fields.items() if name not in others}
    kept |= {name: present(fields[name]) for name in required}
    return {"type": "object", "additionalProperties": False, "properties": kept, "required": list(required)}


def present(field):
    """The same field without null."""
    if "oneOf" in field:
        return next(way for way in field["oneOf"] if way != {"type": "null"})
    kinds = field["type"]
    return {**field, "type": next(kind for kind in kinds if kind != "null") if isinstance(kinds, list) else kinds}


@schemathesis.hook
def before_call(context, case, kwargs):
    found = case.path_parameters or {}
    for name, shape in SHAPE.items():
        value = found.get(name)
        if isinstance(value, str) and shape.fullmatch(value):
            # Following a program that runs would never end.
            kind = "ended" if name == "exec" and case.path.endswith("/events") else name
            found[name] = getattr(living(), kind)()
    if isinstance(case.body, dict) and SHAPE["context"].fullmatch(str(case.body.get("context"))):
        case.body["context"] = living().context()
    # The generator likes to send one key with many bodies, which would all be conflicts.
    name = next((name for name in case.headers or {} if name.lower() == "idempotency-key"), None)
    if name and re.fullmatch(r"[!-~]{1,200}", str(case.headers[name])):
        case.headers[name] += "-%d" % next(NUMBERS)
    path = (case.query or {}).get("path")
    if case.path.endswith("/files") and case.method.upper() in ("GET", "HEAD", "DELETE") and isinstance(path, str):
        # Something to read or remove, where such a path can be.
        where = tuple(urllib.parse.quote(text, safe="") for text in (found["sandbox"], path))
        ask("PUT", "/v1/sandboxes/%s/files?path=%s" % where, b"x", wanted=None)


@schemathesis.hook
def after_call(context, case, response):
    if response.status_code in DONE:
        REACHED.add("%s %s" % (case.method.upper(), case.path))
    if case.method.upper() == "POST" and case.path == "/v1/sandboxes" and response.status_code == 201:
        ask("DELETE", "/v1/sandboxes/" + response.json()["id"])
    elif case.path.endswith("/exec") and response.status_code == 202:
        ask("DELETE", "/v1/sandboxes/%(sandbox)s/execs/" % case.path_parameters + response.json()["id"], wanted=None)


@schemathesis.hook
def filter_failure(context, failure, case, response):
    # Headers that nobody knows are no mistake of a request: HTTP says to ignore them.
    return "in header - object with unexpected properties" not in str(failure.message)


@schemathesis.check
def events_are_as_described(context, response, case):
    if response.status_code != 200 or not response.headers.get("content-type", [""])[0].startswith("text/event-stream"):
        return
    last = -1
    for block in response.content.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if not fields:
            continue
        event = json.loads(fields["data"])
        EVENTS.validate(event)
        assert event["type"] == fields["event"] and str(event["seq"]) == fields["id"], block
        assert event["seq"] > last, block
        last = event["seq"]


@atexit.register
def tell():
    with open(os.environ["SANDSTORM_FUZZ_REACHED"], "a") as file:
        file.writelines(line + "\n" for line in sorted(REACHED))
