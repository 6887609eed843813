# Runs a script as `python3 SCRIPT ARGS…` would and saves some of its variables when it ends, also by an exception.
# Arguments: where to save, the names as JSON, the script, its own arguments.


def run():
    import sys

    # The user's modules must not stand in for those that are needed here.
    path = sys.path
    sys.path = [place for place in path if place not in ("", "/workspace")]
    import builtins
    import json
    import os
    import traceback
    import types

    place, names, script = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    sys.argv = sys.argv[3:]
    sys.path = [os.path.dirname(os.path.abspath(script))] + path[1:]
    module = types.ModuleType("__main__")
    module.__file__ = script
    module.__builtins__ = builtins
    sys.modules["__main__"] = module
    try:
        with open(script, "rb") as file:
            code = compile(file.read(), script, "exec")
        exec(code, module.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        # Without the frame of this file; an error of compilation has no other.
        traceback.print_exception(type(error), error, error.__traceback__.tb_next)
        sys.exit(1)
    finally:
        save(module.__dict__, names, place)


run()
