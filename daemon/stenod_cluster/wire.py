"""Headers of a message of the journal, and the message that headers and a body are."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from stenod_cluster.journal import ForeignMessage, Kind, Message, Owner, Publication

MESSAGE_ID: Final = "Nats-Msg-Id"
"""The servers store one message of those with the same id."""

EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
"""The servers refuse a message if its subject's last one has another sequence: the fence."""

KIND: Final = "Steno-Kind"
"""What a message is."""

_MOVE: Final = "Steno-Move"
_HOST: Final = "Steno-Host"
_INCARNATION: Final = "Steno-Incarnation"
_ENDPOINT: Final = "Steno-Endpoint"
_SEQUENCE: Final = "Nats-Sequence"
_TIME: Final = "Nats-Time-Stamp"


def owner_headers(owner: Owner) -> dict[str, str]:
    """Returns the headers that name an owner."""
    return {_HOST: owner.host, _INCARNATION: owner.incarnation, _ENDPOINT: owner.endpoint}


def headers_of(publication: Publication, message_id: str) -> dict[str, str]:
    """Returns the headers of a publication."""
    headers = {
        MESSAGE_ID: message_id,
        EXPECTED: str(publication.after),
        KIND: publication.kind,
        **owner_headers(publication.owner),
    }
    return {**headers, _MOVE: publication.move} if publication.move else headers


def sequence_of(headers: Mapping[str, str]) -> int:
    """Returns the sequence under which the servers have a message."""
    return int(headers[_SEQUENCE])


def message_of(folder: str, headers: Mapping[str, str], body: bytes) -> Message:
    """Returns the message that the servers have.

    Raises:
        ForeignMessage: it has no owner or no known kind, so steno did not publish it.
    """
    try:
        return Message(
            sequence=int(headers[_SEQUENCE]),
            owner=Owner(headers[_HOST], headers[_INCARNATION], headers[_ENDPOINT]),
            kind=Kind(headers[KIND]),
            body=body,
            at=datetime.fromisoformat(headers[_TIME]).timestamp(),
            move=headers.get(_MOVE, ""),
        )
    except (KeyError, ValueError):
        raise ForeignMessage(folder, sequence_of(headers)) from None
