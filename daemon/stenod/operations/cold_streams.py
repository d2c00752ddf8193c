"""Streams that nobody has changed for long, compressed by a rule of retention.

The session is kept out meanwhile, so that no opening and no other operation meets a half-made file.
"""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import partial

from steno_protocol import limits
from steno_protocol.commands import Gc
from steno_protocol.errors import Busy, StenoError
from steno_protocol.replies import GarbageEntry
from stenod.operations.operation import Operation
from stenod.recovery.cold_streams import compress_stream, compressible_streams
from stenod.sessions.session_folders import Place
from stenod.store.disk import FileStat


class ColdStreams(Operation):
    """Compresses the cold streams of closed sessions; those of mounts stay plain."""

    async def compress(
        self, session: str, command: Gc, days: float, failed: list[str]
    ) -> list[GarbageEntry]:
        """Compress the streams of a session that the rule names.

        Args:
            session: its id; an open session is left alone.
            command: the command; with `dry_run` the streams are only returned.
            days: the days of the rule.
            failed: takes the session, with the reason, for each file that cannot be read or
                written.

        Returns:
            The streams, each with the bytes that it takes less; with `dry_run`, those that it
            takes now.
        """
        place = self._trees.place(session)
        done: list[GarbageEntry] = []
        if place.shared or self._sessions.known(session) is not None:
            return done
        before = self._services.wall() - days * limits.DAY_S
        rule = f"retention.streams_compressed_days = {days:g}"
        cold: list[tuple[str, FileStat]] = []
        with _noted(session, failed):
            cold = await self._services.read(partial(self._cold, place, before))
        for file, stat in cold:
            with _noted(session, failed):
                size = stat.size
                if not command.dry_run:
                    size = await self._compress(place, file, stat)
                if size:
                    entry = GarbageEntry(
                        session=session, file=file, bytes=size, rule=rule, compressed=True
                    )
                    done.append(entry)
        return done

    def _cold(self, place: Place, before: float) -> list[tuple[str, FileStat]]:
        with self._trees.opened(place) as folder:
            return compressible_streams(self._disk, folder, before, self._trees.failed_syncs)

    async def _compress(self, place: Place, file: str, stat: FileStat) -> int:
        def compress() -> int:
            with self._trees.opened(place) as folder:
                # A session that is open under any id, or at another daemon, has the lock.
                if not self._disk.lock(folder) or self._disk.stat_name(folder, file) != stat:
                    return 0
                return compress_stream(self._disk, folder, file)

        # Another operation has the session: it is not cold.
        with suppress(Busy), self._sessions.kept_out(place):
            if self._sessions.known(place.session) is None:
                return await self._services.read(compress)
        return 0


@contextmanager
def _noted(session: str, failed: list[str]) -> Generator[None]:
    """Note an error of a session instead of raising it."""
    try:
        yield
    except (StenoError, OSError) as error:
        failed.append(f"{session}: {error}")
