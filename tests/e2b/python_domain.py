"""The official Python SDKs by `E2B_DOMAIN`: hosts below a domain, behind TLS, with nothing else set.

Instead of a wildcard record each sandbox's names are put into a hosts file that only this program sees.
"""

import os
import sys
import urllib.error
import urllib.request

import cases
from cases import until
from e2b import Sandbox
from e2b_code_interpreter import Sandbox as Interpreter

DOMAIN = os.environ["E2B_DOMAIN"]
HOST = DOMAIN.split(":")[0]


class fresh:
    """A sandbox for one case, whose names lead to this machine."""

    def __init__(self, kind=Sandbox, **kwargs):
        self.kind, self.kwargs = kind, kwargs

    def __enter__(self):
        self.sandbox = self.kind.create(**{"timeout": 120, **self.kwargs})
        with open("/etc/hosts", "a") as hosts:
            for port in (49983, 49999, 8000):
                hosts.write(f"127.0.0.1 {port}-{self.sandbox.sandbox_id}.{HOST}\n")
        return self.sandbox

    def __exit__(self, *_):
        self.sandbox.kill()


def case_everything_is_below_the_domain():
    assert not {"E2B_API_URL", "E2B_SANDBOX_URL"} & set(os.environ)
    with fresh(metadata={"by": "domain"}) as sandbox:
        assert sandbox.get_host(8000) == f"8000-{sandbox.sandbox_id}.{DOMAIN}"
        assert sandbox.commands.run("echo hi").stdout == "hi\n"
        sandbox.files.write("a.txt", "content")
        assert sandbox.files.read("a.txt") == "content"
        listed = Sandbox.list().next_items()
        assert [one.sandbox_id for one in listed] == [sandbox.sandbox_id]
        assert sandbox.is_running()
    assert not sandbox.is_running()


def case_ports_are_hosts():
    with fresh() as sandbox:
        sandbox.files.write("site/index.html", "welcome")
        sandbox.commands.run("python3 -m http.server 8000 -d site", background=True)

        def fetched():
            try:
                with urllib.request.urlopen(f"https://{sandbox.get_host(8000)}/") as answer:
                    return answer.read()
            except urllib.error.HTTPError:
                return None

        assert until(fetched) == b"welcome"


def case_signed_addresses_lead_to_the_sandbox():
    with fresh() as sandbox:
        sandbox.files.write("a.txt", "signed")
        url = sandbox.download_url("a.txt", use_signature_expiration=60)
        assert url.startswith(f"https://49983-{sandbox.sandbox_id}.{HOST}"), url
        with urllib.request.urlopen(url) as answer:
            assert answer.read() == b"signed"


def case_code_runs_in_a_context():
    with fresh(Interpreter) as sandbox:
        sandbox.run_code("x = 41")
        assert sandbox.run_code("x + 1").text == "42"


if __name__ == "__main__":
    cases.run(sys.modules[__name__], lambda case: case())
