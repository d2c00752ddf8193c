"""Records with halves of surrogate pairs, shown with U+FFFD and kept exactly.

A text of a framework can hold half a surrogate pair, where a program cut an emoji. UTF-8 has no
bytes for it, but JSON has an escape, so `json` and the frameworks' own stores keep it. A record
with such a half has U+FFFD in its place, which every reader can show, and beside it the exact JSON
under the key `EXACT`, of which a reader makes the original again.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from steno._sansio.messages import encode_messages
from steno_protocol.errors import BadRequest
from steno_protocol.records import check_record
from steno_protocol.surrogates import replace_lone_surrogates

EXACT: Final = "steno:exact"
"""The key of the exact JSON, in ASCII, of a record that is shown with U+FFFD."""


def encode_exactly(records: Sequence[Mapping[str, Any]], what: str = "record") -> list[bytes]:
    """Return the records of one batch as bytes.

    The daemon makes the same checks. They are made here first, so that a bad record leaves no empty
    session behind.

    Args:
        records: the records.
        what: the noun for a record in error messages.

    Raises:
        BadRequest, TooLarge: a record is not JSON, too deep or too large; the error names it.
    """
    try:
        encoded = encode_messages(records, what)
    except BadRequest:
        encoded = encode_messages([_shown(each) for each in records], what)
    return [check_record(data) for data in encoded]


def original(record: dict[str, Any]) -> dict[str, Any]:
    """Return a stored record as it was given."""
    exact = record.get(EXACT)
    if not isinstance(exact, str):
        return record
    found: dict[str, Any] = json.loads(exact)
    return found


def _shown(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record with U+FFFD for halves of surrogate pairs, and with its exact JSON."""
    try:
        exact = json.dumps(record, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, TypeError, RecursionError):
        # The encoder names the reason.
        return record
    shown = replace_lone_surrogates(exact)
    return record if shown == exact else {**json.loads(shown), EXACT: exact.decode()}
