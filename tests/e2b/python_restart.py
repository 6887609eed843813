"""What a client holds is good after the server was killed and started again: ids, tokens, programs, interpreters."""

import json
import os
import sys
import urllib.request

from e2b_code_interpreter import Sandbox


def before():
    sandbox = Sandbox.create(timeout=300, metadata={"kept": "yes"})
    sandbox.run_code("x = 7")
    sandbox.files.write("kept.txt", "kept")
    handle = sandbox.commands.run("read line; echo got $line", background=True, stdin=True)
    snapshot = sandbox.create_snapshot(name="restart").snapshot_id
    return {"snapshot": snapshot, "id": sandbox.sandbox_id, "url": sandbox.download_url("kept.txt"), "pid": handle.pid}


def after(kept):
    # Signed before, good after: the token is the same.
    assert urllib.request.urlopen(kept["url"]).read() == b"kept"
    sandbox = Sandbox.connect(kept["id"])
    assert sandbox.get_info().metadata == {"kept": "yes"}
    assert sandbox.run_code("x + 1").text == "8"
    assert kept["pid"] in {process.pid for process in sandbox.commands.list()}
    handle = sandbox.commands.connect(kept["pid"])
    sandbox.commands.send_stdin(kept["pid"], "it\n")
    assert handle.wait().stdout == "got it\n"
    sandbox.kill()
    started = Sandbox.create("restart", timeout=60)
    assert started.get_info().template_id == kept["snapshot"] and started.files.read("kept.txt") == "kept"
    started.kill()
    assert Sandbox.delete_snapshot(kept["snapshot"]) is True


if __name__ == "__main__":
    if sys.argv[1] == "before":
        with open(sys.argv[2], "w") as file:
            json.dump(before(), file)
        # A command in the background is not waited for.
        os._exit(0)
    with open(sys.argv[2]) as file:
        after(json.load(file))
    print("ok restart")
