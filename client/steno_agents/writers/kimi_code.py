"""Sessions of Kimi Code: a folder with the messages and the state.

    state.json                  directory, times and title
    agents/main/wire.jsonl      `metadata`, and a `context.append_message` for each message

Kimi Code finds a session by its folder, in the folder of the directory, whose name has the
directory's last part and a hash of the whole.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final, assert_never

from steno_agents.writers.turns import Answer, Call, Picture, Piece, Prompt, Result, Turn
from steno_agents.writers.writer import Home, Record, Target, Writer, as_json, lines

_SLUG_CHARS: Final = 40
_HASH_CHARS: Final = 12


class KimiCodeWriter(Writer):
    """Writes `sessions/wd_<directory>_<hash>/session_<session>`."""

    program: ClassVar[str] = "Kimi Code"
    home: ClassVar[Home] = Home("KIMI_CODE_HOME", ".kimi-code")
    takes_links: ClassVar[bool] = True
    is_folder: ClassVar[bool] = True

    def place(self, target: Target) -> str:
        """The folder in that of the directory."""
        work_dir = target.work_dir.rstrip("/")
        slug = re.sub(r"[^a-z0-9._-]+", "-", work_dir.rpartition("/")[2].lower()).strip("-")
        slug = slug[:_SLUG_CHARS].strip("-")
        slug = "workspace" if slug in {"", ".", ".."} else slug
        digest = hashlib.sha256(work_dir.encode(errors="surrogateescape")).hexdigest()
        return f"sessions/wd_{slug}_{digest[:_HASH_CHARS]}/{_name(target)}"

    def files(self, turns: Sequence[Turn], target: Target) -> Mapping[str, bytes]:
        """The messages, and then the state, by which the session is found."""
        return {
            "agents/main/wire.jsonl": lines(_records(turns, target)),
            "state.json": as_json(_state(turns, target)) + b"\n",
        }

    def command(
        self,
        target: Target,
        path: str,  # noqa: ARG002  # the session is found by its id
    ) -> Sequence[Sequence[str]]:
        """`kimi -r`."""
        return [["kimi", "-r", _name(target)]]


def _name(target: Target) -> str:
    return f"session_{target.session}"


def _state(turns: Sequence[Turn], target: Target) -> Record:
    state: Record = {
        "id": _name(target), "version": 2, "cwd": target.work_dir,
        "createdAt": turns[0].at_ms if turns else target.now_ms, "updatedAt": target.now_ms,
        "archived": False, "agents": {"main": {"type": "main"}}, "custom": {},
        "isCustomTitle": target.title is not None,
    }  # fmt: skip
    return state if target.title is None else {**state, "title": target.title}


def _records(turns: Sequence[Turn], target: Target) -> Iterator[Record]:
    begun = turns[0].at_ms if turns else target.now_ms
    yield {"type": "metadata", "protocol_version": "1.5", "created_at": begun}
    for turn in turns:
        yield {
            "type": "context.append_message", "agentId": "main", "message": _message(turn),
            "time": turn.at_ms,
        }  # fmt: skip


def _message(turn: Turn) -> Record:
    match turn:
        case Prompt(pieces):
            content = [_part(each) for each in pieces]
            return {"role": "user", "content": content, "toolCalls": [],
                    "origin": {"kind": "user"}}  # fmt: skip
        case Answer(texts, calls):
            content = [_part(each) for each in texts]
            called = [_call(each) for each in calls]
            return {"role": "assistant", "content": content, "toolCalls": called}
        case Result(call, pieces, failed):
            message: Record = {
                "role": "tool", "content": [_part(each) for each in pieces], "toolCalls": [],
                "toolCallId": call.identity,
            }  # fmt: skip
            return {**message, "isError": True} if failed else message
        case _ as never:
            assert_never(never)


def _call(call: Call) -> Record:
    arguments = as_json(call.arguments).decode()
    return {"type": "function", "id": call.identity, "name": call.name, "arguments": arguments}


def _part(piece: Piece) -> Record:
    if isinstance(piece, Picture):
        return {"type": "image_url", "imageUrl": {"url": piece.url}}
    return {"type": "text", "text": piece}
