"""The official Python SDKs by `E2B_DOMAIN`: hosts below a domain, behind TLS, with nothing else set.

A wildcard record is what this program answers itself, to whoever looks up a name in its own view of the machine.
"""

import os
import socket
import sys
import threading
import urllib.error
import urllib.request



def answer_names(names):
    """Every name is this machine, and has no other records."""
    while True:
        query, asker = names.recvfrom(512)
        end = query.index(0, 12) + 5
        is_a = query[end - 4 : end - 2] == b"\0\1"
        head = query[:2] + b"\x81\x80\0\1" + (b"\0\1" if is_a else b"\0\0") + b"\0\0\0\0"
        record = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton("127.0.0.1")
        names.sendto(head + query[12:end] + (record if is_a else b""), asker)


NAMES = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
NAMES.bind((os.environ["NAME_SERVER"], 53))
threading.Thread(target=answer_names, args=(NAMES,), daemon=True).start()

import cases
from cases import until
from e2b import Sandbox
from e2b_code_interpreter import Sandbox as Interpreter

DOMAIN = os.environ["E2B_DOMAIN"]
HOST = DOMAIN.split(":")[0]


class fresh:
    """A sandbox for one case."""

    def __init__(self, kind=Sandbox, **kwargs):
        self.kind, self.kwargs = kind, kwargs

    def __enter__(self):
        self.sandbox = self.kind.create(**{"timeout": 120, **self.kwargs})
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
