"""The files that make a service manager run steno.

`systemd` and `launchd` write them for the same tasks, and name the commands that load them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol

from steno.local import read_regular

MARK: Final = "Written by `steno service install`; `steno service uninstall` removes it."
"""A comment at the beginning of each file; files without it are never replaced or removed."""

_HEAD_CHARS_MAX: Final = 400
"""The beginning of a file in which the mark stands: behind the two lines of any XML file."""

Kind = Literal["daemon", "watch", "backup"]


@dataclass(frozen=True, slots=True)
class Task:
    """What a service manager keeps running.

    Attributes:
        kind: the daemon itself, `steno watch`, or `steno backup --follow`.
        words: its command line.
        variables: what its environment has beside that of the service manager.
    """

    kind: Kind
    words: list[str]
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Setting:
    """The root that is served.

    Attributes:
        root: its folder.
        socket: the path of its socket.
        name: the beginning of the names of its files.
    """

    root: Path
    socket: str
    name: str


@dataclass(frozen=True, slots=True)
class Unit:
    """A file of a service manager: its path and its text."""

    path: Path
    text: str

    @property
    def state(self) -> str:
        """`missing`, `installed`, `outdated`, or `foreign`: not written by steno."""
        found = self.found
        if found is None:
            return "missing"
        if MARK not in found[:_HEAD_CHARS_MAX]:
            return "foreign"
        return "installed" if found == self.text else "outdated"

    @property
    def found(self) -> str | None:
        """The text that the file has now; None if it is missing."""
        try:
            return read_regular(self.path).decode(errors="replace")
        except FileNotFoundError:
            return None


class Manager(Protocol):
    """A service manager: a module that implements this."""

    def units(self, setting: Setting, task: Task) -> list[Unit]:
        """Return the files of a task."""
        ...

    def to_start(self, setting: Setting, units: list[Unit]) -> list[str]:
        """Return the commands that start the tasks; the files are not yet written."""
        ...

    def to_end(self, setting: Setting, units: list[Unit]) -> list[str]:
        """Return the commands that end the tasks; the files are removed."""
        ...
