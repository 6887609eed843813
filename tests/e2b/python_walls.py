"""The official Python SDK `e2b`: ports, networks, and who does not get in."""

import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

import cases
from cases import raises, until
from e2b import (
    AuthenticationException,
    CommandExitException,
    RateLimitException,
    Sandbox,
    SandboxException,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
)
from e2b.exceptions import SandboxNotRunningException

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
        # No host of ours leads to another server.
        here = urllib.parse.urlsplit(base)
        host = sandbox.get_host(8000)
        assert host == f"8000-{sandbox.sandbox_id}.localhost:{here.port}", host
        assert fetch(base + "/index.html", headers={"Host": host}) == b"from inside"
        assert Sandbox.connect(sandbox.sandbox_id).get_host(8000) == host


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


def case_a_sandbox_that_ends_takes_its_commands_along():
    for end in (Sandbox.kill, lambda sandbox: sandbox.set_timeout(0)):
        with fresh() as sandbox:
            command = sandbox.commands.run("sleep 60", background=True)
            end(sandbox)
            error = raises(SandboxNotRunningException, command.wait)
            assert "killed or reached its end of life" in str(error), error
            assert not sandbox.is_running()
            raises(SandboxNotFoundException, sandbox.get_info)


def case_a_pause_without_memory():
    once = {"on_timeout": {"action": "pause", "mode": "filesystem"}}
    with fresh(lifecycle=once) as sandbox:
        sandbox.files.write("kept.txt", "kept")
        # One that nobody has a hand on any more ends, too.
        sandbox.commands.run("setsid sleep 601 >&- 2>&- & echo")
        for pause in (lambda: sandbox.pause(mode="filesystem"), lambda: sandbox.set_timeout(0)):
            command = sandbox.commands.run("sleep 602", background=True)
            pause()
            assert "killed or reached its end of life" in str(raises(SandboxNotRunningException, command.wait))
            info = sandbox.get_info()
            assert (info.state, info.lifecycle["on_timeout"]) == (SandboxState.PAUSED, "pause")
            raises(SandboxException, sandbox.connect, on_resume="reboot")
            again = sandbox.connect()
            assert again.files.read("kept.txt") == "kept"
            assert again.commands.list() == []
            running = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"
            assert "sleep 60" not in again.commands.run(running).stdout


def case_the_host_that_programs_see():
    with fresh(network={"mask_request_host": "${PORT}-app.example.com"}) as sandbox:
        program = (
            "import http.server as h\n"
            "class H(h.BaseHTTPRequestHandler):\n"
            " def do_GET(self):\n"
            "  said = self.headers['Host'].encode()\n"
            "  self.send_response(200); self.send_header('Content-Length', str(len(said))); self.end_headers()\n"
            "  self.wfile.write(said)\n"
            "h.HTTPServer(('', 8080), H).serve_forever()\n"
        )
        sandbox.files.write("host.py", program)
        sandbox.commands.run("/usr/bin/python3 host.py", background=True)

        def answer():
            try:
                return fetch(os.environ["E2B_SANDBOX_URL"], headers={"Host": sandbox.get_host(8080)})
            except urllib.error.HTTPError as error:
                assert error.code == 502, error.code

        assert until(answer) == b"8080-app.example.com"
        assert sandbox.get_info().network["mask_request_host"] == "${PORT}-app.example.com"


# Says what became of a request to an address. Nothing leaves this machine: what is allowed here is nobody's address.
ASK = "exec 3<>/dev/tcp/{}/80; printf 'GET / HTTP/1.1\\r\\nHost: {}\\r\\n\\r\\n' >&3; cat <&3"


