"""What the API changes through the client, with `--write`.

Each change names the state that the page has shown, so that no change acts on a stale page.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from steno import Client
from steno.parts import HANDLE_PATTERN
from steno.values import Ack
from steno_protocol.errors import BadRequest, Conflict, Unauthorized
from steno_protocol.positions import Position
from steno_protocol.replies import SessionStat
from steno_redact.records import masked_stat
from steno_redact.redactor import Redactor


class Change(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=str.lower,
             forbid_unknown_fields=True):  # fmt: skip
    """Any change of one session."""

    session: str


class Checkpoint(Change, frozen=True, kw_only=True):
    """Append a checkpoint at this head."""

    expect: str


class Revert(Change, frozen=True, kw_only=True):
    """Remove the checkpoint of this handle and everything after it, at this head."""

    checkpoint: Annotated[str, msgspec.Meta(pattern=HANDLE_PATTERN)]
    expect: str
    why: str = ""


class Restore(Change, frozen=True, kw_only=True):
    """Restore a past generation, at this head."""

    generation: int
    expect: str
    why: str = ""


class Fork(Change, frozen=True, kw_only=True):
    """Create a session from the state at a position."""

    new: str
    at: str


class Title(Change, frozen=True, kw_only=True):
    """Set the title, if it is still the one that the page showed."""

    title: str
    was: str


class Labels(Change, frozen=True, kw_only=True):
    """Set the labels, if they are still those that the page showed."""

    labels: list[str]
    was: list[str]


AnyChange = Checkpoint | Revert | Restore | Fork | Title | Labels

_decoder = msgspec.json.Decoder(AnyChange)


class Changes:
    """The changes of one viewer."""

    def __init__(self, client: Client, redactor: Redactor, *, is_allowed: bool) -> None:
        self._client = client
        self._redactor = redactor
        self.is_allowed = is_allowed

    async def apply(self, body: bytes) -> dict[str, Any]:
        """Make a change, and return the head and the session that it led to.

        Raises:
            Unauthorized: the viewer only reads.
            BadRequest: the body is no change.
            Conflict: the session is no longer as the page showed it; nothing was changed.
        """
        if not self.is_allowed:
            raise Unauthorized("this viewer only reads: start it with `steno view --write`")
        try:
            change = _decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f"the body is no change: {error}") from None
        match change:
            case Title() | Labels():
                return _described(await self._describe(change))
            case Fork():
                made = await self._client.session(change.session).fork(
                    change.new, at=Position.parse(change.at)
                )
                return {"session": made.id, "head": change.at}
            case _:
                return _acked(change.session, await self._write(change))

    async def _write(self, change: Checkpoint | Revert | Restore) -> Ack:
        session = self._client.session(change.session)
        expect = Position.parse(change.expect)
        match change:
            case Checkpoint():
                return await session.checkpoint(expect=expect)
            case Revert():
                why = change.why or None
                return await session.revert_to(change.checkpoint, why=why, expect=expect)
            case Restore():
                why = change.why or None
                return await session.restore_generation(change.generation, why=why, expect=expect)

    async def _describe(self, change: Title | Labels) -> SessionStat:
        session = self._client.session(change.session)
        self._check_masks([change.title] if isinstance(change, Title) else change.labels)
        stat = masked_stat(self._redactor, await session.stat())
        is_same = (
            stat.title == change.was
            if isinstance(change, Title)
            else list(stat.labels) == change.was
        )
        if not is_same:
            raise Conflict(
                "another client has changed it meanwhile: look at it again, then repeat the change",
                session=change.session,
                head=stat.head,
            )
        if isinstance(change, Title):
            return await session.describe(title=change.title)
        return await session.describe(labels=change.labels)

    def _check_masks(self, texts: Sequence[str]) -> None:
        """Refuse to store a mask in place of what it hides.

        Raises:
            BadRequest: a text contains a mask.
        """
        if any(map(self._redactor.has_mask, texts)):
            raise BadRequest(
                "the new text contains a mask, and would replace what it hides: write it anew, or"
                " change it with `steno title` or `steno label`"
            )


def _acked(session: str, ack: Ack) -> dict[str, Any]:
    return {"session": session, "head": str(ack.head), "checkpoint": ack.checkpoint_id}


def _described(stat: SessionStat) -> dict[str, Any]:
    return {"session": stat.session, "head": stat.head}
