# Holds locks and watches on files until a line comes in (`hold`), or looks whether somebody else holds a lock (`look`).
import ctypes, errno, fcntl, os, struct, sys

mode, places = sys.argv[1], sys.argv[2:]
UNLOCKED, FOR_WRITING = 2, struct.pack("hhqqi4x", 1, 0, 0, 0, 0)


def descriptor(place):
    """`None`: it may not be opened here, so that it cannot be locked either."""
    try:
        return os.open(place, os.O_RDONLY)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.ENOENT, errno.ENXIO):
            raise
        return None


if mode == "hold":
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    for place in places:
        libc.inotify_add_watch(watch, place.encode(), 0xFFF)
        fd = descriptor(place)
        if fd is not None:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.isdir(place):
                fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def events():
        seen, data = set(), b""
        try:
            while True:
                data = os.read(watch, 1 << 16)
                while data:
                    number, _, _, length = struct.unpack_from("iIII", data)
                    seen.add(places[number - 1])
                    data = data[16 + length :]
        except BlockingIOError:
            return sorted(seen)

    events()
    os.write(1, b"held\n")
    os.read(0, 1)
    os.write(1, repr(events()).encode() + b"\n")
else:
    found = []
    for place in places:
        fd = descriptor(place)
        if fd is None:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found.append("flock " + place)
        if not os.path.isdir(place):
            os.read(fd, 1)
            if struct.unpack("hhqqi4x", fcntl.fcntl(fd, fcntl.F_GETLK, FOR_WRITING))[0] != UNLOCKED:
                found.append("fcntl " + place)
        os.close(fd)
    print(found)
