"""kimi-cli's DenwaRenji, with D-Mail that survives restarts."""

import os
import sys
from pathlib import Path
from typing import Any, Final, Protocol

from steno.adapters._file_session import FileSession
from steno.adapters._optional import KIMI_CLI, program
from steno.parts import CheckpointLike, target_of
from steno_protocol.errors import BadRequest, Conflict, Exists, NotFound

_THEIRS: Final = "kimi_cli.soul.denwarenji"


class MailLike(Protocol):
    """The used part of kimi-cli's DMail."""

    @property
    def message(self) -> str:
        """Its text."""
        ...

    @property
    def checkpoint_id(self) -> CheckpointLike:
        """The checkpoint that it goes back to."""
        ...


class DenwaRenjiError(Exception):
    """The mail was not sent; the message contains the reason.

    Where kimi-cli's own class of this name is loaded, the raised error is an instance of it, too.
    """


class DenwaRenji:
    """The D-Mail of the session whose context is the file at `file_backend`.

    `fetch_pending_dmail` returns each mail once, without a change in the daemon. The mail expires
    when the fetcher reverts the context to its checkpoint, as kimi-cli's loop does next. Until then
    it is pending: if a process dies in between, the next one gets the mail. A mail that was fetched
    here and not followed is replaced by the next one that is sent here.

    The methods block until the daemon has answered, as the interface requires: about a millisecond.

    Without a file it works as kimi-cli's own class: it keeps one mail in this process, and knows
    the checkpoints only from `set_n_checkpoints`.

    Args:
        file_backend: the file of the Context; None: there is no file.
        dmail_type: the class of fetched mails; None: the class of the mails that were sent here,
            and before the first of them kimi-cli's.
    """

    def __init__(
        self, file_backend: str | os.PathLike[str] | None = None, *, dmail_type: type | None = None
    ) -> None:
        self._file = None if file_backend is None else FileSession(Path(file_backend))
        self._kept: MailLike | None = None
        self._dmail_type: Any = dmail_type
        self._is_type_given = dmail_type is not None
        self._n_checkpoints: int | None = None
        self._fetched: set[str] = set()

    def send_dmail(self, dmail: MailLike) -> None:
        """Send a mail; with a file it is on the disk on return, and any process can fetch it.

        Raises:
            DenwaRenjiError: another mail is pending, there is no such checkpoint, or the mail is
                empty.
        """
        if not (hasattr(dmail, "checkpoint_id") and hasattr(dmail, "message")):
            raise _refused(
                "a D-Mail has a checkpoint_id and a message, as kimi-cli's DMail, and is not a"
                f" {type(dmail).__name__}: make one"
            )
        if self._file is None:
            self._keep(dmail)
            return
        try:
            given_up = self._given_up(self._file)
            self._file.send_dmail(dmail.checkpoint_id, dmail.message, given_up)
        except (Exists, NotFound, Conflict, BadRequest) as error:
            raise _refused(error.message) from error
        if not self._is_type_given:
            self._dmail_type = type(dmail)

    def set_n_checkpoints(self, n_checkpoints: int) -> None:
        """Set the number of checkpoints of the context; mails to later ones are fetched later."""
        self._n_checkpoints = n_checkpoints

    def fetch_pending_dmail(self) -> Any | None:
        """Return the pending mail unless it was fetched here before; None without one."""
        if self._file is None:
            kept, self._kept = self._kept, None
            return kept
        mail = self._file.pending_dmail()
        if mail is None or mail.id in self._fetched:
            return None
        if self._n_checkpoints is not None and mail.checkpoint_id >= self._n_checkpoints:
            return None
        if self._dmail_type is None:
            self._dmail_type = program(_THEIRS, KIMI_CLI).DMail
        fetched = self._dmail_type(message=mail.message, checkpoint_id=mail.checkpoint_id)
        self._fetched.add(mail.id)
        return fetched

    def _keep(self, dmail: MailLike) -> None:
        if self._kept is not None:
            raise _refused("a D-Mail waits already and there is one at a time: fetch it first")
        count = self._n_checkpoints or 0
        number = target_of(dmail.checkpoint_id).checkpoint_id
        if not 0 <= number < count:
            raise _refused(
                f"there is no checkpoint {number}: set_n_checkpoints was called with"
                f" {count}, which are numbered from 0; send it back to one of them"
            )
        self._kept = dmail

    def _given_up(self, file: FileSession) -> str | None:
        """The id of a pending mail that was fetched here: kimi-cli drops a declined mail."""
        mail = file.pending_dmail() if self._fetched else None
        return mail.id if mail is not None and mail.id in self._fetched else None


def _refused(message: str) -> DenwaRenjiError:
    """An error that is also an instance of kimi-cli's class."""
    theirs: Any = getattr(sys.modules.get(_THEIRS), "DenwaRenjiError", None)
    if theirs is None:
        return DenwaRenjiError(message)
    both: type[DenwaRenjiError] = type("DenwaRenjiError", (DenwaRenjiError, theirs), {})
    return both(message)
