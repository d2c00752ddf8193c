"""Failed commits: the outcome of commands whose bytes are in doubt.

A write or a sync failed, another program wrote at the same time, or a rewrite failed half-way. The
reply to a command is then determined from the files; if they do not show its outcome, the reply is
`outcome_unknown`.
"""

from collections.abc import Sequence

from steno_protocol.errors import OutcomeUnknown, StenoError
from steno_protocol.replies import Ack
from stenod.recovery import key_lookup
from stenod.recovery.opened import OpenOptions
from stenod.runtime.error_mapping import ErrorMapping
from stenod.store.disk import DiskRefused
from stenod.store.jsonl import Replaced
from stenod.writer.files import OpenFiles
from stenod.writer.mailbox import Batch, Decided, answer_all, refuse_all
from stenod.writer.services import Services


class CommitFailures:
    """The failed commits of one writer.

    Args:
        files: the files that it writes.
        error_mapping: makes the error replies.
        services: runs blocking work.
    """

    def __init__(self, files: OpenFiles, error_mapping: ErrorMapping, services: Services) -> None:
        self._files = files
        self._error_mapping = error_mapping
        self._services = services

    async def answer(self, batch: Batch) -> None:
        """Reply to a batch that is not in the file, or not at the positions of its replies."""
        if batch.error is not None:
            await self._withdraw(batch, batch.error)
        else:
            await self._recount(batch)

    async def _withdraw(self, batch: Batch, error: OSError) -> None:
        """A write or sync failed: acknowledge no command of the batch, and close the log.

        Lines that were acknowledged as `written` before are synced now. If that fails too, they are
        withdrawn.
        """
        opened = batch.opened
        if isinstance(error, DiskRefused) and error.is_final:
            # The files are another daemon's now: nothing of them is to be kept or taken back here.
            self._files.abandon()
            self._refuse(batch.decided, self._error_mapping.storage_failed(error))
            return
        is_kept = await self._keep_earlier(batch)
        try:
            await self._services.read(opened.log.discard_unsynced)
            refusal: StenoError = self._error_mapping.storage_failed(error, opened.log.file_path)
        except OSError as worse:
            refusal = self._error_mapping.unknown(f"the disk failed ({error}), and again ({worse})")
        else:
            opened.machine.roll_back()
        self._files.set_aside(proven=opened.log.synced)
        failed = batch.new_keys
        for each in batch.decided:
            if each.is_durable or (is_kept and each.item.command.key not in failed):
                each.item.acknowledge(each.ack)
            else:
                self._refuse([each], refusal)

    async def _keep_earlier(self, batch: Batch) -> bool:
        """Sync the lines before a write that failed; True if they are durable now."""
        if not batch.was_cut_short:
            return False
        try:
            is_kept = await self._services.read(batch.opened.log.sync_earlier_appends)
        except OSError:
            return False
        if is_kept:
            batch.opened.machine.keep_but(batch.new_keys)
        return is_kept

    async def _recount(self, batch: Batch) -> None:
        """Another program wrote between the check and the write: reply with the real positions.

        The batch is one piece, because it was one write, behind the checked end of the file. The
        files are opened again, which takes the foreign lines in and makes everything durable. A
        batch that is joined to an unfinished line of the other program was not applied.
        """
        generation, start, decided = batch.opened.log.generation, batch.start, batch.decided
        try:
            again = await self._files.take_in_foreign()
            size = max(0, again.log.size - start)
            region = await self._services.read(lambda: again.log.read(generation, start, size))
        except (OSError, StenoError) as error:
            self._refuse(
                decided, self._error_mapping.unknown(f"a foreign program interfered: {error}")
            )
            return
        shift = batch.shift_in(region)
        if shift is None or again.log.generation != generation:
            self._refuse(decided, self._error_mapping.unknown("a foreign program interfered"))
            return
        answer_all(decided, synced=True, shift=shift)

    def _refuse(self, decided: Sequence[Decided], error: StenoError) -> None:
        if isinstance(error, OutcomeUnknown):
            self._services.unknown.add(each.item.command.key for each in decided)
        refuse_all(decided, error)

    async def settle(self, key: str, error: OSError) -> Ack:
        """A rewrite failed half-way: open the files again to determine its outcome.

        Args:
            key: the key of its command.
            error: the error of the rewrite.

        Returns:
            The ack, if the rewrite took place.

        Raises:
            StorageFailed, Busy, Held: it did not take place; nothing changed.
            OutcomeUnknown: the files cannot be opened either.
        """
        if isinstance(error, DiskRefused) and error.is_final:
            self._files.abandon()
            raise self._error_mapping.storage_failed(error)
        self._files.set_aside(is_changed=isinstance(error, Replaced))
        try:
            again = await self._files.open(OpenOptions())
            applied = await self._services.read(
                lambda: key_lookup.look_up(again.log, again.log.path, key)
            )
        except (OSError, StenoError) as worse:
            self._services.unknown.add([key])
            raise self._error_mapping.unknown(
                f"the disk failed ({error}), and again ({worse})", key
            ) from None
        if applied is None:
            raise self._error_mapping.not_rewritten(error)
        return again.machine.ack_of(applied, duplicate=False)
