"""Records of a framework as batches that are complete before the first one is sent.

A text of a framework can hold half a surrogate pair, where a program cut an emoji. UTF-8 has no
bytes for it, but JSON has an escape, so `json` and the frameworks' own stores keep it. A record
with such a half has U+FFFD in its place, which every reader can show, and beside it the exact JSON
under the key `EXACT`, of which the adapter makes the original again.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from steno.parts import encode_messages
from steno_protocol import limits
from steno_protocol.errors import BadRequest, Refused
from steno_protocol.records import check_record
from steno_protocol.surrogates import replace_lone_surrogates

EXACT: Final = "steno:exact"
"""The key of the exact JSON, in ASCII, of a record that is shown with U+FFFD."""


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


def original(record: dict[str, Any]) -> dict[str, Any]:
    """Return a stored record as the framework gave it."""
    exact = record.get(EXACT)
    if not isinstance(exact, str):
        return record
    found: dict[str, Any] = json.loads(exact)
    return found


def _batch(records: Sequence[Mapping[str, Any]]) -> list[bytes]:
    try:
        encoded = encode_messages(records, "record")
    except BadRequest:
        encoded = encode_messages([_shown(each) for each in records], "record")
    return [check_record(data) for data in encoded]


def _shown(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record with U+FFFD for halves of surrogate pairs, and with its exact JSON."""
    try:
        exact = json.dumps(record, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, TypeError, RecursionError):
        # The encoder names the reason.
        return record
    shown = replace_lone_surrogates(exact)
    return record if shown == exact else {**json.loads(shown), EXACT: exact.decode()}
