"""`fork`: a new session with the lines of another one up to a position."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import msgspec

from steno_protocol.commands import Fork
from steno_protocol.errors import (
    BadRequest,
    ErrorCode,
    Exists,
    NotFound,
    OutcomeUnknown,
    StenoError,
    StorageFailed,
)
from steno_protocol.replies import SessionStat
from stenod.core.machine import Machine
from stenod.operations.operation import Operation, looking_up
from stenod.sessions import fork, rename
from stenod.sessions.file_reads import Readable
from stenod.sessions.fork import Wanted
from stenod.sessions.fork_point import Snapshot
from stenod.sessions.session_folders import Place
from stenod.store.usage import NEW_SESSION_BYTES, forked_bytes


class Forks(Operation):
    """Forks of sessions, while their writers go on."""

    async def fork(self, command: Fork) -> SessionStat:
        """Make a fork, and record it in its source's timeline."""
        source, target = self._trees.place(command.session), self._trees.place(command.new_session)
        wanted = Wanted(
            command, source, target, os.urandom(8).hex(), stamp=True, now=self._services.wall()
        )
        # A fork of this key may be there, although another daemon owns it since.
        with looking_up(command):
            taken = await self._acquire_new(target)
            member = self._sessions.member
            if taken is not None and member is not None:
                # The first answer is in the files of the fork, which another daemon has.
                await self._services.read(lambda: member.follow(target.session))
        made = await self._done_before(command, lambda: self._found_fork(wanted))
        if made is None:
            if taken is not None:
                raise taken
            if await self.took_place(command):
                # It was answered by nobody, so that its source does not say so.
                raise fork.gone(wanted)
            self._sessions.check_taking()
            await self._take_room(
                target.session, lambda: forked_bytes(source.path) + NEW_SESSION_BYTES
            )
            with self._sessions.kept_out(target):
                made = await self._make(wanted)
        await self._record_in_source(wanted, made)
        return made

    def _found_fork(self, wanted: Wanted) -> SessionStat | None:
        """Return the answer of an earlier copy of a fork; None if there is none.

        Raises:
            NotFound: the key made the fork, which was renamed since.
            Exists, BadRequest: see `fork.find`.
        """
        made = fork.find(self._disk, self._trees, wanted)
        new_id = None if made else rename.new_id(self._trees, wanted.target)
        if new_id is None:
            return made
        renamed = msgspec.structs.replace(wanted, target=self._trees.place(new_id))
        # A session there that is no fork with this key is of no importance.
        with suppress(Exists, BadRequest):
            made = fork.find(self._disk, self._trees, renamed)
        if made is None:
            return None
        raise NotFound(
            f"the fork {wanted.target.session!r} was created with this key and was renamed to"
            f" {new_id!r}: open it, or use a new key to create another one",
            session=wanted.source.session,
        )

    async def _make(self, wanted: Wanted) -> SessionStat:
        # The source may be open, and taken over unnoticed: no message of the fork would show that.
        if not await self._sessions.confirm(wanted.source.session):
            raise StorageFailed(
                "the journal cannot be reached: no majority of its servers says whether the source"
                " is in its last state; nothing was forked, send the command again once they"
                " answer (`steno cluster status` shows them)",
                session=wanted.source.session,
            )
        async with self._snapshot(wanted.source) as (snapshot, stamp):
            asked = msgspec.structs.replace(wanted, stamp=stamp)
            fork.check_key(asked, snapshot.timeline)
            return await self._services.read(
                lambda: fork.make(self._disk, self._trees, snapshot, asked)
            )

    @asynccontextmanager
    async def _snapshot(self, place: Place) -> AsyncGenerator[tuple[Snapshot, bool]]:
        """Take a snapshot of a session, and return whether its lines have stamps; writers go on.

        The wire file is read before the context, so that none of its events is later than the
        context. The timeline is read last, so that it contains every rewrite that led to this
        context; later entries are ignored.
        """
        session = place.session
        opened = await (await self._sessions.writer(session, "context")).open()
        held: list[Readable] = []
        parts = await self._queries.streams(session)
        try:
            held.append(await self._queries.readable(session, "wire", None))
            held.append(await self._queries.readable(session, "context", None))
            wire, context = held
            machine = opened.machine
            # Only a context is forked.
            assert isinstance(machine, Machine)
            next_id = machine.next_checkpoint_id
            timeline = await self._queries.timeline(session)
            yield (
                Snapshot(
                    session=session,
                    generation=context.generation,
                    context=context.view,
                    wire=wire.view,
                    streams=parts,
                    next_id=next_id,
                    past=lambda generation: self._trees.past(place, generation),
                    timeline=timeline,
                    incarnation=opened.incarnation,
                    reuses_ids=machine.reuses_ids,
                ),
                machine.stamp,
            )
        finally:
            for readable in held:
                readable.view.release()

    async def _record_in_source(self, wanted: Wanted, made: SessionStat) -> None:
        """Record the fork in its source's timeline, unless it is there or the source is gone."""
        session = wanted.source.session
        try:
            entries = await self._queries.timeline(session)
            if not fork.is_recorded(wanted, entries):
                writer = await self._sessions.writer(session, "context")
                await writer.note(fork.source_entry(wanted, made))
        except NotFound:
            return
        except (StenoError, OSError) as error:
            raise OutcomeUnknown(
                f"the fork {made.session!r} is made, but could not be recorded in the timeline of"
                f" its source ({error}): send the command again with its key",
                session=session,
                code=getattr(error, "code", ErrorCode.STORAGE_FAILED),
                key=wanted.command.key,
            ) from None
