"""Packs the images of the tests as one archive: one that holds the namespaces of a pod, and one with this machine's Python.

    images.py ARCHIVE PAUSE

No registry is asked for anything: the files are those of this machine.
"""

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile

TOOLS = """cat chmod cp cut date dd dash echo env false head id ln ls mkdir mv printf pwd readlink rm rmdir seq sleep sort
stat stty tail tee test touch tr true tty uname wc yes grep sed tar""".split()


def add(layer, source, target):
    """Puts a file, or what a link stands for, under its own name."""
    info = layer.gettarinfo(os.path.realpath(source), target.lstrip("/"))
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    with open(os.path.realpath(source), "rb") as file:
        layer.addfile(info, file)


def link(layer, name, target):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
    layer.addfile(info)


def libraries(program):
    told = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return set(re.findall(r"(/[^ ]+) \(0x", told))


def python_layer():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for name, target in [("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64"), ("sbin", "usr/bin")]:
            link(layer, name, target)
        python = os.path.realpath("/usr/bin/python3")
        version = os.path.basename(python)
        programs = [python] + [f"/usr/bin/{tool}" for tool in TOOLS if os.path.exists(f"/usr/bin/{tool}")]
        needed = set()
        for program in programs:
            add(layer, program, f"/usr/bin/{os.path.basename(program)}")
            needed |= libraries(program)
        link(layer, "usr/bin/python3", version)
        link(layer, "usr/bin/sh", "dash")
        for folder, folders, files in os.walk(f"/usr/lib/{version}"):
            folders[:] = [f for f in folders if f not in ("__pycache__", "test", "tests", "idlelib", "lib2to3")]
            for file in files:
                path = os.path.join(folder, file)
                if os.path.exists(path):
                    add(layer, path, path)
                    if file.endswith(".so"):
                        needed |= libraries(path)
        for library in sorted(needed):
            # As it is asked for: below a folder that may be a link here.
            add(layer, library, re.sub(r"^/(lib|lib64)/", r"/usr/\1/", library))
    return buffer.getvalue()


def pause_layer(pause):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        add(layer, pause, "/pause")
    return buffer.getvalue()


def main():
    archive, pause = sys.argv[1:]
    images = [("pause:1", pause_layer(pause), ["/pause"]), ("python:1", python_layer(), ["/usr/bin/python3"])]
    manifest = []
    with tarfile.open(archive + ".new", "w") as out:
        def put(name, content):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            out.addfile(info, io.BytesIO(content))

        for name, layer, command in images:
            digest = hashlib.sha256(layer).hexdigest()
            config = json.dumps({
                "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
                "os": "linux",
                "config": {"Entrypoint": command, "Env": ["PATH=/usr/bin"]},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            }).encode()
            place = hashlib.sha256(config).hexdigest()
            put(f"{place}.json", config)
            put(f"{digest}/layer.tar", layer)
            manifest.append({
                "Config": f"{place}.json",
                "RepoTags": [f"docker.io/sandstorm/{name}"],
                "Layers": [f"{digest}/layer.tar"],
            })
        put("manifest.json", json.dumps(manifest).encode())
    os.replace(archive + ".new", archive)


main()
