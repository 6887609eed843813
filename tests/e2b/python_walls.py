"""The official Python SDK `e2b`: ports, networks, and who does not get in."""

import os
import sys
import time
import urllib.error
import urllib.request

import cases
from cases import raises, until
from e2b import (
    AuthenticationException,
    CommandExitException,
    RateLimitException,
    Sandbox,
    SandboxException,
    SandboxNotFoundException,
)

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


def case_another_tenant_has_none_of_our_snapshots():
    with fresh() as sandbox:
        sandbox.files.write("secret", "secret")
        snapshot = sandbox.create_snapshot(name="walls")
        try:
            for template in (snapshot.snapshot_id, "walls"):
                assert "not found" in str(raises(SandboxException, Sandbox.create, template, api_key=OTHER_KEY))
                assert Sandbox.delete_snapshot(template, api_key=OTHER_KEY) is False
            assert Sandbox.list_snapshots(api_key=OTHER_KEY).next_items() == []
            assert Sandbox.list_snapshots(sandbox_id=sandbox.sandbox_id, api_key=OTHER_KEY).next_items() == []
            raises(SandboxNotFoundException, Sandbox.create_snapshot, sandbox.sandbox_id, api_key=OTHER_KEY)
        finally:
            assert Sandbox.delete_snapshot("walls") is True


def case_a_restored_sandbox_has_the_network_of_now():
    with fresh() as sandbox:
        snapshot = sandbox.create_snapshot()
    try:
        with fresh(snapshot.snapshot_id, allow_internet_access=False) as closed:
            assert closed.get_info().allow_internet_access is False
            raises(CommandExitException, closed.commands.run, "exec 3<>/dev/tcp/192.0.2.1/80")
    finally:
        Sandbox.delete_snapshot(snapshot.snapshot_id)


def fetch(url, data=None, headers=None):
    request = urllib.request.Request(url, data=data, headers=headers or {})
    with urllib.request.urlopen(request) as answer:
        return answer.read()


def case_ports():
    with fresh() as sandbox:
        sandbox.files.write("www/index.html", "from inside")
        sandbox.commands.run("cd www && /usr/bin/python3 -m http.server 8000", background=True)
        base = os.environ["E2B_SANDBOX_URL"]
        head = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8000"}

        def answer():
            try:
                return fetch(base + "/index.html", headers=head)
            except urllib.error.HTTPError as error:
                assert error.code == 502 and "port is not open" in error.read().decode()

        assert until(answer) == b"from inside"
        # By name, as browsers come.
        named = {"Host": f"8000-{sandbox.sandbox_id}.localhost"}
        assert fetch(base + "/index.html", headers=named) == b"from inside"
        assert sandbox.get_host(8000).startswith(f"8000-{sandbox.sandbox_id}.")


def case_private_ports():
    with fresh(network={"allow_public_traffic": False}) as sandbox:
        sandbox.commands.run("/usr/bin/python3 -m http.server 8000", background=True)
        base = os.environ["E2B_SANDBOX_URL"]
        head = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8000"}
        assert raises(urllib.error.HTTPError, fetch, base, headers=head).code == 403
        token = {**head, "E2B-Traffic-Access-Token": sandbox.traffic_access_token}

        def answer():
            try:
                return fetch(base, headers=token)
            except urllib.error.HTTPError as error:
                assert error.code == 502, error.code

        assert until(answer)


def case_internet_can_be_refused():
    with fresh(allow_internet_access=False) as sandbox:
        assert sandbox.get_info().allow_internet_access is False
        raises(CommandExitException, sandbox.commands.run, "exec 3<>/dev/tcp/192.0.2.1/80")


def case_walls():
    """Another tenant's sandbox is as good as none."""
    with fresh() as sandbox:
        other = {"api_key": OTHER_KEY}
        raises(SandboxNotFoundException, Sandbox.connect, sandbox.sandbox_id, **other)
        raises(SandboxNotFoundException, Sandbox.get_info, sandbox.sandbox_id, **other)
        raises(SandboxNotFoundException, Sandbox.set_timeout, sandbox.sandbox_id, 10, **other)
        raises(SandboxNotFoundException, Sandbox.pause, sandbox.sandbox_id, **other)
        raises(SandboxNotFoundException, Sandbox.get_metrics, sandbox.sandbox_id, **other)
        assert Sandbox.kill(sandbox.sandbox_id, **other) is False
        raises(AuthenticationException, Sandbox.create, api_key="e2b_" + "0" * 40)
        raises(AuthenticationException, Sandbox.kill, sandbox.sandbox_id, api_key="e2b_" + "0" * 40)
        assert "not found" in str(raises(SandboxException, Sandbox.create, "no-such-template"))
        with fresh() as own:
            head = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}
            for token in (own._envd_access_token, "", "x" * 40):
                url = os.environ["E2B_SANDBOX_URL"] + "/files?path=/etc/passwd"
                error = raises(urllib.error.HTTPError, fetch, url, headers={**head, "X-Access-Token": token})
                assert error.code == 401
        assert sandbox.is_running()


def case_quota():
    """A tenant may have eight sandboxes here; the ninth is refused at once, not after retries."""
    made = []
    try:
        for _ in range(8):
            made.append(Sandbox.create(timeout=60, api_key=OTHER_KEY))
        began = time.monotonic()
        raises(RateLimitException, Sandbox.create, timeout=60, api_key=OTHER_KEY)
        assert time.monotonic() - began < 2
    finally:
        for sandbox in made:
            sandbox.kill()


if __name__ == "__main__":
    cases.run(sys.modules[__name__], lambda case: case())
