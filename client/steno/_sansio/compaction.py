"""One compaction: its commands and the meaning of their replies."""

from collections.abc import Sequence
from typing import Any

import msgspec

from steno._sansio.argument_checks import check_function, given_number, given_text
from steno._sansio.messages import encode_messages
from steno._sansio.past_state import PastReader
from steno._sansio.requests import given_key
from steno._sansio.summaries import (
    Summary,
    estimated_tokens,
    prepare,
    recorded_summary,
    summary_parts,
    summary_record,
    summary_text,
    summary_tokens,
)
from steno.values import Checkpoint, Compacted
from steno_protocol import commands, limits, replies, timeline_entries
from steno_protocol.context import CHARS_PER_TOKEN, ContextState, Message
from steno_protocol.positions import Position
from steno_protocol.records import text_chars
from steno_protocol.timeline_entries import TimelineEntry


class Compacting:
    """A compaction until it has something to summarise.

    The caller sends `begin` and gives the reply to `begun`. From then on it sends `abort` wherever
    it stops before the end.

    Args:
        session: its id.
        by: the compactor.
        key: names the compaction for ever; it is the name of its lease, too.
        preserve: how many of the last user and assistant messages stay as they are.
        lease_ms: after how long without a renewal it counts as abandoned.
    """

    def __init__(
        self, session: str, by: str, key: str | None, preserve: int, lease_ms: int
    ) -> None:
        self.key = given_key(key)
        self.begin = commands.CompactBegin(
            session=session, lease=self.key, preserve=preserve, lease_ms=lease_ms, by=by
        )
        self.abort = commands.CompactAbort(session=session, lease=self.key)

    def begun(self, reply: replies.Compaction) -> "Begun | None":
        """The compaction that has begun, or None when there is nothing to summarise."""
        return Begun(self.begin, reply) if reply.messages else None

    def applied(self, entries: Sequence[TimelineEntry]) -> "Applied | None":
        """The compaction of this key in the session's timeline, None when there was none."""
        at: dict[int, str] = {}
        for entry in entries:
            match entry:
                case TimelineEntry(
                    kind=timeline_entries.COMPACTING,
                    details={"checkpoint_id": int(number), "at": str(begun)},
                ):
                    at[number] = begun
                case TimelineEntry(
                    kind=timeline_entries.COMPACTED,
                    details={
                        "from": int(source),
                        "checkpoint_id": int(number),
                        "summarised": int(lines),
                        "lines": int(head),
                    },
                ) if entry.key == self.key:
                    cut = Position(source, lines)
                    return Applied(
                        session=self.begin.session,
                        lease=self.key,
                        head=Position(entry.generation, head),
                        cut=cut,
                        at=Position.parse(at[number]) if number in at else cut,
                        checkpoint_id=number,
                    )
                case _:
                    pass
        return None


class Begun(msgspec.Struct, frozen=True):
    """A compaction that has something to summarise.

    The caller reads `past`, has its `request` answered, and sends the commit of `commit_fields` and
    `commit_record`.
    """

    begin: commands.CompactBegin
    reply: replies.Compaction

    @property
    def renewal_s(self) -> float:
        """Seconds between two renewals of the lease."""
        return (self.reply.lease_ms or self.begin.lease_ms) / 3000

    def past(self) -> PastReader:
        """A reader of the lines that are summarised."""
        return PastReader(self.begin.session, Position.parse(self.reply.cut), None)

    def request(self, past: ContextState, instruction: str | None) -> list[Message]:
        """The messages of the request to the model."""
        return prepare(past.history, instruction)

    def commit_record(self, summary: str | Summary) -> list[bytes]:
        """The record that goes with the commit.

        Raises:
            BadRequest: the summary has another type, or no text.
            TooLarge: it is over the limit of a record.
        """
        return encode_messages(summary_record(summary))

    def commit_fields(self, summary: str | Summary, why: str | None) -> dict[str, Any]:
        """The fields of the commit beside those that every mutation has."""
        return {
            "lease": self.begin.lease,
            "cut": self.reply.cut,
            "at": self.reply.at,
            "checkpoint_id": self.reply.checkpoint_id,
            # A daemon that does not send an incarnation does not need it either.
            "incarnation": self.reply.incarnation or None,
            "summary_tokens": summary_tokens(summary),
            "why": why,
        }

    def result(self, ack: Checkpoint, summary: str | Summary) -> Compacted:
        """What the caller gets."""
        text = summary_text(summary_parts(summary))
        tokens = summary_tokens(summary)
        return Compacted(
            ack=ack,
            messages=self.reply.messages,
            summary=text,
            tokens=estimated_tokens(text) if tokens is None else tokens,
            checkpoint_id=ack.id,
            cut=Position.parse(self.reply.cut),
            at=Position.parse(self.reply.at),
        )


class Applied(msgspec.Struct, frozen=True):
    """A finished compaction that is repeated with its key.

    The caller reads `made` and `summarised`, and sends the commit of `commit_fields` and
    `commit_record`, which gets the first answer. The daemon cannot apply it again, because it names
    a generation that was left behind.
    """

    session: str
    lease: str
    head: Position
    cut: Position
    at: Position
    checkpoint_id: int

    def made(self) -> PastReader:
        """A reader of the session as it was right after the compaction."""
        return PastReader(self.session, self.head, None)

    def summarised(self) -> PastReader:
        """A reader of the lines that were summarised."""
        return PastReader(self.session, self.cut, None)

    def commit_record(self, made: ContextState) -> list[bytes]:
        """The record that goes with the commit: the summary in the session."""
        return encode_messages(made.history[0])

    def commit_fields(self) -> dict[str, Any]:
        """The fields of the commit beside those that every mutation has."""
        return {
            "lease": self.lease,
            "cut": str(self.cut),
            "at": str(self.at),
            "checkpoint_id": self.checkpoint_id,
        }

    def result(self, ack: Checkpoint, made: ContextState, summarised: ContextState) -> Compacted:
        """What the caller gets."""
        summary, *kept = made.history
        text = recorded_summary(summary)
        kept_chars = sum(text_chars(message["content"]) for message in kept)
        tokens = made.token_count - kept_chars // CHARS_PER_TOKEN
        # The daemon estimates the whole message, because no model reported a number.
        is_estimate = tokens == text_chars(summary["content"]) // CHARS_PER_TOKEN
        return Compacted(
            ack=ack,
            messages=len(summarised.history),
            summary=text,
            tokens=estimated_tokens(text) if is_estimate else tokens,
            checkpoint_id=self.checkpoint_id,
            cut=self.cut,
            at=self.at,
        )


def check_asking(summarize: object, instruction: object) -> None:
    """Raise BadRequest if no model can be asked with these arguments, before anything is sent."""
    check_function(summarize, "summarize")
    if instruction is not None:
        given_text(instruction, "instruction")


def lease_ms(lease_s: float) -> int:
    """Return a lease in milliseconds, within its limits; raise BadRequest if it is no number."""
    lease = 1000 * given_number(lease_s, "lease, in seconds,")
    return int(max(1, min(lease, limits.COMPACTION_LEASE_MS_MAX)))
