# Defines `save`, which tells the values of variables to the server: names that do not exist are left out, values that JSON
# does not know become text.


def save(found, names, place):
    import json
    import os

    parts = []
    for name in names:
        if name not in found:
            continue
        try:
            value = json.dumps(found[name], allow_nan=False, default=str, ensure_ascii=False)
        except Exception:
            try:
                value = json.dumps(str(found[name]), ensure_ascii=False)
            except Exception:
                continue
        parts.append(json.dumps(name, ensure_ascii=False) + ": " + value)
    text = "{" + ", ".join(parts) + "}"
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode("utf-8", "replace"))
