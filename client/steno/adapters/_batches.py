"""Records of a framework as batches that are complete before the first one is sent."""

from collections.abc import Mapping, Sequence
from typing import Any

import steno
from steno.parts import encode_exactly
from steno_protocol import limits
from steno_protocol.errors import Refused


def batches_of(records: Sequence[Mapping[str, Any]], session: str) -> list[list[bytes]]:
    """Return records as bytes, in batches of at most `BATCH_RECORDS_MAX`.

    A bad record leaves neither an empty session behind, nor the batches before its own.

    Args:
        records: the records.
        session: the id of their session, for errors.

    Raises:
        BadRequest, TooLarge: a record is not JSON, too deep or too large; the error names it.
    """
    starts = range(0, len(records), limits.BATCH_RECORDS_MAX)
    try:
        return [encode_exactly(records[each : each + limits.BATCH_RECORDS_MAX]) for each in starts]
    except Refused as error:
        error.session = session
        raise


def behind(record: steno.StreamRecord) -> steno.Position:
    """Return the position behind a record."""
    return steno.Position(record.cursor.generation, record.cursor.line + 1)
