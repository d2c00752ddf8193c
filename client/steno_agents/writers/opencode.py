"""Sessions of opencode: a file that `opencode import` reads into its database.

An answer has its calls and their results as parts. opencode sorts messages by their times, and
parts by their ids, which begin with a time in hexadecimal digits.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

from steno_agents.transcript import object_field, objects
from steno_agents.writers.turns import Answer, Picture, Piece, Prompt, Result, Turn
from steno_agents.writers.writer import (
    Home,
    Record,
    Target,
    Writer,
    as_json,
    pictures_of,
    text_of_pieces,
)

_COUNTED: Final = 0x1000
"""Ids in one millisecond."""

_TIME_BITS: Final = 48
_RANDOM_CHARS: Final = 14
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

_MODEL: Record = {"providerID": "unknown", "modelID": "unknown"}
_TOKENS: Record = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}


class OpencodeWriter(Writer):
    """Writes a file, beside the database, for `opencode import`."""

    program: ClassVar[str] = "opencode"
    home: ClassVar[Home] = Home("XDG_DATA_HOME", ".local/share")

    def place(self, target: Target) -> str:
        """The file in the folder of opencode."""
        return f"opencode/steno/{_session(target)}.json"

    def files(self, turns: Sequence[Turn], target: Target) -> Mapping[str, bytes]:
        """The session with its messages."""
        begun = turns[0].at_ms if turns else target.now_ms
        last = turns[-1].at_ms if turns else target.now_ms
        info: Record = {
            "id": _session(target), "slug": f"steno-{target.session.hex[:12]}",
            "projectID": "global", "directory": target.work_dir, "version": "1.18.33",
            "title": target.title or "A session of steno", "time": {"created": begun,
                                                                   "updated": last},
        }  # fmt: skip
        return {"": as_json({"info": info, "messages": list(_messages(turns, target))}) + b"\n"}

    def command(self, target: Target, path: str) -> Sequence[Sequence[str]]:
        """`opencode import`, and then `opencode --session`."""
        return [["opencode", "import", path], ["opencode", "--session", _session(target)]]


class _Ids:
    """Ids that rise."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._last = 0

    def next(self, prefix: str, at_ms: int) -> str:
        """An id behind all earlier ones."""
        self._last = max(self._last + 1, at_ms * _COUNTED)
        return _identity(prefix, self._last, self._target.identity(self._last).int)


def _messages(turns: Sequence[Turn], target: Target) -> Iterator[Record]:
    ids = _Ids(target)
    results = {each.call.identity: each for each in turns if isinstance(each, Result)}
    prompt: str | None = None
    for turn in turns:
        if isinstance(turn, Result):
            continue
        message = ids.next("msg", turn.at_ms)
        if isinstance(turn, Prompt):
            prompt = message
            info: Record = {"role": "user", "time": {"created": turn.at_ms}, "agent": "build",
                            "model": _MODEL}  # fmt: skip
            parts = [_part(each) for each in turn.pieces]
        else:
            answered = [results[each.identity] for each in turn.calls]
            ended = max([turn.at_ms, *(each.at_ms for each in answered)])
            info = {
                "role": "assistant", "parentID": prompt or message, **_MODEL, "mode": "build",
                "agent": "build", "path": {"cwd": target.work_dir, "root": "/"}, "cost": 0,
                "tokens": _TOKENS, "time": {"created": turn.at_ms, "completed": ended},
                "finish": "tool-calls" if turn.calls else "stop",
            }  # fmt: skip
            parts = [{"type": "step-start"}, *(_part(each) for each in turn.texts)]
            parts += [_tool(turn, each) for each in answered]
        of = {"messageID": message, "sessionID": _session(target)}
        yield {
            "info": {**info, "id": message, "sessionID": _session(target)},
            "parts": [_placed(each, of, ids, turn.at_ms) for each in parts],
        }


def _placed(part: Record, of: Record, ids: _Ids, at_ms: int) -> Record:
    """A part with its ids; the images of a result are parts, too."""
    placed = {**part, "id": ids.next("prt", at_ms), **of}
    state = object_field(placed, "state")
    if images := objects(state.get("attachments")):
        attachments = [_placed(each, of, ids, at_ms) for each in images]
        placed["state"] = {**state, "attachments": attachments}
    return placed


def _tool(turn: Answer, result: Result) -> Record:
    """A call with its result."""
    call, text = result.call, text_of_pieces(result.pieces)
    time = {"start": turn.at_ms, "end": result.at_ms}
    if result.failed:
        state: Record = {"status": "error", "input": call.arguments, "error": text, "time": time}
    else:
        state = {"status": "completed", "input": call.arguments, "output": text, "title": call.name,
                 "metadata": {}, "time": time}  # fmt: skip
        if pictures := pictures_of(result.pieces):
            state["attachments"] = [_part(each) for each in pictures]
    return {"type": "tool", "tool": call.name, "callID": call.identity, "state": state}


def _part(piece: Piece) -> Record:
    if isinstance(piece, Picture):
        return {"type": "file", "mime": piece.media, "filename": "image", "url": piece.url}
    return {"type": "text", "text": piece}


def _session(target: Target) -> str:
    # The ids of sessions fall, so that the newest one is the first.
    falling = (1 << _TIME_BITS) - 1 - (target.now_ms * _COUNTED) % (1 << _TIME_BITS)
    return _identity("ses", falling, target.session.int)


def _identity(prefix: str, count: int, random: int) -> str:
    digits = ""
    for _ in range(_RANDOM_CHARS):
        random, digit = divmod(random, len(_DIGITS))
        digits += _DIGITS[digit]
    return f"{prefix}_{count % (1 << _TIME_BITS):012x}{digits}"
