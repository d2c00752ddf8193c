"""Failed commits: the outcome of commands with bytes in doubt.

A write or a sync failed, another program wrote at the same time, or a rewrite failed half-way. What
is told of a command then is found out from the files, and where they say nothing its outcome is
unknown.
"""

from steno_protocol.errors import StenoError
from steno_protocol.replies import Ack
from stenod.core.speculation import ack_of
from stenod.recovery import key_lookup
from stenod.recovery.file_opening import OpenHow
from stenod.runtime.error_mapping import ErrorMapping
from stenod.store.jsonl import Replaced
from stenod.writer.files import OpenFiles
from stenod.writer.mailbox import Batch, answer_all, refuse_all
from stenod.writer.services import Services


class CommitFailures:
    """What one writer does when something went wrong.

    Args:
        files: the files that it writes.
        refusals: words its errors.
        workshop: what it works with.
    """

    def __init__(self, files: OpenFiles, refusals: ErrorMapping, services: Services) -> None:
        self._files = files
        self._error_mapping = refusals
        self._services = services

    async def answer(self, batch: Batch) -> None:
        """Answer a batch that is not on the disk, or not where it was decided to be."""
        if batch.error is not None:
            await self._withdraw(batch, batch.error)
        else:
            await self._recount(batch)

    async def _withdraw(self, batch: Batch, error: OSError) -> None:
        """A write or sync failed: no command of the batch is acknowledged, and the log is closed.

        What was acknowledged as `written` and not synced since is synced now; if that fails, or was
        what failed, it is withdrawn, too.
        """
        opened = batch.opened
        is_kept = await self._keep_earlier(batch)
        try:
            await self._services.read(opened.log.take_back)
            refusal: StenoError = self._error_mapping.storage_failed(error, opened.log.file_path)
        except OSError as worse:
            refusal = self._error_mapping.unknown(f"the disk failed ({error}), and again ({worse})")
        opened.machine.roll_back()
        self._files.set_aside(proven=opened.log.synced)
        failed = batch.new_keys
        for each in batch.decided:
            if each.is_durable or (is_kept and each.item.command.key not in failed):
                each.item.to.reply(each.ack)
            else:
                refuse_all([each], refusal)

    async def _keep_earlier(self, batch: Batch) -> bool:
        """Sync what was acknowledged before a write that failed; whether that is durable now."""
        if not batch.was_cut_short:
            return False
        try:
            is_kept = await self._services.read(batch.opened.log.keep_earlier)
        except OSError:
            return False
        if is_kept:
            batch.opened.machine.keep_but(batch.new_keys)
        return is_kept

    async def _recount(self, batch: Batch) -> None:
        """A foreign program wrote between our look and our write: say where our lines really are.

        Ours are one piece, because they were one write, behind where the file ended when we looked.
        The files are opened again, which takes the foreign lines in and makes everything durable.
        Lines that the other program's half line swallowed were not applied.
        """
        generation, start, decided = batch.opened.log.generation, batch.start, batch.decided
        try:
            again = await self._files.take_in_foreign()
            size = max(0, again.log.size - start)
            region = await self._services.read(lambda: again.log.read(generation, start, size))
        except (OSError, StenoError) as error:
            refuse_all(
                decided, self._error_mapping.unknown(f"a foreign program interfered: {error}")
            )
            return
        shift = batch.shift_in(region)
        if shift is None or again.log.generation != generation:
            refuse_all(decided, self._error_mapping.unknown("a foreign program interfered"))
            return
        answer_all(decided, synced=True, shift=shift)

    async def settle(self, key: str, error: OSError) -> Ack:
        """A rewrite failed half-way: open the files again to find its outcome.

        Args:
            key: of its command.
            error: what it failed by.

        Raises:
            StorageFailed, Busy: before; nothing happened.
            OutcomeUnknown: the files cannot be opened either.
        """
        self._files.set_aside(is_changed=isinstance(error, Replaced))
        try:
            again = await self._files.open(OpenHow())
            applied = await self._services.read(
                lambda: key_lookup.look_up(again.log, again.log.path, key)
            )
        except (OSError, StenoError) as worse:
            raise self._error_mapping.unknown(
                f"the disk failed ({error}), and again ({worse})", key
            ) from None
        if applied is None:
            raise self._error_mapping.not_rewritten(error)
        return ack_of(applied, duplicate=False)
