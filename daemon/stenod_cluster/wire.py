"""Headers of a message of the journal, and the message that headers and a body are."""

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from stenod_cluster.journal import UNFENCED, ForeignMessage, Kind, Message, Owner, Publication

EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
"""The servers refuse a message if its subject's last one has another sequence: the fence."""

MESSAGE_ID: Final = "Steno-Message"
"""The same in each copy of a message that is sent again: it shows whose the stored one is."""

KIND: Final = "Steno-Kind"
"""What a message is."""

_MOVE: Final = "Steno-Move"
_HOST: Final = "Steno-Host"
_INCARNATION: Final = "Steno-Incarnation"
_ENDPOINT: Final = "Steno-Endpoint"
_BATCH: Final = "Nats-Batch-Id"
_BATCH_PLACE: Final = "Nats-Batch-Sequence"
_BATCH_END: Final = "Nats-Batch-Commit"

SEQUENCE: Final = "Nats-Sequence"
"""The sequence of a message that is read."""

SUBJECT: Final = "Nats-Subject"
"""Where a message that is read was published."""

TIME: Final = "Nats-Time-Stamp"
"""When the servers took a message that is read."""


class Reply(NamedTuple):
    """An answer of the servers, or a message that they have."""

    headers: Mapping[str, str]
    body: bytes

    @property
    def status(self) -> str:
        """Its status, empty for a message without one."""
        return self.headers.get("Status", "")

    @property
    def sequence(self) -> int:
        """The sequence under which the servers have a message."""
        return int(self.headers[SEQUENCE])


def owner_headers(owner: Owner) -> dict[str, str]:
    """Returns the headers that name an owner."""
    return {_HOST: owner.host, _INCARNATION: owner.incarnation, _ENDPOINT: owner.endpoint}


def headers_of(publication: Publication, message_id: str) -> dict[str, str]:
    """Returns the headers of a publication."""
    headers = {
        MESSAGE_ID: message_id,
        KIND: publication.kind,
        **owner_headers(publication.owner),
    }
    if publication.after != UNFENCED:
        headers[EXPECTED] = str(publication.after)
    return {**headers, _MOVE: publication.move} if publication.move else headers


def batch_headers(batch: Sequence[Publication], message_id: str) -> list[dict[str, str]]:
    """Returns the headers of each message of a batch, under a new id of the batch."""
    number = secrets.token_hex(16)
    found: list[dict[str, str]] = []
    for place, publication in enumerate(batch, start=1):
        headers = headers_of(publication, message_id)
        found.append({**headers, _BATCH: number, _BATCH_PLACE: str(place)})
    found[-1][_BATCH_END] = "1"
    return found


def headers_in(data: bytes) -> dict[str, str]:
    """Returns the headers of a message as a server stores them."""
    return header_lines(data.partition(b"\r\n")[2])


def header_lines(raw: bytes) -> dict[str, str]:
    """Returns the headers of lines."""
    lines = raw.decode(errors="surrogateescape").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return {name: value.strip() for name, _, value in pairs}


def message_of(subject: str, reply: Reply) -> Message:
    """Returns the message that the servers have.

    Raises:
        ForeignMessage: it has no owner or no known kind, so steno did not publish it.
    """
    headers = reply.headers
    try:
        return Message(
            sequence=reply.sequence,
            owner=Owner(headers[_HOST], headers[_INCARNATION], headers[_ENDPOINT]),
            kind=Kind(headers[KIND]),
            body=reply.body,
            at=datetime.fromisoformat(headers[TIME]).timestamp(),
            move=headers.get(_MOVE, ""),
        )
    except (KeyError, ValueError):
        raise ForeignMessage(subject, reply.sequence) from None
