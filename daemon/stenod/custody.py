"""What is done with a session as a whole: it is told of, described, forked, deleted."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import assert_never
from weakref import WeakValueDictionary

import anyio
import msgspec

from steno_protocol import limits
from steno_protocol.commands import Delete, Describe, Fork, Open, Stat
from steno_protocol.errors import NotFound, OutcomeUnknown, StenoError
from steno_protocol.replies import Deleted, SessionStat
from stenod import describing, forking, trash
from stenod.cutting import Captured
from stenod.forking import Wanted
from stenod.recovery import Inspection
from stenod.registry import Registry
from stenod.store.disk import Disk
from stenod.store.usage import session_bytes
from stenod.trees import Place, Readable, Trees
from stenod.workshop import Workshop

Whole = Stat | Open | Describe | Fork | Delete
"""A command about a session as a whole."""


class Custody:
    """Looks after the sessions of one daemon.

    Args:
        trees: where sessions lie.
        disk: the disk they lie on.
        registry: who has their writers.
        workshop: clocks and threads.
    """

    def __init__(self, trees: Trees, disk: Disk, registry: Registry, workshop: Workshop) -> None:
        self._trees = trees
        self._disk = disk
        self._registry = registry
        self._shop = workshop
        self._describing: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._swept_at: float | None = None

    async def serve(self, command: Whole) -> SessionStat | Deleted:
        """Do what a command asks; what the answer tells is durable.

        Raises:
            StenoError: it was refused, or nobody knows.
            OSError: the disk failed; nothing was done.
        """
        match command:
            case Stat():
                return await self._stat(command.session)
            case Open():
                return await self._open(command)
            case Describe():
                return await self._describe(command)
            case Fork():
                return await self._fork(command)
            case Delete():
                return await self._delete(command)
            case _:
                assert_never(command)

    async def sweep_when_due(self) -> None:
        """Remove what unfinished forks left behind and what expired in the trash, once a day."""
        now = self._shop.monotonic()
        if self._swept_at is not None and now - self._swept_at < limits.TRASH_SWEEP_S:
            return
        self._swept_at = now
        for folder in self._trees.folders():
            await self._sweep(str(folder))

    async def _sweep(self, folder: str) -> None:
        left, expired = await self._shop.read(lambda: self._removed(folder))
        if left or expired:
            self._shop.tell("swept", folder=folder, forks=left, trash=expired)

    def _removed(self, folder: str) -> tuple[int, int]:
        try:
            tree = self._disk.open_root(folder)
        except OSError:
            # A tree that is not there has nothing to remove.
            return 0, 0
        try:
            wall = self._shop.wall()
            return (
                forking.sweep(self._disk, tree),
                trash.sweep(self._disk, tree, wall, self._expiry_s),
            )
        finally:
            self._disk.close(tree)

    async def _stat(self, session: str) -> SessionStat:
        inspection, view = await self._registry.look(session)
        if view is not None:
            view.release()
        return await self._stat_of(session, inspection, is_open=view is None)

    async def _open(self, command: Open) -> SessionStat:
        opened = await self._registry.open(
            command.session,
            create=command.create,
            exclusive=command.exclusive,
            stamp=command.stamp,
            by=command.by,
        )
        inspection, view = await self._registry.look(command.session)
        if view is not None:
            view.release()
        return await self._stat_of(
            command.session, inspection, is_open=True, created=opened.created
        )

    async def _stat_of(
        self, session: str, inspection: Inspection, *, is_open: bool, created: bool = False
    ) -> SessionStat:
        place = self._trees.place(session)
        described = await self._shop.read(lambda: self._trees.description(place))
        counters = inspection.counters
        return SessionStat(
            session=session,
            head=str(inspection.head),
            bytes=inspection.size,
            generation=inspection.head.generation,
            token_count=counters.token_count,
            token_count_with_pending=counters.token_count_with_pending,
            n_checkpoints=counters.n_checkpoints,
            has_system_prompt=counters.has_system_prompt,
            created=created,
            stamp=inspection.stamp,
            incarnation=inspection.incarnation,
            folder=place.path,
            open=is_open,
            title=described.title,
            labels=described.labels,
            archived=described.archived,
            forked_from=described.forked_from,
        )

    async def _describe(self, command: Describe) -> SessionStat:
        self._registry.check_taking()
        # Open, so that no other daemon has it; and one at a time, since each keeps the rest.
        await self._registry.writer(command.session, "context")
        lock = self._describing.setdefault(command.session, anyio.Lock())
        place = self._trees.place(command.session)
        async with lock:
            await self._shop.read(lambda: self._change(place, command))
        return await self._stat(command.session)

    def _change(self, place: Place, command: Describe) -> None:
        folder = self._trees.open_folder(place)
        try:
            describing.change(self._disk, folder, command, place.path, self._shop.wall())
        finally:
            self._disk.close(folder)

    async def _fork(self, command: Fork) -> SessionStat:
        source, target = self._trees.place(command.session), self._trees.place(command.new_session)
        wanted = Wanted(
            command, source, target, os.urandom(8).hex(), stamp=True, now=self._shop.wall()
        )
        self._registry.check_taking()
        made = await self._shop.read(lambda: forking.find(self._disk, self._trees, wanted))
        if made is None:
            await self._check_room(source, target)
            with self._registry.kept_out(target):
                made = await self._make(wanted)
        await self._tell_source(wanted, made)
        return made

    async def _check_room(self, source: Place, target: Place) -> None:
        """Refuse a fork for which there is no room.

        Raises:
            TooLarge, StorageFailed: nothing was made.
        """
        quotas = self._shop.quotas
        if quotas is not None:
            size = await self._shop.read(lambda: session_bytes(source.path))
            room = quotas.room(target.session, size)
            if room is not None:
                raise room.refusal

    async def _make(self, wanted: Wanted) -> SessionStat:
        async with self._captured(wanted.source) as (captured, stamp):
            asked = msgspec.structs.replace(wanted, stamp=stamp)
            forking.check_key(asked, captured.timeline)
            return await self._shop.read(
                lambda: forking.make(self._disk, self._trees, captured, asked)
            )

    @asynccontextmanager
    async def _captured(self, place: Place) -> AsyncGenerator[tuple[Captured, bool]]:
        """A session as it is now, and whether its lines bear `_id`; its writers go on.

        The wire file is looked at before the context, so that none of its events is of an instant
        which the context has not reached.
        """
        session = place.session
        opened = await (await self._registry.writer(session, "context")).open()
        timeline = await self._registry.timeline(session)
        held: list[Readable] = []
        try:
            held.append(await self._registry.readable(session, "wire", None))
            held.append(await self._registry.readable(session, "context", None))
            wire, context = held
            yield (
                Captured(
                    session=session,
                    generation=context.generation,
                    context=context.view,
                    wire=wire.view,
                    checkpoints=opened.machine.counters.n_checkpoints,
                    past=lambda generation: self._trees.past(place, generation),
                    timeline=timeline,
                ),
                opened.machine.stamp,
            )
        finally:
            for readable in held:
                readable.view.release()

    async def _tell_source(self, wanted: Wanted, made: SessionStat) -> None:
        """Tell the source of its fork, unless that was done or the source is there no more."""
        session = wanted.source.session
        try:
            entries = await self._registry.timeline(session)
            if not forking.is_told(wanted, entries):
                writer = await self._registry.writer(session, "context")
                await writer.note(forking.told(wanted, made))
        except NotFound:
            return
        except (StenoError, OSError) as error:
            raise OutcomeUnknown(
                f"the fork {made.session!r} is made, and the timeline of its source could not be"
                f" told of it ({error}): send the command again with its key",
                session=session,
                code=getattr(error, "code", None),
                key=wanted.command.key,
            ) from None

    async def _delete(self, command: Delete) -> Deleted:
        place = self._trees.place(command.session)
        self._registry.check_taking()
        done = await self._found_in_trash(place, command)
        if done is not None:
            # A session that was made under this id since is left alone.
            return done
        with self._registry.kept_out(place):
            done = await self._found_in_trash(place, command)
            if done is not None:
                return done
            async with self._registry.ended(place):
                now = self._shop.wall()
                return await self._shop.read(
                    lambda: trash.discard(
                        self._disk, self._trees, place, command, now, self._expiry_s
                    )
                )

    async def _found_in_trash(self, place: Place, command: Delete) -> Deleted | None:
        return await self._shop.read(
            lambda: trash.find(self._disk, self._trees, place, command, self._expiry_s)
        )

    @property
    def _expiry_s(self) -> float:
        """How long what was deleted is kept."""
        return self._shop.settings().number("disk.trash_days") * limits.DAY_S
