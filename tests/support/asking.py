"""Requests of one client to a daemon in this process."""

from typing import TypeVar

from steno_protocol.commands import Command
from steno_protocol.events import AnyEvent
from steno_protocol.messages import encode_request
from steno_protocol.replies import AnyReply
from support.daemon_in_process import DaemonInProcess

T = TypeVar("T")


def send(
    daemon: DaemonInProcess,
    name: str | bytes,
    command: Command,
    *records: bytes,
    user: str | None = None,
) -> None:
    """Send a request with the id `name`; `user` is the key of a remote client."""
    daemon.handle(encode_request(_id(name), command, records), user=user)


async def ask(
    daemon: DaemonInProcess,
    name: str | bytes,
    command: Command,
    *records: bytes,
    user: str | None = None,
) -> AnyReply | AnyEvent:
    """Send a request, and return its first answer."""
    send(daemon, name, command, *records, user=user)
    await daemon.wait_for_answer(_id(name))
    return daemon.answers[_id(name)][0]


async def ask_for(
    kind: type[T], daemon: DaemonInProcess, name: str | bytes, command: Command, *records: bytes
) -> T:
    """Send a request, and return its first answer, which is of a kind."""
    answer = await ask(daemon, name, command, *records)
    assert isinstance(answer, kind), answer
    return answer


async def close_all(daemon: DaemonInProcess) -> None:
    """Close every session as after a long idle time."""
    daemon.now_s += 1e6
    daemon.registry.retire_idle()
    assert len(daemon.registry) == 0
    await daemon.registry.wait_quiet()


def _id(name: str | bytes) -> bytes:
    return name.encode() if isinstance(name, str) else name
