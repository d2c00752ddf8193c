"""The one dispatch of the commands for a session as a whole, each copy of them alone."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import assert_never

from steno_protocol.commands import (
    Delete,
    DeleteStream,
    Describe,
    Fork,
    Open,
    Rename,
    Stat,
    Streams,
    TakeIn,
    Undelete,
    Verify,
    WholeCommand,
)
from steno_protocol.errors import ErrorCode, Exists, NotFound, OutcomeUnknown
from steno_protocol.replies import Deleted, Moved, SessionStat, StreamList, Verification
from stenod.operations.collection import Collector
from stenod.operations.deletions import Deletions
from stenod.operations.descriptions import Descriptions
from stenod.operations.forks import Forks
from stenod.operations.imports import Imports
from stenod.operations.operation import KeyedCommand, Parts
from stenod.operations.renames import Renames
from stenod.operations.sweep import Sweep
from stenod.operations.verifications import Verifications


class Operations:
    """Operations on the sessions of one daemon.

    Args:
        parts: what they work with.

    Attributes:
        deletions: list the trash, too.
        sweep: removes what nobody needs any longer.
        collector: serves `gc`, and follows the rules of retention.
    """

    def __init__(self, parts: Parts) -> None:
        self._queries = parts.queries
        self._descriptions = Descriptions(parts)
        self._verifications = Verifications(parts)
        self._forks = Forks(parts)
        self.deletions = Deletions(parts)
        self._renames = Renames(parts)
        self._imports = Imports(parts, self._descriptions)
        self.collector = Collector(parts, self.deletions)
        self.sweep = Sweep(parts, self._is_under_way)
        self._under_way: set[tuple[str, str]] = set()

    async def serve(
        self, command: WholeCommand
    ) -> SessionStat | Deleted | Moved | Verification | StreamList:
        """Execute a command; its effect is durable on return.

        Raises:
            StenoError: the command was refused, or its outcome is unknown.
            OSError: the disk failed; nothing was changed.
        """
        match command:
            case Stat():
                return await self._descriptions.stat(command.session)
            case Open():
                return await self._descriptions.open(command)
            case Describe():
                return await self._descriptions.describe(command)
            case Verify():
                return await self._verifications.verify(command.session)
            case Streams():
                parts = await self._queries.streams(command.session, command.stream)
                return StreamList(streams=[part.entry for part in parts])
            case _:
                with self._alone(command):
                    return await self._serve_decided(command)

    async def _serve_decided(self, command: KeyedCommand) -> SessionStat | Deleted | Moved:
        try:
            return await self._serve_alone(command)
        except (Exists, NotFound):
            # In a cluster an earlier copy without an answer may have taken place meanwhile.
            if not await self.deletions.took_place(command):
                raise
            return await self._serve_alone(command)

    async def _serve_alone(self, command: KeyedCommand) -> SessionStat | Deleted | Moved:
        match command:
            case Fork():
                return await self._forks.fork(command)
            case Delete():
                return await self.deletions.delete(command)
            case Rename():
                return await self._renames.rename(command)
            case Undelete():
                return await self.deletions.undelete(command)
            case TakeIn():
                return await self._imports.take_in(command)
            case DeleteStream():
                return await self.deletions.delete_stream(command)
            case _:
                assert_never(command)

    def _is_under_way(self, key: str) -> bool:
        """Whether a command with this key is being served; called in a thread."""
        # A copy, made in one step: the event loop changes the set.
        return any(served == key for _, served in tuple(self._under_way))

    @contextmanager
    def _alone(self, command: KeyedCommand) -> Generator[None]:
        """Refuse a copy of a command while another copy is being served.

        Raises:
            OutcomeUnknown: another copy is being served, and its outcome is not yet known.
        """
        copies = (command.session, command.key)
        if copies in self._under_way:
            raise OutcomeUnknown(
                "the same command is being served already: send it again with its key",
                session=command.session,
                code=ErrorCode.BUSY,
                key=command.key,
            )
        self._under_way.add(copies)
        try:
            yield
        finally:
            self._under_way.discard(copies)
