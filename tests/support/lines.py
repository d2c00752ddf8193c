"""Short builders of lines, keys and commands."""

import json
from collections.abc import Sequence
from typing import Any

from steno_protocol import records
from steno_protocol.commands import (
    Append,
    Checkpoint,
    Clear,
    CompactBegin,
    CompactCommit,
    DeliverDmail,
    RestoreGeneration,
    RevertTo,
    SendDmail,
    UpdateTokenCount,
    WriteSystemPrompt,
)

SESSION = "demo"


def uuid7(made_ms: int, number: int) -> str:
    """A key of the shape that steno's clients make, made at a time in Unix milliseconds."""
    time = f"{made_ms:012x}"
    return f"{time[:8]}-{time[8:]}-7000-8000-{number:012x}"


def line(record: object) -> bytes:
    """One line of compact JSON."""
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def user(text: str, **extra: Any) -> bytes:
    """A user's message as the record frame of an append."""
    return line({"role": "user", "content": text, **extra})[:-1]


def foreign(text: str) -> bytes:
    """A line as another program writes it."""
    return user(text) + b"\n"


def stamps(key: str, count: int, by: str | None = None) -> list[bytes]:
    """The stamps of one command's lines, as PROTOCOL.md has them."""
    head = f',"_by":"{by}","_id":"{key}' if by else f',"_id":"{key}'
    if count == 1:
        return [f'{head}"'.encode()]
    return [f'{head}.{index}/{count}"'.encode() for index in range(count)]


def stamped(key: str, texts: Sequence[str]) -> list[bytes]:
    """The lines of one append command."""
    return [
        records.line(user(text), stamp)
        for text, stamp in zip(texts, stamps(key, len(texts)), strict=True)
    ]


def append(key: str, **fields: Any) -> Append:
    """An append; the records come beside it."""
    return Append(session=SESSION, key=key, **fields)


def checkpoint(key: str, **fields: Any) -> Checkpoint:
    """A checkpoint."""
    return Checkpoint(session=SESSION, key=key, **fields)


def usage(key: str, token_count: int, **fields: Any) -> UpdateTokenCount:
    """A token count."""
    return UpdateTokenCount(session=SESSION, key=key, token_count=token_count, **fields)


def prompt(key: str, text: str, **fields: Any) -> WriteSystemPrompt:
    """A system prompt."""
    return WriteSystemPrompt(session=SESSION, key=key, prompt=text, **fields)


def revert(key: str, checkpoint_id: int, **fields: Any) -> RevertTo:
    """A revert."""
    return RevertTo(session=SESSION, key=key, checkpoint_id=checkpoint_id, **fields)


def revert_line(key: str, position: str, **fields: Any) -> RevertTo:
    """A revert to the line at a position."""
    return RevertTo(session=SESSION, key=key, position=position, **fields)


def clear(key: str, **fields: Any) -> Clear:
    """A clear."""
    return Clear(session=SESSION, key=key, **fields)


def restore(key: str, generation: int, **fields: Any) -> RestoreGeneration:
    """A restore."""
    return RestoreGeneration(session=SESSION, key=key, generation=generation, **fields)


def compact_begin(lease: str, **fields: Any) -> CompactBegin:
    """The beginning of a compaction."""
    return CompactBegin(session=SESSION, lease=lease, **fields)


def compact(key: str, cut: str, at: str, checkpoint_id: int, **fields: Any) -> CompactCommit:
    """The end of a compaction; the summary comes beside it."""
    return CompactCommit(
        session=SESSION, key=key, lease=key, cut=cut, at=at, checkpoint_id=checkpoint_id, **fields
    )


def mail(key: str, checkpoint_id: int, message: str = "turn back", **fields: Any) -> SendDmail:
    """A D-Mail; its key is its id."""
    return SendDmail(
        session=SESSION, key=key, checkpoint_id=checkpoint_id, message=message, **fields
    )


def deliver(key: str, mail_id: str, **fields: Any) -> DeliverDmail:
    """The delivery of a D-Mail."""
    return DeliverDmail(session=SESSION, key=key, mail_id=mail_id, **fields)
