# Runs one handler. Reads an object from standard input: `code`, `event`, `context`, `timeout` in seconds, and `report`,
# where an object is left: `outcome` (`ok`, `load`, `raised`, `unserialisable`), then `result` or `error`. What the handler
# prints goes to standard output and standard error as they are.


def run():
    import inspect
    import json
    import linecache
    import os
    import sys
    import time
    import traceback
    import types
    import uuid

    work = json.load(sys.stdin.buffer)
    ends_at = time.monotonic() + work["timeout"]
    source, name = work["code"], "handler.py"

    def leave(outcome, **more):
        text = json.dumps({"outcome": outcome, **more}, allow_nan=False, ensure_ascii=False)
        descriptor = os.open(work["report"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8", "replace"))

    def told(error):
        # Without the frame of this program; an error of compilation has no other.
        return "".join(traceback.format_exception(type(error), error, error.__traceback__.tb_next))

    class Context:
        def __init__(self, given):
            self.function_name = "unknown-function"
            self.function_version = "$LATEST"
            self.request_id = str(uuid.uuid4())
            self.log_group_name = "/lambda-sandbox/logs"
            self.log_stream_name = self.request_id
            self.remaining_time_in_millis = 3000
            self.memory_limit_in_mb = 256
            self.invoked_function_arn = ""
            for key, value in given.items():
                setattr(self, key, value)

        def get_remaining_time_in_millis(self):
            return max(0, int((ends_at - time.monotonic()) * 1000))

    def takes_context(function):
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):
            return False
        if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
            return True
        places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return sum(parameter.kind in places for parameter in parameters) >= 2

    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    module = types.ModuleType("__main__")
    module.__file__ = name
    sys.modules["__main__"] = module
    sys.argv = [name]
    try:
        exec(compile(source, name, "exec"), module.__dict__)
    except BaseException as error:
        leave("load", error=told(error))
        return 1
    handler = module.__dict__.get("handler")
    if not callable(handler):
        leave("load", error="the code defines no function `handler`")
        return 1
    try:
        if takes_context(handler):
            result = handler(work["event"], Context(work["context"]))
        else:
            result = handler(work["event"])
        if inspect.iscoroutine(result):
            import asyncio

            result = asyncio.run(result)
    except BaseException as error:
        leave("raised", error=told(error))
        return 2
    try:
        leave("ok", result=result)
    except Exception as error:
        leave("unserialisable", error="the result is not JSON: " + str(error))
        return 3
    return 0


raise SystemExit(run())
