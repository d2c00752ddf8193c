"""Sessions that nobody has changed for long, by the rules of retention."""

import os
from functools import partial

import msgspec

from steno_protocol import limits, paths
from steno_protocol.commands import Delete, Gc
from steno_protocol.errors import Conflict, StenoError
from steno_protocol.replies import GarbageEntry
from stenod.core import retention
from stenod.operations.deletions import Deletions
from stenod.operations.operation import Operation, Parts
from stenod.store import usage


class _Topmost(msgspec.Struct, frozen=True):
    """A session that lies in no other one, with those below it.

    Attributes:
        session: its id.
        at: Unix time of the last change of any of them, in seconds.
        size: the bytes of all of them.
    """

    session: str
    at: float
    size: int


class ColdSessions(Operation):
    """Moves cold sessions to the trash; those of mounts are other programs' and stay.

    A session goes with those below it, and is as cold as the one that was changed last.

    Args:
        parts: what it works with.
        deletions: moves a session.
    """

    def __init__(self, parts: Parts, deletions: Deletions) -> None:
        super().__init__(parts)
        self._deletions = deletions

    async def retire(self, command: Gc, failed: list[str]) -> list[GarbageEntry]:
        """Move what the rules name to the trash, or with `dry_run` only return it.

        Args:
            command: the command.
            failed: takes the sessions that cannot be read or moved, each with the reason.
        """
        rules = retention.rules_of("sessions", self._services.settings())
        if not rules.are_set:
            return []
        now = self._services.wall()
        found = await self._services.read(partial(self._topmost, failed))
        retired: list[GarbageEntry] = []
        for each, rule in rules.excess(found, now):
            if not each.session.startswith(command.prefix) or self._is_in_use(each, now):
                continue
            try:
                retired.append(await self._retire(each, rule, is_dry=command.dry_run))
            except Conflict:
                # It is not cold any more.
                continue
            except (StenoError, OSError) as error:
                failed.append(f"{each.session}: {error}")
        return retired

    async def _retire(self, cold: _Topmost, rule: str, *, is_dry: bool) -> GarbageEntry:
        folder = self._trees.place(cold.session).path
        if not is_dry:
            # The key is a part of the folder's name in the trash, so it says why it is there.
            key = f"retention-{os.urandom(8).hex()}"
            deleted = await self._deletions.retire(Delete(session=cold.session, key=key), cold.at)
            folder = deleted.trash
            self._services.log("retired", session=cold.session, rule=rule, trash=folder)
        return GarbageEntry(
            session=cold.session, file=folder, bytes=cold.size, rule=rule, trashed=True
        )

    def _is_in_use(self, found: _Topmost, now: float) -> bool:
        place = self._trees.place(found.session)
        is_followed = any(each.place.is_within(place) for each in self._sessions.followed)
        return is_followed or now - found.at < limits.RETENTION_S

    def _topmost(self, failed: list[str]) -> list[_Topmost]:
        """Return the topmost sessions of the root, the one that was changed last first."""
        listed = (entry.session for entry in self._entries())
        sessions = {session for session in listed if not self._trees.place(session).shared}
        found: list[_Topmost] = []
        for session in sorted(sessions):
            if not _is_below_another(session, sessions):
                folder = self._trees.place(session).path
                try:
                    at = usage.changed_at(folder)
                except OSError as error:
                    failed.append(f"{session}: {error}")
                    continue
                found.append(_Topmost(session, at, usage.tree_bytes(folder)))
        return sorted(found, key=lambda each: each.at, reverse=True)


def _is_below_another(session: str, sessions: set[str]) -> bool:
    _, segments = paths.split_session(session)
    return any("/".join(segments[:length]) in sessions for length in range(1, len(segments)))
