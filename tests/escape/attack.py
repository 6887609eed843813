"""What every attack shares: raw system calls, and a way to say what the kernel answered.

An attack makes its attempts and names the answers that a wall gives. An attempt that succeeds, or fails for a reason that
is no wall's, is printed as `broken`. The last line counts the attempts, so that an attack which stopped halfway cannot pass.
"""

import ctypes
import errno
import os
import platform
import sys

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_made = 0
_broken = 0

_X86_64 = {
    "ptrace": 101, "unshare": 272, "setns": 308, "clone": 56, "clone3": 435, "mount": 165, "umount2": 166,
    "pivot_root": 155, "chroot": 161, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432,
    "fspick": 433, "mount_setattr": 442, "open_tree_attr": 467, "init_module": 175, "finit_module": 313,
    "delete_module": 176, "kexec_load": 246, "bpf": 321, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
    "pidfd_open": 434, "pidfd_getfd": 438, "perf_event_open": 298, "userfaultfd": 323, "io_uring_setup": 425,
    "io_uring_enter": 426, "io_uring_register": 427, "keyctl": 250, "add_key": 248, "request_key": 249,
    "open_by_handle_at": 304, "name_to_handle_at": 303, "fanotify_init": 300, "reboot": 169, "swapon": 167, "swapoff": 168,
    "acct": 163, "syslog": 103, "settimeofday": 164, "clock_settime": 227, "adjtimex": 159, "sethostname": 170,
    "setdomainname": 171, "iopl": 172, "ioperm": 173, "quotactl": 179, "mknod": 133, "mknodat": 259, "setgroups": 116,
    "capset": 126, "memfd_create": 319, "execveat": 322, "setuid": 105, "setgid": 106, "setresuid": 117, "setresgid": 119,
    "personality": 135, "seccomp": 317, "statmount": 457, "listmount": 458, "process_madvise": 440, "modify_ldt": 154,
}
_AARCH64 = {
    "ptrace": 117, "unshare": 97, "setns": 268, "clone": 220, "clone3": 435, "mount": 40, "umount2": 39,
    "pivot_root": 41, "chroot": 51, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432,
    "fspick": 433, "mount_setattr": 442, "open_tree_attr": 467, "init_module": 105, "finit_module": 273,
    "delete_module": 106, "kexec_load": 104, "bpf": 280, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272,
    "pidfd_open": 434, "pidfd_getfd": 438, "perf_event_open": 241, "userfaultfd": 282, "io_uring_setup": 425,
    "io_uring_enter": 426, "io_uring_register": 427, "keyctl": 219, "add_key": 217, "request_key": 218,
    "open_by_handle_at": 265, "name_to_handle_at": 264, "fanotify_init": 262, "reboot": 142, "swapon": 224, "swapoff": 225,
    "acct": 89, "syslog": 116, "settimeofday": 170, "clock_settime": 112, "adjtimex": 171, "sethostname": 161,
    "setdomainname": 162, "quotactl": 60, "mknodat": 33, "setgroups": 159, "capset": 91, "memfd_create": 279,
    "execveat": 281, "setuid": 146, "setgid": 144, "setresuid": 147, "setresgid": 149, "personality": 92, "seccomp": 277,
    "statmount": 457, "listmount": 458, "process_madvise": 440,
}
CALLS = _X86_64 if platform.machine() == "x86_64" else _AARCH64


def syscall(name, *arguments):
    """Makes a call by name; fails as Python's own do. A call that this machine does not have is refused by nature."""
    if name not in CALLS:
        raise OSError(errno.ENOSYS, name)
    passed = [ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    answer = _libc.syscall(ctypes.c_long(CALLS[name]), *passed)
    if answer == -1:
        raise OSError(ctypes.get_errno(), name)
    return answer


def refused(what, attempt, *answers):
    """The attempt has to fail with one of these errors."""
    global _made, _broken
    _made += 1
    try:
        got = attempt()
    except OSError as error:
        name = errno.errorcode.get(error.errno, str(error.errno))
        if name in answers:
            return
        print(f"broken: {what}: {name}, not {' or '.join(answers)}")
    else:
        print(f"broken: {what}: succeeded with {got!r}")
    _broken += 1


def check(what, found, wanted):
    """Something seen inside has to be what it should."""
    global _made, _broken
    _made += 1
    if found != wanted:
        print(f"broken: {what}: {found!r}, not {wanted!r}")
        _broken += 1


def read(path):
    with open(path, "rb") as file:
        return file.read(1 << 20)


def show(path):
    """Prints whatever can be read there, for the search for markers; absence and refusal are fine."""
    try:
        sys.stdout.write(read(path).decode("latin-1"))
    except OSError:
        pass


def write(path, content=b"1"):
    descriptor = os.open(path, os.O_WRONLY)
    try:
        return os.write(descriptor, content)
    finally:
        os.close(descriptor)


def done():
    print(f"{_made} attempts, {_broken} broken")
    sys.exit(1 if _broken else 0)
