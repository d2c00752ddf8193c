"""The system calls of the client that differ between systems: one module each."""

# ruff: noqa: F403

import sys

if sys.platform == "win32":
    from steno._system._windows import *
elif sys.platform == "linux":
    from steno._system._linux import *
    from steno._system._posix import *
else:
    # `check_system` refuses other systems, with a reason that an import error would hide.
    from steno._system._darwin import *
    from steno._system._posix import *
