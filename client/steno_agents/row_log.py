"""The log of a table whose rows change: what a new state of the rows adds to it; pure.

A program that keeps its sessions in a database changes rows. The stream of such a session is a log:
each row as it was first, and again at each change, and a row `removed` for one that is gone. So the
stream only grows, as that of a file does, and the last state of each row counts.

    {"table": "removed", "of": "part", "id": "prt_1"}
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, Final

import msgspec

from steno_agents.json_lines import lenient_object

REMOVED: Final = "removed"
"""The table of rows that say that another row is gone."""

_HEAD: Final = "session"
"""The table of the row that describes a session; in a log, it follows the rows that changed."""

_DIGEST_BYTES: Final = 16

_Key = tuple[str, str]


def additions(log: Iterable[bytes], state: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines that a log needs to have the present state of its rows.

    Args:
        log: the lines of the log.
        state: a line for each row that there is now, the session first.
    """
    known: dict[_Key, bytes] = {}
    for line in log:
        record = lenient_object(line)
        if record is not None and record.get("table") == REMOVED:
            known.pop((str(record.get("of")), str(record.get("id"))), None)
        elif record is not None:
            known[_key(record)] = _digest(line)
    heads: list[bytes] = []
    there: set[_Key] = set()
    for line in state:
        record = lenient_object(line)
        key = _key(record or {})
        there.add(key)
        if known.get(key) == _digest(line):
            continue
        if key[0] == _HEAD:
            heads.append(line)
        else:
            yield line
    for table, identity in known.keys() - there:
        yield msgspec.json.encode({"table": REMOVED, "of": table, "id": identity}) + b"\n"
    yield from heads


def _key(record: dict[str, Any]) -> _Key:
    return str(record.get("table")), str(record.get("id"))


def _digest(line: bytes) -> bytes:
    return blake2b(line, digest_size=_DIGEST_BYTES).digest()
