"""The systems that steno runs on, and the command that adds an extra."""

import sys
from typing import Final

from steno_protocol.errors import BadRequest

_SYSTEMS: Final = ("linux", "darwin")
"""`sys.platform` of the systems that have the needed calls; macOS is experimental."""


def check_system(system: str = sys.platform, *, is_remote: bool = False) -> None:
    """Refuse a system on which nothing of steno was tested.

    Locks, wake-ups, syncs and the start of a daemon use calls that each system names differently. A
    daemon that seemed to work would break its promises.

    Args:
        system: the system.
        is_remote: a client of a daemon on another machine asks, which also runs on Windows.

    Raises:
        BadRequest: this is another system.
    """
    if system not in _SYSTEMS and not (is_remote and system == "win32"):
        raise BadRequest(
            f"this system is {system!r}, and only Linux and macOS are supported: use one of"
            " them, a container or a virtual machine, or WSL on Windows; a client on Windows needs"
            " the tcp:// address of a daemon"
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
