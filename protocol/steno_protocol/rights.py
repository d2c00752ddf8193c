"""What a client from another machine may do: three rights, each containing the one before."""

import enum
from typing import Final

from steno_protocol import commands
from steno_protocol.commands import Command, command_name


class Right(enum.IntEnum):
    """How far a client is trusted. A client on the same machine, of the same user, is an admin."""

    READ = 1
    """Look: list, read, follow."""

    WRITE = 2
    """Change sessions; everything can be brought back."""

    ADMIN = 3
    """Remove sessions and what they left behind, mend files, end the daemon."""

    @property
    def label(self) -> str:
        """Its name in files and on command lines."""
        return self.name.lower()


RIGHTS: Final = {right.label: right for right in Right}
"""Every right by its name."""

_READ: Final = (
    commands.Hello, commands.Status, commands.Stats, commands.Configuration, commands.List,
    commands.Stat, commands.Read,
    commands.ReadWire, commands.Timeline, commands.Subscribe, commands.Grant,
    commands.Unsubscribe, commands.Clients, commands.PendingDmail, commands.Verify,
)  # fmt: skip

_ADMIN: Final = (commands.Delete, commands.Drain, commands.Repair, commands.Gc)

_NEEDED: Final = {
    **dict.fromkeys(commands.COMMANDS, Right.WRITE),
    **{command_name(kind): Right.READ for kind in _READ},
    **{command_name(kind): Right.ADMIN for kind in _ADMIN},
}


def right_needed(command: Command | type[Command]) -> Right:
    """The right that a client of another machine needs for a command; an unlisted command needs
    write."""
    return _NEEDED[command_name(command)]
