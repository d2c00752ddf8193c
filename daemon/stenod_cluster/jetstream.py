"""Requests to JetStream's interface, over a connection."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from stenod_cluster import limits
from stenod_cluster.journal import JournalLost
from stenod_cluster.nats_connection import (
    Connection,
    NoRespondersError,
    NotConnectedError,
    Reply,
    UnansweredError,
)
from stenod_cluster.verdicts import STREAM_NOT_FOUND, Again, decoded_answer, failure_of

NOT_FOUND: Final = "404"
_BATCH_END: Final = {"204", NOT_FOUND, "408", "413"}


class Rejected(Exception):
    """JetStream does not do what was asked.

    Attributes:
        error: its answer.
    """

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(str(error))
        self.error = dict(error)
        self.code = int(error.get("err_code", 0))


async def api(
    connection: Connection, name: str, stream: str, request: object, wait_s: float
) -> dict[str, Any]:
    """Ask until there is an answer, such as `api(connection, "STREAM.INFO", "T", {}, 5)`.

    Raises:
        Rejected: the servers refuse it, and will.
        JournalLost: there was no answer within `wait_s` seconds.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + wait_s
    body = msgspec.json.encode(request)
    reason = connection.trouble
    while (left_s := deadline - clock()) > 0 and not connection.is_closed:
        try:
            reply = await connection.request(
                f"$JS.API.{name}.{stream}", body, min(left_s, limits.RESEND_S)
            )
        except NotConnectedError as error:
            reason = str(error)
            await connection.wait_connected(left_s)
            continue
        except NoRespondersError:
            reason = "JetStream is not enabled on the servers: add a jetstream block to them"
        except UnansweredError as error:
            reason = str(error)
            await connection.check()
        else:
            answer = decoded_answer(reply.body)
            if (refusal := answer.get("error")) is None:
                return answer
            reason = _passing(refusal, stream)
        await asyncio.sleep(min(limits.RETRY_S_MAX, left_s))
    raise JournalLost(None, reason)


def _passing(refusal: Mapping[str, Any], stream: str) -> str:
    """Returns why an answer is a refusal that may pass."""
    rejected = Rejected(refusal)
    match failure_of(rejected.error, stream):
        case Again(reason) if rejected.code != STREAM_NOT_FOUND:
            return reason
        case _:
            raise rejected


async def direct_get(
    connection: Connection, stream: str, request: Mapping[str, object]
) -> Reply | None:
    """Read one message from any replica; None if that one has none.

    Raises:
        NotConnectedError, NoRespondersError, UnansweredError: no replica answered.
    """
    body = msgspec.json.encode(request)
    reply = await connection.request(f"$JS.API.DIRECT.GET.{stream}", body, limits.RESEND_S)
    return None if reply.status else reply


async def direct_get_batch(
    connection: Connection, stream: str, request: Mapping[str, object]
) -> list[Reply]:
    """Read messages from any replica, those that came in an unbroken row.

    Raises:
        NotConnectedError, NoRespondersError, UnansweredError: no replica answered.
    """
    replies = await connection.request_all(
        f"$JS.API.DIRECT.GET.{stream}",
        msgspec.json.encode(request),
        limits.RESEND_S,
        lambda reply: reply.status in _BATCH_END,
    )
    found: list[Reply] = []
    for reply in replies[:-1]:
        # Each message names the one that was sent before it; the first one names none.
        before = found[-1].headers["Nats-Sequence"] if found else "0"
        if reply.headers.get("Nats-Last-Sequence") != before:
            break
        found.append(reply)
    return found
