"""Sessions of Claude Code: one file in the folder of the directory, its records a chain.

Each part of an answer is a record of its own with the same `message.id`, as Claude Code writes
them; a result is a record of the user. `custom-title` names the session.
"""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, assert_never

from steno_agents.transcript import iso
from steno_agents.writers.turns import Answer, Picture, Piece, Prompt, Result, Turn
from steno_agents.writers.writer import Home, LinesWriter, Record, Target, content_of, dashed

_NAME_CHARS: Final = 200
"""Characters of a folder's name; a longer one is cut, and ends with a hash of the whole path."""

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class ClaudeCodeWriter(LinesWriter):
    """Writes `projects/<directory>/<session>.jsonl`."""

    program: ClassVar[str] = "Claude Code"
    resume: ClassVar[Sequence[str]] = ("claude", "--resume")
    home: ClassVar[Home] = Home("CLAUDE_CONFIG_DIR", ".claude")
    takes_links: ClassVar[bool] = True

    def place(self, target: Target) -> str:
        """The file in the folder of the directory."""
        name = dashed(target.work_dir)
        if len(name) > _NAME_CHARS:
            name = f"{name[:_NAME_CHARS]}-{_hashed(target.work_dir)}"
        return f"projects/{name}/{target.session}.jsonl"

    def records(self, turns: Sequence[Turn], target: Target) -> Iterator[Record]:
        """The records of the session, one a line."""
        parent: str | None = None
        number = 0
        for turn in turns:
            group = f"msg_{target.identity(number).hex}"
            for kind, message in _messages(turn, group):
                uuid = str(target.identity(number))
                number += 1
                yield {
                    "parentUuid": parent,
                    "isSidechain": False,
                    "userType": "external",
                    "cwd": target.work_dir,
                    "sessionId": str(target.session),
                    "version": "2.1.332",
                    "type": kind,
                    "message": message,
                    "uuid": uuid,
                    "timestamp": iso(turn.at_ms),
                }
                parent = uuid
        if target.title is not None:
            yield {
                "type": "custom-title",
                "customTitle": target.title,
                "sessionId": str(target.session),
            }


def _messages(turn: Turn, group: str) -> Iterator[tuple[str, Record]]:
    match turn:
        case Prompt(pieces):
            yield "user", {"role": "user", "content": content_of(pieces, _part)}
        case Answer(texts, calls):
            parts: list[Record] = [{"type": "text", "text": each} for each in texts]
            parts += [
                {"type": "tool_use", "id": each.identity, "name": each.name,
                 "input": each.arguments}
                for each in calls
            ]  # fmt: skip
            stop = "tool_use" if calls else "end_turn"
            for part in parts:
                yield "assistant", {
                    "id": group, "type": "message", "role": "assistant", "model": "unknown",
                    "content": [part], "stop_reason": stop, "stop_sequence": None,
                    "usage": {"input_tokens": 0, "output_tokens": 0},
                }  # fmt: skip
        case Result(call, pieces, failed):
            result: dict[str, Any] = {
                "type": "tool_result", "tool_use_id": call.identity,
                "content": content_of(pieces, _part),
            }  # fmt: skip
            part = {**result, "is_error": True} if failed else result
            yield "user", {"role": "user", "content": [part]}
        case _ as never:
            assert_never(never)


def _part(piece: Piece) -> Record:
    match piece:
        case str():
            return {"type": "text", "text": piece}
        case Picture(media, data, ""):
            source = {"type": "base64", "media_type": media, "data": data}
        case Picture(link=link):
            source = {"type": "url", "url": link}
    return {"type": "image", "source": source}


def _hashed(path: str) -> str:
    """The hash of a long path, in base 36: of its UTF-16 units, as Java hashes texts."""
    found = 0
    units = path.encode("utf-16-le")
    for at in range(0, len(units), 2):
        found = (found * 31 + int.from_bytes(units[at : at + 2], "little")) & 0xFFFFFFFF
    found = abs(found - (1 << 32) if found >> 31 else found)
    digits = ""
    while found:
        found, digit = divmod(found, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits or "0"
