"""Compiles many mutations into one build, each behind a switch that is a few bytes of the built programs.

A function that a mutation changes becomes `{ if its number is set { changed body } else { body } }`. The number lies in the
programs themselves and is written there between two runs: neither a variable of the environment nor an argument would reach
the agent inside a jail, which is started with nothing of its caller's. So 170 mutations need one build and not 170.
"""

import os
import re
import time

MARK = b"this mutation is set: "
DIGITS = 4
NONE = 0

# What can hold a brace that is none of the program's. A lifetime is no character.
RAW = re.compile(r'\b(?:r|br|cr)(#*)"', re.S)
TEXT = re.compile(r'\b(?:b|c)?"|"')
CHARACTER = re.compile(r"b?'(?:\\(?:u\{[^}]*\}|x[0-9a-fA-F]{2}|.)|[^\\'\n])'")


def blanked(text):
    """The text with comments, strings and characters overwritten by spaces, so that each brace left is one of the program's."""
    out, at = list(text), 0

    def blank(start, end):
        for index in range(start, end):
            if out[index] != "\n":
                out[index] = " "

    while at < len(text):
        if text.startswith("//", at):
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
        elif text.startswith("/*", at):
            end, depth = at + 2, 1
            while depth:
                opens, closes = text.find("/*", end), text.find("*/", end)
                if 0 <= opens < closes:
                    depth, end = depth + 1, opens + 2
                else:
                    depth, end = depth - 1, closes + 2
        elif raw := RAW.match(text, at):
            end = text.index('"' + raw[1], raw.end()) + 1 + len(raw[1])
        elif string := TEXT.match(text, at):
            end = string.end()
            while text[end] != '"':
                end += 2 if text[end] == "\\" else 1
            end += 1
        elif character := CHARACTER.match(text, at):
            end = character.end()
        elif word := re.compile(r"\w+").match(text, at):
            at = word.end()
            continue
        else:
            at += 1
            continue
        blank(at, end)
        at = end
    return "".join(out)


def bodies(text):
    """Start and end of each function's body, its braces included, and whether it can have two bodies."""
    plain, found = blanked(text), []
    for match in re.finditer(r"\bfn\s+\w+", plain):
        at, depth = match.end(), 0
        while not (depth == 0 and plain[at] in "{;"):
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(plain[at], 0)
            at += 1
        if plain[at] == ";":
            continue
        start, depth = at, 0
        while True:
            depth += {"{": 1, "}": -1}.get(plain[at], 0)
            at += 1
            if depth == 0:
                break
        line = plain[plain.rfind("\n", 0, match.start()) + 1 : match.start()]
        # A constant function runs while the program is built, and two bodies have two types where one is only described.
        hidden = re.search(r"->[^{;]*\bimpl\b", plain[match.end() : start])
        found.append((start, at, not re.search(r"\bconst\b", line) and not hidden))
    return found


def body_around(found, start, end):
    around = [body for body in found if body[0] < start and end < body[1]]
    return min(around, key=lambda body: body[1] - body[0]) if around else None


def condition(number):
    mark = MARK.decode()
    return (
        f'{{ static SET: [u8; {len(mark) + DIGITS}] = *b"{mark}{NONE:0{DIGITS}}"; '
        f'::core::hint::black_box(&SET)[{len(mark)}..] == *b"{number:0{DIGITS}}" }}'
    )


def compile_in(root, numbered):
    """Writes all mutations that can be switched into the tree, and returns their numbers."""
    texts = {}
    places = {}
    switched = set()
    for number, mutation in numbered.items():
        wanted = []
        for file, find, put in mutation.edits:
            if not file.endswith(".rs"):
                break
            text = texts.setdefault(file, (root / file).read_text())
            start = text.index(find)
            body = body_around(bodies(text), start, start + len(find))
            if body is None or not body[2]:
                break
            wanted.append((file, body[:2], start, find, put))
        else:
            switched.add(number)
            for file, body, start, find, put in wanted:
                places.setdefault(file, {}).setdefault(body, {}).setdefault(number, []).append((start, find, put))
    for file, changed in places.items():
        text = texts[file]
        # From the innermost and last: what is inserted moves only what comes after it.
        pieces = []
        for (start, end), numbers in changed.items():
            before = ""
            for number, edits in numbers.items():
                body = text[start:end]
                for at, find, put in sorted(edits, reverse=True):
                    body = body[: at - start] + put + body[at - start + len(find) :]
                before += f"if {condition(number)} {body} else "
            pieces.append((start, "{ " + before))
            pieces.append((end, " }"))
        for at, piece in sorted(pieces, reverse=True):
            text = text[:at] + piece + text[at:]
        (root / file).write_text(text)
    return switched


class Switch:
    """The places of the number in the built programs."""

    def __init__(self, programs):
        self.places = {}
        for path in programs:
            data = path.read_bytes()
            found = [match.end() for match in re.finditer(re.escape(MARK) + rb"(?=\d{4})", data)]
            if found:
                self.places[path] = found

    def set(self, number):
        """A program that still runs cannot be written; whoever started it is on the way to end it."""
        digits = f"{number:0{DIGITS}}".encode()
        for path, places in self.places.items():
            was = path.stat()
            deadline = time.monotonic() + 60
            while True:
                try:
                    with open(path, "r+b") as program:
                        for place in places:
                            program.seek(place)
                            program.write(digits)
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)
            # Cargo builds again what is newer than it was.
            os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