def case_single_addresses_can_be_denied():
    def said(sandbox, address):
        return sandbox.commands.run(ASK.format(address, address)).stdout

    with fresh(network={"deny_out": ["8.8.8.8", "1.1.1.0/24"], "allow_out": ["198.51.100.7"]}) as sandbox:
        network = sandbox.get_info().network
        assert network["deny_out"] == ["8.8.8.8/32", "1.1.1.0/24"] and network["allow_out"] == ["198.51.100.7"]
        for denied in ("8.8.8.8", "1.1.1.1"):
            assert "policy does not allow" in said(sandbox, denied), denied
        for open_ in ("192.0.2.1", "198.51.100.7"):
            assert "not a public address" in said(sandbox, open_), open_
        # The newer rules replace the older ones.
        sandbox.update_network({"deny_out": ["192.0.2.0/24"]})
        assert "policy does not allow" in said(sandbox, "192.0.2.1")
        assert "not a public address" in said(sandbox, "198.51.100.7")


def case_rules_of_a_network_are_kept_or_refused_by_name():
    rules = {"api.example.com": [{"transform": {"headers": {"X-Token": "secret"}}}]}
    with fresh(network={"rules": rules}) as sandbox:
        assert sandbox.get_info().network["rules"] == rules
    for refused, name in (
        ({"https_ports": [8443]}, "httpsPorts"),
        ({"egress_proxy": {"address": "proxy.example.com:1080"}}, "egressProxy"),
        ({"dns_servers": ["192.0.2.53"]}, "dnsServers"),
        ({"deny_out": ["example.com"]}, "denyOut"),
        ({"rules": {"192.0.2.1": rules["api.example.com"]}}, "network.rules"),
    ):
        assert name in str(raises(SandboxException, Sandbox.create, network=refused)), name


def case_pages_of_browsers_ask_without_a_key():
    base = os.environ["E2B_API_URL"]
    wake = {"on_timeout": "pause", "auto_resume": True}
    with fresh(lifecycle=wake) as sandbox:
        sandbox.pause()
        names = "authorization,connect-protocol-version,e2b-sandbox-id,e2b-sandbox-port,x-access-token,x-api-key"
        asked = {"Origin": "https://app.test", "Access-Control-Request-Method": "POST"}
        asked["Access-Control-Request-Headers"] = names
        for path, host in (
            ("/v2/sandboxes", None),
            (f"/v2/sandboxes/{sandbox.sandbox_id}/connect", None),
            ("/process.Process/Start", None),
            ("/health", None),
            ("/execute", None),
            ("/files?path=a", sandbox.get_host(49983)),
            ("/contexts", sandbox.get_host(49999)),
        ):
            head = {**asked, **({"Host": host} if host else {})}
            request = urllib.request.Request(base + path, headers=head, method="OPTIONS")
            with urllib.request.urlopen(request) as answer:
                given = answer.headers
                assert answer.status == 204 and given["Access-Control-Allow-Origin"] == "*", path
                assert given["Access-Control-Allow-Headers"] == names, path
                assert "POST" in given["Access-Control-Allow-Methods"], path
        assert sandbox.get_info().state == SandboxState.PAUSED
        # Without a key a request is refused, and the page may read that.
        request = urllib.request.Request(base + "/v2/sandboxes", headers={"Origin": "https://app.test"})
        refused = raises(urllib.error.HTTPError, urllib.request.urlopen, request)
        assert (refused.code, refused.headers["Access-Control-Allow-Origin"]) == (401, "*")


def case_an_mcp_gateway_is_the_templates():
    mark = {"mark": uuid.uuid4().hex}
    # The SDK starts it as a program of the sandbox, does not find it there, and ends the sandbox.
    try:
        Sandbox.create("base", mcp={"github": {}}, metadata=mark, timeout=60).kill()
    except SandboxException:
        assert Sandbox.list(query=SandboxQuery(metadata=mark)).next_items() == []
    else:
        raise AssertionError("a gateway was started where there is none")
    assert "dialects.e2b.templates" in str(raises(SandboxException, Sandbox.create, mcp={"github": {}}))


def case_lists_from_a_moment_on():
    with fresh() as sandbox:
        since = SandboxQuery(started_after=sandbox.get_info().started_at)
        assert sandbox.sandbox_id in [info.sandbox_id for info in Sandbox.list(query=since).next_items()]


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
