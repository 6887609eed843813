"""Runs the cases of a module one after the other and tells which failed."""

import inspect
import os
import sys
import time
import traceback


def raises(kind, call, *args, **kwargs):
    """The exception of exactly this class that a call ends with."""
    try:
        call(*args, **kwargs)
    except Exception as error:
        assert type(error) is kind, f"wanted {kind.__name__}, got {type(error).__name__}: {error}"
        return error
    raise AssertionError(f"wanted {kind.__name__}, and nothing was raised")


async def araises(kind, waiting):
    try:
        await waiting
    except Exception as error:
        assert type(error) is kind, f"wanted {kind.__name__}, got {type(error).__name__}: {error}"
        return error
    raise AssertionError(f"wanted {kind.__name__}, and nothing was raised")


def until(holds, seconds=15):
    """Waits for something that comes about by itself."""
    end = time.monotonic() + seconds
    while True:
        value = holds()
        if value:
            return value
        assert time.monotonic() < end, f"{inspect.getsource(holds).strip()} did not come about in {seconds} s"
        time.sleep(0.1)


def run(module, call):
    """`call` runs one case; cases are the functions whose names begin with `case_`."""
    wanted = sys.argv[1:]
    cases = [(name[5:], case) for name, case in vars(module).items() if name.startswith("case_")]
    cases = [(name, case) for name, case in cases if not wanted or name in wanted]
    assert cases, f"there is none of {wanted}"
    failed = []
    for name, case in cases:
        began = time.monotonic()
        try:
            call(case)
        except Exception:
            failed.append(name)
            print(f"FAILED {name}", flush=True)
            traceback.print_exc()
        else:
            print(f"ok {name} ({time.monotonic() - began:.2f} s)", flush=True)
    if failed:
        print(f"{len(failed)} of {len(cases)} cases failed: {', '.join(failed)}")
    else:
        print(f"{len(cases)} cases passed")
    sys.stdout.flush()
    # The SDK's threads may still be about when the interpreter takes itself apart, which now and then aborts.
    os._exit(1 if failed else 0)
