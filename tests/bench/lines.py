"""The records of the benchmark: 600 bytes a line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

LINE_BYTES: Final = 600
"""The median line of real sessions lies between 300 and 900 bytes."""

RECORDS: Final = 100_000
"""Records of the long session."""

USAGE_EVERY: Final = 10
"""Messages between two token counts, as an agent writes one after each of its steps."""

CHECKPOINTS: Final = {10: 0, 50: 1, 90: 2}
"""Per cent of the long session before a checkpoint, and the checkpoint's id."""


def message(number: int) -> bytes:
    """One message as JSON, `LINE_BYTES` long with its newline, which is not included."""
    head = msgspec.json.encode({"role": "user" if number % 2 else "assistant", "content": ""})
    text = f"message {number} "
    return head[:-2] + (text * 60)[: LINE_BYTES - 1 - len(head)].encode() + head[-2:]


def write_long_session(path: Path) -> None:
    """A `context.jsonl` of `RECORDS` messages with checkpoints and token counts between them."""
    with path.open("wb", buffering=1 << 20) as file:
        file.writelines(_long_session())


def _long_session() -> Iterator[bytes]:
    at = {RECORDS * share // 100: number for share, number in CHECKPOINTS.items()}
    for number in range(RECORDS):
        if number in at:
            yield msgspec.json.encode({"role": "_checkpoint", "id": at[number]}) + b"\n"
        yield message(number) + b"\n"
        if number % USAGE_EVERY == USAGE_EVERY - 1:
            yield msgspec.json.encode({"role": "_usage", "token_count": number}) + b"\n"
