"""Sessions of pi: a head, and entries that are a chain.

An answer names the model that gave it. pi would go on with a model that a `model_change` names, so
there is none here, and the user's own model goes on.
"""

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar, assert_never

from steno_agents.transcript import iso
from steno_agents.writers.turns import Answer, Picture, Piece, Prompt, Result, Turn
from steno_agents.writers.writer import Home, LinesWriter, Record, Target

_USAGE: Record = {
    "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0,
    "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0},
}  # fmt: skip


class PiWriter(LinesWriter):
    """Writes `sessions/--<directory>--/<time>_<session>.jsonl`."""

    program: ClassVar[str] = "pi"
    resume: ClassVar[Sequence[str]] = ("pi", "--session")
    home: ClassVar[Home] = Home("PI_CODING_AGENT_DIR", ".pi/agent")

    def place(self, target: Target) -> str:
        """The file in the folder of the directory."""
        folder = re.sub(r"[/\\:]", "-", target.work_dir.lstrip("/"))
        when = re.sub(r"[:.]", "-", iso(target.now_ms))
        return f"sessions/--{folder}--/{when}_{target.session}.jsonl"

    def records(self, turns: Sequence[Turn], target: Target) -> Iterator[Record]:
        """The records of the session, one a line."""
        yield {
            "type": "session", "version": 3, "id": str(target.session),
            "timestamp": iso(turns[0].at_ms if turns else target.now_ms), "cwd": target.work_dir,
        }  # fmt: skip
        parent: str | None = None
        entries: list[tuple[str, int, Record]] = [
            ("message", turn.at_ms, {"message": {**_message(turn), "timestamp": turn.at_ms}})
            for turn in turns
        ]
        if target.title is not None:
            last_ms = turns[-1].at_ms if turns else target.now_ms
            entries.append(("session_info", last_ms, {"name": target.title}))
        for number, (kind, at_ms, fields) in enumerate(entries):
            identity = target.identity(number).hex
            yield {
                "type": kind, "id": identity, "parentId": parent, "timestamp": iso(at_ms), **fields
            }  # fmt: skip
            parent = identity


def _message(turn: Turn) -> Record:
    match turn:
        case Prompt(pieces):
            return {"role": "user", "content": [_part(each) for each in pieces]}
        case Answer(texts, calls):
            said = [_part(each) for each in texts]
            called = [
                {"type": "toolCall", "id": each.identity, "name": each.name,
                 "arguments": each.arguments}
                for each in calls
            ]  # fmt: skip
            return {
                "role": "assistant", "content": [*said, *called], "api": "unknown",
                "provider": "unknown", "model": "unknown", "usage": _USAGE,
                "stopReason": "toolUse" if calls else "stop",
            }  # fmt: skip
        case Result(call, pieces, failed):
            return {
                "role": "toolResult", "toolCallId": call.identity, "toolName": call.name,
                "content": [_part(each) for each in pieces], "isError": failed,
            }  # fmt: skip
        case _ as never:
            assert_never(never)


def _part(piece: Piece) -> Record:
    if isinstance(piece, Picture):
        return {"type": "image", "data": piece.data, "mimeType": piece.media}
    return {"type": "text", "text": piece}
