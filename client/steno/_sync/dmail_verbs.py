"""What a blocking session does with D-Mail; the verbs are those of `MailSession`."""

from steno._sansio.request_builders import PositionLike
from steno._sync.linked import BlockingLinkedSession
from steno.values import Ack, Mail, SentMail, mail_of, sent_mail_of
from steno_protocol import commands, replies


class BlockingMailSession(BlockingLinkedSession):
    """A session that takes D-Mails to its checkpoints, from any process; one is pending at a
    time."""

    def send_dmail(
        self,
        checkpoint_id: int,
        message: str,
        *,
        replaces: str | None = None,
        key: str | None = None,
        expect: PositionLike | None = None,
    ) -> SentMail:
        """Send a message back to a checkpoint, where it waits; see `Session.send_dmail`."""
        ack = self._change(
            commands.SendDmail,
            key,
            expect,
            "synced",
            checkpoint_id=checkpoint_id,
            message=message,
            replaces=replaces,
        )
        return sent_mail_of(ack)

    def pending_dmail(self) -> Mail | None:
        """The mail that waits, or None; only looks."""
        asked = commands.PendingDmail(session=self.id)
        report = self._link.ask(asked, replies.MailReport)
        return None if report.mail is None else mail_of(report.mail)

    def deliver_dmail(
        self,
        mail_id: str,
        *,
        add_user_message: bool = False,
        key: str | None = None,
        expect: PositionLike | None = None,
    ) -> Ack:
        """Go back to the mail's checkpoint and append the message; see `Session.deliver_dmail`."""
        return self._change(
            commands.DeliverDmail, key, expect, "synced",
            mail_id=mail_id, add_user_message=add_user_message,
        )  # fmt: skip
