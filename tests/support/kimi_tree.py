"""A session tree of kimi-cli with every kind of file."""

import hashlib
import json
import uuid
from dataclasses import dataclass
from pathlib import Path

_THOUGHT = (
    '{"role":"assistant","content":[{"type":"think","think":"hm","encrypted":null},'
    '{"type":"text","text":"Hello"}],"tool_calls":[{"type":"function","id":"c1",'
    '"function":{"name":"Shell","arguments":"{}"}}]}'
)
_RESULT = (
    '{"role":"tool","content":"done","tool_call_id":"c1",'
    '"mood":{"n":1.50,"big":12345678901234567890}}'
)
_CONTEXT = [
    '{"role": "_system_prompt", "content": "You are an agent."}',
    '{"role": "_checkpoint", "id": 0}',
    '{"role":"user","content":"naïve 漢 \u2028 text"}',
    '{"role": "_checkpoint", "id": 1}',
    _THOUGHT,
    '{"role": "_usage", "token_count": 1472}',
    _RESULT,
]

STRANGE = b'{"role":"user","content":[{"type":"hologram","beam":[1,2]}],"_mark":"kept"}\n'
"""A message that a later kimi-cli might write: its own restore would stop at it."""

_WIRE = [
    {"type": "metadata", "protocol_version": "1.10", "later": True},
    {"timestamp": 1.5, "message": {"type": "TurnBegin", "payload": {"user_input": "hi"}}},
    {"timestamp": 2.5, "message": {"type": "NotYetKnown", "payload": {"x": [1]}}},
]


@dataclass(frozen=True, slots=True)
class KimiSession:
    """One session of the tree: its id below the tree, and its folder."""

    id: str
    folder: Path

    @property
    def context(self) -> Path:
        """Its context file."""
        return self.folder / "context.jsonl"

    def bytes(self) -> dict[str, bytes]:
        """Every file in its folder."""
        return {file.name: file.read_bytes() for file in self.folder.iterdir() if file.is_file()}


def plant(tree: Path, *, strange: bool) -> list[KimiSession]:
    """Two work folders with two sessions each, and a sub-agent in the first of them."""
    sessions: list[KimiSession] = []
    for number in range(2):
        work = hashlib.md5(f"project {number}".encode(), usedforsecurity=False).hexdigest()
        for name in range(2):
            session = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{number}/{name}"))
            sessions.append(_plant(tree, f"{work}/{session}", strange=strange))
    sessions.append(_plant(tree, f"{sessions[0].id}/subagents/a1b2", strange=strange))
    return sorted(sessions, key=lambda session: session.id)


def _plant(tree: Path, session: str, *, strange: bool) -> KimiSession:
    folder = tree / session
    folder.mkdir(parents=True)
    (folder / "context.jsonl").write_bytes(
        "".join(f"{line}\n" for line in _CONTEXT).encode() + STRANGE * strange
    )
    (folder / "wire.jsonl").write_text("".join(json.dumps(line) + "\n" for line in _WIRE))
    (folder / "state.json").write_text('{"title": "a title", "archived": false, "todos": []}')
    return KimiSession(session, folder)


def furnish(session: KimiSession) -> None:
    """Add all else that kimi-cli keeps in a session's folder, and files that look like a session's.

    Its `state.json` gets the bytes that kimi-cli writes, which are not those of another encoder.
    """
    events = [
        {"type": "metadata", "protocol_version": "1.10"},
        {"timestamp": 1.5, "message": {"type": "TurnBegin", "payload": {"user_input": [
            {"type": "text", "text": "<uploaded_files>uploads/picture.png</uploaded_files>"}]}}},
    ]  # fmt: skip
    files: dict[str, bytes] = {
        "state.json": json.dumps(
            {"version": 1, "custom_title": "Gerät", "additional_dirs": [], "todos": []}, indent=2
        ).encode(),
        "wire.jsonl": "".join(json.dumps(line) + "\n" for line in events).encode(),
        "context_1.jsonl": b'{"role": "user", "content": "before the revert"}\n\n',
        "context_2.jsonl": b'{"role": "user", "content": "before the next one"}\nno record\n',
        "context_sub_1.jsonl": b'{"role": "user", "content": "of an old subagent"}\n',
        "uploads/picture.png": b"\x89PNG\n\x00",
        "uploads/.sent": b'["picture.png"]',
        "uploads/nested/context.jsonl": b"an upload",
        "tasks/bash-1/spec.json": b'{"version": 1}',
        "tasks/bash-1/output.log": b"\xff not UTF-8",
        "subagents/a1b2/context.jsonl": b'{"role": "user", "content": "look"}\n',
        "subagents/a1b2/context_1.jsonl": b'{"role": "user", "content": "earlier"}\n',
        "subagents/a1b2/meta.json": b'{"agent_id": "a1b2"}',
        "subagents/a1b2/output": b"found it",
    }
    for name, content in files.items():
        path = session.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (session.folder / "notifications").mkdir()


def tree_of(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its bytes, and every folder with None."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }
