"""What an async session does with D-Mail: messages that go back to a checkpoint."""

from steno._async.linked import LinkedSession
from steno._sansio.request_builders import PositionLike
from steno.values import Ack, Mail, SentMail, mail_of, sent_mail_of
from steno_protocol import commands, replies


class MailSession(LinkedSession):
    """A session that takes D-Mails to its checkpoints, from any process; one is pending at a
    time."""

    async def send_dmail(
        self,
        checkpoint_id: int,
        message: str,
        *,
        replaces: str | None = None,
        key: str | None = None,
        expect: PositionLike | None = None,
    ) -> SentMail:
        """Send a message back to a checkpoint, where it is pending until a client delivers it.

        It survives a restart of the daemon, and expires in the very rewrite that removes its
        checkpoint. Subscribers of the session get an event. There is no `durability`: a mail
        lies in the timeline, which is always synced.

        Args:
            replaces: the id of the mail that waits, to be given up for this one.

        Returns:
            An ack whose `id` is the mail's; the mail is synced to the disk.

        Raises:
            NotFound: there is no such checkpoint; the message names the valid range.
            Exists: another mail waits, and not the one that `replaces` names.
            BadRequest: the message is empty or too long.
        """
        ack = await self._change(
            commands.SendDmail,
            key,
            expect,
            "synced",
            checkpoint_id=checkpoint_id,
            message=message,
            replaces=replaces,
        )
        return sent_mail_of(ack)

    async def pending_dmail(self) -> Mail | None:
        """The mail that waits, or None; only looks."""
        asked = commands.PendingDmail(session=self.id)
        report = await self._link.ask(asked, replies.MailReport)
        return None if report.mail is None else mail_of(report.mail)

    async def deliver_dmail(
        self,
        mail_id: str,
        *,
        add_user_message: bool = False,
        key: str | None = None,
        expect: PositionLike | None = None,
    ) -> Ack:
        """Go back to the mail's checkpoint, set a new one, and append the message: one rewrite.

        There is no `durability`: a rewrite is always synced.

        Args:
            mail_id: which mail; it is never another one that is delivered.
            add_user_message: show the new checkpoint to the model.

        Returns:
            The ack, with the `checkpoint_id` of the new checkpoint and, in `rotated`, what was
            left behind.

        Raises:
            NotFound: that mail does not wait: it was delivered, has expired, or never was.
        """
        return await self._change(
            commands.DeliverDmail, key, expect, "synced",
            mail_id=mail_id, add_user_message=add_user_message,
        )  # fmt: skip
