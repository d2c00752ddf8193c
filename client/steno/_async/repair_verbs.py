"""What an async session does to be looked through for damage, and to be mended."""

from steno._async.linked import LinkedSession
from steno._sansio.repair import repair_fields
from steno.values import Ack
from steno_protocol import commands, replies


class RepairSession(LinkedSession):
    """A session whose files can be checked."""

    async def verify(self) -> replies.Verification:
        """Look through all files of the session for damage; nothing is changed.

        Returns:
            The files that were looked into and what was found, each finding with its place and with
            what to do about it. `damage` is 0 for a clean session.
        """
        asked = commands.Verify(session=self.id)
        return await self._link.ask(asked, replies.Verification)

    async def repair(
        self, report: replies.Verification, *, why: str | None = None, key: str | None = None
    ) -> Ack:
        """Part welded records and leave out what is no record, as one rewrite.

        The damaged file stays whole as the ack's `rotated`. What was appended since the report is
        kept as it is. There is no `durability`, because a rewrite is always synced, and no
        `expect`: it is valid while what was verified is unchanged.

        Args:
            report: what `verify` returned.
            why: a reason for the timeline.
            key: as in every mutation.

        Raises:
            Conflict: the file is not what it was when the report was made; verify again.
            BadRequest: there is nothing that a repair could do.
        """
        return await self._change(
            commands.Repair, key, None, "synced", why=why, **repair_fields(report)
        )
