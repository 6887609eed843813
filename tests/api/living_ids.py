"""Hooks for schemathesis: ids of things that live, so that requests get past the question whether something is there.

Where a generated id has the right shape, one of a living sandbox, context or program takes its place, made anew when an
earlier request ended it. An id of another shape is left as it is: such ids must be refused. What requests make is ended at
once, so that no quota fills up.

SANDSTORM_URL and SANDSTORM_API_KEY lead to the server.
"""

import json
import os
import re
import threading
import time
import urllib.error
import urllib.request

import schemathesis

URL, KEY = os.environ["SANDSTORM_URL"], os.environ["SANDSTORM_API_KEY"]
SHAPE = {
    "sandbox": re.compile(r"sbx_[a-z2-7]{26}"),
    "context": re.compile(r"ctx_[a-z2-7]{26}"),
    "exec": re.compile(r"exec_[a-z2-7]{26}"),
}
LIFETIME = "1h"


def ask(method, path, body=None, wanted=(200, 201, 202, 204)):
    data = None if body is None else json.dumps(body).encode()
    headers = {"X-API-Key": KEY, "Content-Type": "application/json"}
    request = urllib.request.Request(URL + path, data=data, headers=headers, method=method)
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

    def sandbox(self):
        if not self.is_there("sandbox", "/v1/sandboxes/%(sandbox)s", lambda body: body["state"] in ("ready", "running")):
            self.ids = {"sandbox": ask("POST", "/v1/sandboxes", {"lifetime": LIFETIME})[1]["id"]}
        return self.ids["sandbox"]

    def context(self):
        self.sandbox()
        if not self.is_there("context", "/v1/sandboxes/%(sandbox)s/contexts/%(context)s", lambda _: True):
            self.ids["context"] = ask("POST", "/v1/sandboxes/%(sandbox)s/contexts" % self.ids, {"language": "python"})[1]["id"]
        return self.ids["context"]

    def running(self):
        self.sandbox()
        if not self.is_there("running", "/v1/sandboxes/%(sandbox)s/execs/%(running)s", lambda body: body["running"]):
            wish = {"command": "cat > /dev/null", "background": True, "stdin_stream": True, "timeout": LIFETIME}
            self.ids["running"] = ask("POST", "/v1/sandboxes/%(sandbox)s/exec" % self.ids, wish)[1]["id"]
        return self.ids["running"]

    def ended(self):
        self.sandbox()
        if "ended" not in self.ids:
            self.ids["ended"] = ask("POST", "/v1/sandboxes/%(sandbox)s/exec" % self.ids, {"command": "echo hi"})[1]["id"]
        return self.ids["ended"]


LOCAL = threading.local()


def living():
    # One for each worker: they would end each other's.
    if not hasattr(LOCAL, "living"):
        LOCAL.living = Living()
    return LOCAL.living


@schemathesis.hook
def before_call(context, case, kwargs):
    found = case.path_parameters or {}
    for name, shape in SHAPE.items():
        value = found.get(name)
        if not (isinstance(value, str) and shape.fullmatch(value)):
            continue
        if name == "exec":
            # Following a program that runs would never end.
            value = living().ended() if case.path.endswith("/events") else living().running()
        else:
            value = getattr(living(), name)()
        found[name] = value
    if isinstance(case.body, dict) and SHAPE["context"].fullmatch(str(case.body.get("context"))):
        case.body["context"] = living().context()


SEEN = {}


@schemathesis.hook
def after_call(context, case, response):
    counts = SEEN.setdefault(case.method + " " + case.path, {})
    counts[response.status_code] = counts.get(response.status_code, 0) + 1
    if case.method.upper() == "POST" and case.path == "/v1/sandboxes" and response.status_code == 201:
        ask("DELETE", "/v1/sandboxes/" + response.json()["id"])
    elif case.path.endswith("/exec") and response.status_code == 202:
        ask("DELETE", "/v1/sandboxes/%(sandbox)s/execs/" % case.path_parameters + response.json()["id"], wanted=None)

import atexit
@atexit.register
def told():
    for k,v in sorted(SEEN.items()): print(k,dict(sorted(v.items())))
