"""Requests to JetStream's interface, over a connection."""

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from errno import EINVAL
from typing import Any, Final, TypeVar

import msgspec

from stenod_cluster import limits
from stenod_cluster.journal import JournalLost
from stenod_cluster.nats_connection import (
    Connection,
    NoRespondersError,
    NotConnectedError,
    UnansweredError,
)
from stenod_cluster.verdicts import (
    NO_MESSAGE_FOUND,
    SEQUENCE_NOT_FOUND,
    STREAM_NOT_FOUND,
    Again,
    decoded_answer,
    failure_of,
)
from stenod_cluster.wire import SEQUENCE, SUBJECT, TIME, Reply, headers_in

T = TypeVar("T")

NOT_FOUND: Final = "404"
_BATCH_END: Final = {"204", NOT_FOUND, "408", "413"}
_NOT_ENABLED: Final = "JetStream is not enabled on the servers: add a jetstream block to them"


class Rejected(OSError):
    """JetStream does not do what was asked; the text says what to do.

    Attributes:
        code: the number of its error.
        may_pass: whether the servers may do it later.
    """

    def __init__(self, error: dict[str, Any], stream: str) -> None:
        failure = failure_of(error, stream)
        self.may_pass = isinstance(failure, Again)
        if isinstance(failure, Again):
            failure = OSError(EINVAL, failure.reason)
        super().__init__(failure.errno, failure.strerror)
        self.code = int(error.get("err_code", 0))


class PassingError(Exception):
    """An answer does not count, and the next one may: that of a replica that lags, for example."""


async def until_heard(
    connection: Connection,
    ask: Callable[[float], Awaitable[T]],
    wait_s: float,
    without_responders: str,
) -> T:
    """Ask again and again until there is an answer.

    Args:
        connection: the connection to the servers.
        ask: asks once, with so many seconds for the answer.
        wait_s: seconds for all attempts.
        without_responders: why nobody takes the request.

    Raises:
        JournalLost: there was no answer in time.
        OSError: as `ask`.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + wait_s
    reason = connection.trouble
    while (left_s := deadline - clock()) > 0 and not connection.is_closed:
        try:
            return await ask(min(left_s, limits.RESEND_S))
        except NotConnectedError as error:
            reason = str(error)
            await connection.wait_trusted(left_s)
            continue
        except NoRespondersError:
            reason = without_responders
        except UnansweredError as error:
            reason = str(error)
            await connection.check()
        except PassingError as error:
            reason = str(error)
        await asyncio.sleep(min(limits.RETRY_S_MAX, left_s))
    raise JournalLost(None, reason)


async def subject_pages(
    ask: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]], subjects: str
) -> AsyncIterator[tuple[dict[str, Any], dict[str, int]]]:
    """Yield facts about a stream with the numbers of messages of some of its subjects.

    The servers give at most 100 000 subjects at once.

    Args:
        ask: asks for facts about the stream, as `STREAM.INFO`.
        subjects: with wildcards.
    """
    offset, total = 0, 1
    while offset < total:
        info = await ask({"subjects_filter": subjects, "offset": offset})
        page: dict[str, int] = info["state"].get("subjects") or {}
        yield info, page
        offset, total = offset + len(page), info.get("total", 0) if page else 0


async def api(
    connection: Connection, name: str, stream: str, request: object, wait_s: float
) -> dict[str, Any]:
    """Ask until there is an answer, such as `api(connection, "STREAM.INFO", "T", {}, 5)`.

    Raises:
        Rejected: the servers refuse it, and will.
        JournalLost: there was no answer within `wait_s` seconds.
    """
    body = msgspec.json.encode(request)

    async def ask(answer_s: float) -> dict[str, Any]:
        reply = await connection.request(f"$JS.API.{name}.{stream}", body, answer_s)
        answer = decoded_answer(reply.body)
        if (error := answer.get("error")) is None:
            return answer
        rejected = Rejected(error, stream)
        if rejected.may_pass and rejected.code != STREAM_NOT_FOUND:
            raise PassingError(rejected.strerror)
        raise rejected

    return await until_heard(connection, ask, wait_s, _NOT_ENABLED)


async def at_leader(
    connection: Connection,
    stream: str,
    request: Mapping[str, object],
    wait_s: float = limits.MONITOR_S,
) -> Reply | None:
    """Returns one message as the stream's leader has it, with the headers of a direct read.

    None if it has none such.

    Raises:
        Rejected: the servers refuse it, and will.
        JournalLost: there was no answer within `wait_s` seconds.
    """
    try:
        answer = await api(connection, "STREAM.MSG.GET", stream, request, wait_s)
    except Rejected as error:
        if error.code in {NO_MESSAGE_FOUND, SEQUENCE_NOT_FOUND}:
            return None
        raise
    message = answer["message"]
    headers = headers_in(base64.b64decode(message.get("hdrs", "")))
    headers |= {
        SEQUENCE: str(message["seq"]), SUBJECT: message["subject"], TIME: message["time"],
    }  # fmt: skip
    return Reply(headers, base64.b64decode(message.get("data", "")))


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
        before = found[-1].headers[SEQUENCE] if found else "0"
        if reply.headers.get("Nats-Last-Sequence") != before:
            break
        found.append(reply)
    return found
