"""What clients call, and what has to come back: the steps of `steps.json`."""

import json
import pathlib

STEPS = json.loads((pathlib.Path(__file__).parent / "steps.json").read_text())
TOOLS = {step["tool"] for step in STEPS}


class Conversation:
    """Steps that are checked as they are taken; later ones use what earlier answers gave."""

    def __init__(self, way):
        self.way = way
        self.kept = {}

    def arguments(self, step):
        return {name: self._filled(value) for name, value in step["args"].items()}

    def check(self, step, failed, words, data):
        # What cannot be had everywhere is refused in these words, there and nowhere else.
        allowed = step.get("refused", {}).get(self.way)
        if failed and (allowed is None or allowed not in words):
            raise SystemExit(f"{step['tool']} over {self.way}: {words}")
        for path, wanted in step.get("want", []):
            got = found(data, path)
            if got != wanted:
                raise SystemExit(f"{step['tool']} over {self.way}: {got!r} instead of {wanted!r}")
        self.kept.update({name: found(data, path) for name, path in step.get("keep", {}).items()})

    def _filled(self, value):
        name = value[1:] if isinstance(value, str) and value.startswith("$") else None
        return self.kept.get(name, value)


def found(data, path):
    for part in path:
        data = data[part]
    return data
