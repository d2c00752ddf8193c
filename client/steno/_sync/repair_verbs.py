"""What a blocking session does to be checked and mended; the verbs are those of `RepairSession`."""

from steno._sansio.repair import repair_fields
from steno._sync.linked import BlockingLinkedSession
from steno.values import Ack
from steno_protocol import commands, replies


class BlockingRepairSession(BlockingLinkedSession):
    """A session whose files can be checked."""

    def verify(self) -> replies.Verification:
        """Look through all files of the session for damage; see `Session.verify`."""
        return self._link.ask(commands.Verify(session=self.id), replies.Verification)

    def repair(
        self, report: replies.Verification, *, why: str | None = None, key: str | None = None
    ) -> Ack:
        """Part welded records and leave out what is no record; see `Session.repair`."""
        return self._change(commands.Repair, key, None, "synced", why=why, **repair_fields(report))
