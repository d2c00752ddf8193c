"""Records of a framework as batches that are complete before the first one is sent."""

from collections.abc import Mapping, Sequence
from typing import Any

from steno._sansio.messages import encode_messages
from steno_protocol import limits
from steno_protocol.errors import Refused
from steno_protocol.records import check_record


def batches_of(records: Sequence[Mapping[str, Any]], session: str) -> list[list[bytes]]:
    """Return records as bytes, in batches of at most `BATCH_RECORDS_MAX`.

    The daemon makes the same checks. They are made here first, so that a bad record leaves neither
    an empty session behind, nor the batches before its own.

    Args:
        records: the records.
        session: the id of their session, for errors.

    Raises:
        BadRequest, TooLarge: a record is not JSON, too deep or too large; the error names it.
    """
    starts = range(0, len(records), limits.BATCH_RECORDS_MAX)
    try:
        return [_batch(records[each : each + limits.BATCH_RECORDS_MAX]) for each in starts]
    except Refused as error:
        error.session = session
        raise


def _batch(records: Sequence[Mapping[str, Any]]) -> list[bytes]:
    return [check_record(data) for data in encode_messages(records, "record")]
