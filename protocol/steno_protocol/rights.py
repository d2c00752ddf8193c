"""Rights of clients on other machines, in rising order."""

import enum
from typing import Final

from steno_protocol import commands
from steno_protocol.commands import Command, command_name


class Right(enum.IntEnum):
    """The right of a client. A client of the same user on the same machine is an admin."""

    READ = 1
    """List, read and follow sessions."""

    WRITE = 2
    """Change sessions; every change can be reverted."""

    ADMIN = 3
    """Delete sessions and past generations, repair files, end the daemon."""

    @property
    def label(self) -> str:
        """Its name in files and on command lines."""
        return self.name.lower()


RIGHTS: Final = {right.label: right for right in Right}
"""Every right by its name."""

_READ: Final = (
    commands.Hello, commands.Status, commands.Stats, commands.List,
    commands.Trash, commands.Stat, commands.Read,
    commands.ReadWire, commands.ReadStream, commands.Streams, commands.Timeline,
    commands.Subscribe, commands.Grant,
    commands.Unsubscribe, commands.Clients, commands.PendingDmail, commands.Verify,
    commands.Cluster,
)  # fmt: skip

_ADMIN: Final = (
    commands.Delete, commands.DeleteStream, commands.Undelete, commands.Drain, commands.Repair,
    commands.Gc, commands.HandOver,
)  # fmt: skip

_NEEDED: Final = {
    **dict.fromkeys(commands.COMMANDS, Right.WRITE),
    **{command_name(kind): Right.READ for kind in _READ},
    **{command_name(kind): Right.ADMIN for kind in _ADMIN},
}


def right_needed(command: Command | type[Command]) -> Right:
    """Return the right that a remote client needs for a command; an unlisted one needs write."""
    return _NEEDED[command_name(command)]
