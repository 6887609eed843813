"""Copies the modules that the checks need out of a kernel's package, with everything that they depend on.

    modules.py FOLDER-OF-ALL-MODULES TARGET

TARGET gets the modules, not compressed, and a file `order` with their names in the order in which they can be loaded.
What a kernel has built in is no module, so a name that is not found is not an error.
"""

import lzma
import pathlib
import re
import sys

# The disk; space on disk; the packet rules of a captured network; what a host beside ours may have: overlay, bridges' ends.
WANTED = """
    virtio_pci virtio_blk ext4 loop overlay dummy veth tun
    nf_tables nf_tables_set nf_nat nft_chain_nat nft_ct nft_limit nft_connlimit nft_redir nft_compat
""".split()


def name_of(path):
    return path.name.split(".ko")[0].replace("-", "_")


def content_of(path):
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data


def main(source, target):
    found = {name_of(path): path for path in pathlib.Path(source).rglob("*.ko*")}
    order, seen = [], set()

    def add(name):
        if name in seen or name not in found:
            return
        seen.add(name)
        data = content_of(found[name])
        needs = re.search(rb"\0depends=([^\0]*)\0", data)
        for need in filter(None, needs[1].decode().split(",")) if needs else ():
            add(need.replace("-", "_"))
        (target / f"{name}.ko").write_bytes(data)
        order.append(f"{name}.ko\n")

    target = pathlib.Path(target)
    target.mkdir(parents=True)
    for wanted in WANTED:
        add(wanted)
    (target / "order").write_text("".join(order))


if __name__ == "__main__":
    main(*sys.argv[1:])
