"""A folder for PYTHONPATH whose `sitecustomize` hides Linux's calls from its process.

It stands in for a Mac that is not at hand: what it proves is that no call of Linux is needed, and
that a volume which ignores case is no danger.
"""

import os
import sys
from pathlib import Path

SITECUSTOMIZE = """
import builtins, fcntl, os, pathlib, resource, select, signal, socket, struct, sys

for module, names in {
    os: ("eventfd", "eventfd_read", "eventfd_write", "memfd_create", "fdatasync", "pidfd_open",
         "copy_file_range", "posix_fadvise", "posix_fallocate", "splice", "O_PATH", "O_TMPFILE",
         "EFD_CLOEXEC", "EFD_NONBLOCK"),
    fcntl: ("F_OFD_SETLK", "F_OFD_SETLKW", "F_OFD_GETLK"),
    resource: ("prlimit",),
    select: ("epoll",),
    signal: ("pidfd_send_signal",),
    socket: ("SO_PEERCRED", "SOCK_NONBLOCK", "SOCK_CLOEXEC"),
}.items():
    for name in names:
        vars(module).pop(name, None)
sys.platform = "darwin"

def hidden(event, arguments):
    if event in {"open", "os.listdir", "os.scandir"} and arguments:
        if isinstance(arguments[0], str) and arguments[0].startswith("/proc"):
            raise FileNotFoundError(2, "as on macOS", arguments[0])

sys.addaudithook(hidden)

of_linux = socket.socket.getsockopt

def getsockopt(self, level, option, *size):
    if (level, option) == (0, 1) and size:
        _, user, _ = struct.unpack("=iII", of_linux(self, socket.SOL_SOCKET, 17, 12))
        return struct.pack("=II", 0, user).ljust(*size, bytes(1))
    return of_linux(self, level, option, *size)

socket.socket.getsockopt = getsockopt

def ignoring_case(call):
    def called(path, *arguments, dir_fd=None, **named):
        if isinstance(path, str) and dir_fd is not None and "/" not in path:
            names = os.listdir(dir_fd)
            if path not in names:
                path = next((each for each in names if each.lower() == path.lower()), path)
        return call(path, *arguments, dir_fd=dir_fd, **named)
    return called

for name in ("open", "stat", "mkdir", "rmdir", "unlink"):
    setattr(os, name, ignoring_case(getattr(os, name)))
"""


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a process that has only the calls of macOS."""
    (folder / "sitecustomize.py").write_text(SITECUSTOMIZE)
    found = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(found), "PYTHONSAFEPATH": "1"}


def command(*words: str) -> list[str]:
    """Return a command line of `steno` in this interpreter."""
    return [sys.executable, "-m", "steno_cli", *words]
