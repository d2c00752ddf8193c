"""The keys of commands whose outcome is unknown.

A command that was answered `unknown` may be in bytes that no opening has proven yet. Until its key
was looked up in proven files, an error of the same command must not be `not_applied`, whatever the
client says of it. The keys of one daemon are here; the bytes that an earlier daemon left unproven
have keys that are older than this daemon.
"""

from collections.abc import Iterable

from steno_protocol import limits
from steno_protocol.commands import Mutation
from steno_protocol.errors import StenoError, StorageFailed
from steno_protocol.paths import key_time_ms


class UnknownOutcomes:
    """The keys of one daemon whose outcome is unknown.

    Args:
        started_ms: Unix time in milliseconds at which the daemon started.

    Attributes:
        keys: the keys.
        are_too_many: there were more than are remembered, so that it may be any key.
    """

    def __init__(self, started_ms: int, keys_max: int = limits.UNKNOWN_KEYS_MAX) -> None:
        self.keys: set[str] = set()
        self.are_too_many = False
        self._started_ms = started_ms
        self._keys_max = keys_max

    def add(self, keys: Iterable[str]) -> None:
        """Remember the keys of commands that were answered `unknown`, or are answered so now."""
        self.keys.update(keys)
        if len(self.keys) > self._keys_max:
            self.are_too_many = True
            self.keys.clear()

    def settle(self, key: str) -> None:
        """Forget a key that was looked up in proven files."""
        self.keys.discard(key)

    def may_be_applied(self, command: Mutation) -> bool:
        """Whether a command may have been applied before it was sent now.

        The time in a uuid7 shows that it is new, so a client has to say that it sent one before.
        """
        is_known_unknown = command.key in self.keys or self.are_too_many
        return command.repeat or is_known_unknown or key_time_ms(command.key) is None

    def covers(self, command: Mutation, error: StenoError) -> bool:
        """Whether a command may have been applied, though its lookup ended with this error."""
        if self.may_be_applied(command):
            return True
        # A daemon before this one may have left bytes that this disk cannot prove.
        made_ms = key_time_ms(command.key)
        is_older = made_ms is not None and made_ms <= self._started_ms
        return is_older and isinstance(error, StorageFailed)
