"""The systems that steno runs on, and the command that adds an extra."""

import sys
from typing import Final

from steno_protocol.errors import BadRequest

_SYSTEM: Final = "linux"
"""`sys.platform` of the only system on which the durability of the files is tested."""


def check_system(system: str = sys.platform) -> None:
    """Refuse a system on which nothing of steno was tested.

    Elsewhere `fsync` may not reach the disk (macOS has F_FULLFSYNC for it), and locks, wake-ups and
    the start of a daemon use calls of Linux. A daemon that seemed to work would break its promises.

    Raises:
        BadRequest: this is another system.
    """
    if system != _SYSTEM:
        raise BadRequest(
            f"this system is {system!r}, and only Linux is supported: use a Linux machine, a"
            " container or a virtual machine, or WSL on Windows"
        )


def extra_command(extra: str) -> str:
    """Return the shell command that adds an extra to the environment of this process.

    It names the interpreter, because the `pip` on the PATH may belong to another environment. The
    installed distribution satisfies the name `stenod`, so only the packages of the extra are
    fetched.
    """
    return install_command(f"stenod[{extra}]")


def install_command(package: str) -> str:
    """Return the shell command that installs a package in the environment of this process."""
    # Imported only now: this is for errors.
    import shlex  # noqa: PLC0415
    from importlib.util import find_spec  # noqa: PLC0415

    interpreter = shlex.quote(sys.executable)
    # The environments that uv creates have no pip.
    pip = (
        f"{interpreter} -m pip install"
        if find_spec("pip")
        else (f"uv pip install --python {interpreter}")
    )
    return f"{pip} {shlex.quote(package)}"
