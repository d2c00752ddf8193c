"""A folder for PYTHONPATH whose `sitecustomize` hides the calls of POSIX from its process.

It stands in for a Windows that is not at hand: what it proves is that a client needs none of them.
The standard library and the packages are imported before, for they choose their own calls.
"""

import os
import sys
from pathlib import Path

SITECUSTOMIZE = """
import asyncio, asyncio.unix_events, anyio, anyio._backends._asyncio, json, logging, msgspec
import os, pathlib, select, selectors, shutil, signal, socket, ssl, subprocess, sys, tempfile
import threading, tomllib, uuid, zmq
try:
    import trio
except ImportError:
    pass

local = socket.AF_UNIX

def socketpair(family=None, type=socket.SOCK_STREAM, proto=0, make=socket.socketpair):
    return make(local if family is None else family, type, proto)

socket.socketpair = socketpair
for name in ("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "syslog"):
    sys.modules[name] = None
for module, names in {
    os: ("geteuid", "getuid", "getgid", "getegid", "fork", "register_at_fork", "pread", "pwrite",
         "eventfd", "eventfd_read", "eventfd_write", "memfd_create", "fdatasync", "pidfd_open",
         "statvfs", "chown", "fchmod", "mkfifo", "killpg", "setsid", "O_NOFOLLOW", "O_NONBLOCK",
         "O_NOCTTY", "O_CLOEXEC", "O_DIRECTORY", "O_PATH", "EFD_CLOEXEC", "EFD_NONBLOCK"),
    select: ("poll",),
    signal: ("SIGKILL", "SIGHUP"),
    socket: ("AF_UNIX", "SO_PEERCRED"),
}.items():
    for name in names:
        vars(module).pop(name, None)
sys.platform = "win32"
"""


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a process that lacks the calls of POSIX."""
    (folder / "sitecustomize.py").write_text(SITECUSTOMIZE)
    found = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(found),
        "PYTHONSAFEPATH": "1",
        **variables,
    }


def command(code: str, *words: str) -> list[str]:
    """Return a command line of Python in this interpreter."""
    return [sys.executable, "-c", code, *words]
