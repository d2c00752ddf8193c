"""Generated messages to a daemon's router, which answers each with a type."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from fuzz.gate import EVENTS, MESSAGES
from fuzz.mutation import mutated
from fuzz.source import Source
from steno_protocol import paths
from steno_protocol.commands import COMMANDS, AnyCommand, Drain, Grant
from steno_protocol.errors import StenoError
from steno_protocol.messages import (
    OutgoingRequest,
    Request,
    Unreadable,
    decode_requests,
    encode_requests,
)
from steno_protocol.records import is_message_role
from steno_protocol.replies import Ack, ErrorReply
from support.daemon_in_process import MOUNTED, ROOT, DaemonInProcess
from support.simulated_disk import SimulatedDisk

MESSAGES_MAX = 12
"""Messages of one case: enough for one to meet the effects of another."""

RECORDS = {"append": MESSAGES, "append_wire": EVENTS, "compact_commit": MESSAGES}
_CONTROL_ROLES = {"_checkpoint", "_usage", "_system_prompt"}

_VALUES: dict[str, Sequence[Any]] = {
    "session": ("demo", "demo", "demo", "other", "a/b", "demo/subagents/x", "../x", "", "kimi:a/b"),
    "new_session": ("copy", "demo", "a/b/c", "demo/below"),
    "key": ("k0", "k1", "k2", "0199f1c2-5b22-7e42-8000-0f1e2d3c4b5a", "a b"),
    "position": ("0:0", "0:1", "1:0", "1:2", "0:999999999999999", "7:0", "-1:0", "00:1"),
    "number": (0, 1, 2, -1, 1, 2**53, 2**53 + 1, 2**64, 1.5, None, True),
    "text": ("", "hi", "\u2028", "\0", "\ud7ff", "x" * 300, "\n"),
    "odd": (None, [], {}, "x", 0, False, [1], {"a": 1}, "written", "synced"),
}

_KINDS = {
    "session": "session", "new_session": "new_session", "key": "key", "lease": "key",
    "mail_id": "key", "subscription": "key", "replaces": "key", "expect": "position",
    "after": "position", "until": "position", "at": "position", "cut": "position",
    "by": "key", "name": "key", "why": "text", "title": "text", "prompt": "text",
    "message": "text", "prefix": "text", "durability": "odd", "labels": "odd", "archived": "odd",
    "file": "odd", "incarnation": "text",
}  # fmt: skip


def check(data: bytes) -> bool:
    """Send a few generated messages to a daemon; True if it took any of them as a request.

    Raises:
        AssertionError: one got no typed answer, a file holds a bad line, or the daemon is dead.
    """
    sent = list(messages(Source(data)))
    anyio.run(_play, sent)
    return any(each.commands for each in sent)


@dataclass(frozen=True, slots=True)
class Sent:
    """One message, and the requests that the decoder finds in it."""

    frames: list[bytes]
    found: Sequence[Request | Unreadable]

    @property
    def commands(self) -> list[AnyCommand]:
        """The commands in it."""
        return [each.command for each in self.found if isinstance(each, Request)]

    @property
    def answered(self) -> list[bytes]:
        """Ids of the requests that get an answer."""
        silent = {
            each.id
            for each in self.found
            if isinstance(each, Request) and isinstance(each.command, (Grant, Drain))
        }
        return [each.id for each in self.found if each.id not in silent]


def messages(source: Source) -> Iterator[Sent]:
    """A few messages, each nearly right."""
    for number in range(1 + source.number(MESSAGES_MAX)):
        frames = _frames(source, b"m%d" % number)
        try:
            yield Sent(frames, decode_requests(frames))
        except StenoError:
            yield Sent(frames, [])


def _frames(source: Source, request_id: bytes) -> list[bytes]:
    requests = [_request(source, request_id)]
    if source.flip(4):
        status = OutgoingRequest(b"beside-%b" % request_id, b'{"command":"status"}')
        requests.insert(source.number(2), status)
    frames = encode_requests(requests)
    match source.number(24):
        case 0 if len(frames) > 1:
            frames.pop(source.number(len(frames)))
        case 1:
            frames[source.number(len(frames))] = source.take(12)
        case 2:
            frames.insert(source.number(len(frames)), source.take(12))
        case 3:
            place = source.number(len(frames))
            frames[place] = mutated(frames[place], source)
        case _:
            pass
    return frames


def _request(source: Source, request_id: bytes) -> OutgoingRequest:
    name = source.pick(tuple(COMMANDS))
    records = [
        mutated(source.pick(RECORDS[name]), source) if source.flip() else source.pick(RECORDS[name])
        for _ in range(source.number(4) if name in RECORDS else source.flip(16))
        if name in RECORDS
    ]
    return OutgoingRequest(request_id, _header(source, name), records)


def _header(source: Source, name: str) -> bytes:
    fields = {"command": name}
    for field in COMMANDS[name].__struct_fields__:
        is_needed = field in {"session", "key", "lease", "subscription", "mail_id", "new_session"}
        if field == "deadline_ms" or not (is_needed or source.flip()):
            continue
        odd = "odd" if source.flip(16) else _KINDS.get(field, "number")
        fields[field] = source.pick(_VALUES[odd])
    header = json.dumps(fields).encode()
    return mutated(header, source) if source.flip(8) else header


async def _play(sent: Sequence[Sent]) -> None:
    disk = SimulatedDisk()
    daemon = DaemonInProcess(disk)
    async with daemon.running():
        for each in sent:
            daemon.handle(each.frames)
        for each in sent:
            for request_id in each.answered:
                await daemon.wait_for_answer(request_id)
        is_drained = any(isinstance(command, Drain) for each in sent for command in each.commands)
        await _check_alive(daemon, is_drained=is_drained)
    assert not daemon.faults, daemon.faults
    for replies in daemon.answers.values():
        for reply in replies:
            assert not (isinstance(reply, ErrorReply) and reply.code == "internal"), reply
    for path, content in disk.tree().items():
        assert path.startswith((f"{ROOT}/", f"{MOUNTED}/")), path
        check_content(path, content)


async def _check_alive(daemon: DaemonInProcess, *, is_drained: bool) -> None:
    header = json.dumps({"command": "append", "session": "keeper", "key": "alive"}).encode()
    opening = json.dumps({"command": "open", "session": "keeper"}).encode()
    for name, command, taken in ((b"last-1", opening, []), (b"last-2", header, [MESSAGES[0]])):
        daemon.handle(encode_requests([OutgoingRequest(name, command, taken)]))
        await daemon.wait_for_answer(name)
    answer = daemon.answers[b"last-2"][0]
    if is_drained:
        assert isinstance(answer, ErrorReply), answer
        assert answer.code == "shutting_down", answer
    else:
        assert isinstance(answer, Ack), answer


def check_content(path: str, content: bytes) -> None:
    """Check that a file of a session holds only whole records of known roles.

    Raises:
        AssertionError: it holds something else.
    """
    if not path.endswith(".jsonl"):
        return
    assert content == b"" or content.endswith(b"\n"), path
    for line in content.split(b"\n")[:-1]:
        record = json.loads(line.decode("utf-8"))
        assert isinstance(record, dict), (path, line)
        if path.rpartition("/")[2].startswith(paths.CONTEXT.partition(".")[0]):
            role = record["role"]
            assert role in _CONTROL_ROLES or is_message_role(role), (path, line)
