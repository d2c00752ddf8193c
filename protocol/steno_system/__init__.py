"""What client and daemon ask of the operating system, each once.

_linux, _darwin, _windows    the calls that differ between systems; a client alone runs on Windows
_posix                       those that Linux and macOS share
relay                        a listening socket that only the relay connects to
private_files                private files and folders: the one function that opens them
"""

# ruff: noqa: F403

import sys

if sys.platform == "win32":
    from steno_system._windows import *
elif sys.platform == "linux":
    from steno_system._linux import *
    from steno_system._posix import *
else:
    # `check_system` refuses other systems, with a reason that an import error would hide.
    from steno_system._darwin import *
    from steno_system._posix import *
