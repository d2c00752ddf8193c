"""A daemon whose file calls fail one by one.

Afterwards the caller knew the truth, the session is as before or as after, and the same command
with the same key ends in the after state. An eighth of all faults is tried; all of them with
STENO_EVERY_FAULT=1.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import steno
from e2e.system_calls import STRACE, Traced
from steno_protocol.commands import CompactBegin, CompactCommit
from steno_protocol.errors import Outcome
from steno_protocol.replies import Ack, Compaction
from support.messages import message

pytestmark = pytest.mark.skipif(STRACE is None, reason="strace is not there to make calls fail")

FAULTS = ("signal=KILL", "error=EIO", "error=ENOSPC")
EVERY = 1 if os.environ.get("STENO_EVERY_FAULT") else 8

Do = Callable[[steno.BlockingSession], object]


@dataclass(frozen=True, slots=True)
class Operation:
    """Something a client does once, with one key."""

    name: str
    do: Do


def _compact(session: steno.BlockingSession) -> object:
    commit = CompactCommit(
        session=session.id, key="the-key", lease="the-key", cut="0:2", at="0:9",
        checkpoint_id=2, summary_tokens=3,
    )  # fmt: skip
    return session._link.request(commit, Ack, [b'{"role":"user","content":"in short"}'])


OPERATIONS = (
    Operation("append", lambda s: s.append_message([message("a"), message("b")], key="the-key")),
    Operation("checkpoint", lambda s: s.checkpoint(True, key="the-key")),
    Operation("usage", lambda s: s.update_token_count(12, key="the-key")),
    Operation("prompt", lambda s: s.write_system_prompt("be brief", key="the-key")),
    Operation("revert", lambda s: s.revert_to(1, key="the-key")),
    Operation("clear", lambda s: s.clear(key="the-key")),
    Operation("restore", lambda s: s.restore_generation(0, key="the-key")),
    Operation("compact", _compact),
    Operation("send", lambda s: s.send_dmail(0, "go left", key="the-key")),
    Operation("deliver", lambda s: s.deliver_dmail("the-mail", key="the-key")),
    Operation(
        "wire", lambda s: s.append_wire("TurnBegin", {}, 1.0, key="the-key", durability="synced")
    ),
    Operation("fork", lambda s: s.fork(f"{s.id}-fork", key="the-key")),
)


def prepare(client: steno.BlockingClient, name: str, operation: Operation) -> steno.BlockingSession:
    """A session in which the operation can be done."""
    session = client.open(name, follow=False)
    if operation.name == "restore":
        session.append_message(message("long ago"), key="k-old")
        session.clear(key="k-clear")
    session.append_message([message("one"), message("two")], key="k1")
    session.checkpoint(key="k2")
    session.append_message([message("three"), {"role": "assistant", "content": "four"}], key="k3")
    session.checkpoint(True, key="k4")
    session.append_message([message("five"), {"role": "assistant", "content": "six"}], key="k5")
    if operation.name == "deliver":
        session.send_dmail(1, "go right", key="the-mail")
    if operation.name == "compact":
        session._link.ask(CompactBegin(session=name, lease="the-key"), Compaction)
    if operation.name == "wire":
        session.append_wire("TurnBegin", {"user_input": "x"}, 1.0, key="w", durability="synced")
    return session


def content(folder: Path) -> dict[str, Any]:
    """The contents of a session's files, without parts that differ from run to run."""
    found: dict[str, Any] = {
        path.name: path.read_bytes() for path in folder.glob("*.jsonl") if path.stem != "timeline"
    }
    fork = folder.with_name(f"{folder.name}-fork")
    if (fork / "context.jsonl").exists():
        found["fork"] = (fork / "context.jsonl").read_bytes()
    kinds: list[str] = []
    for line in (folder / "timeline.jsonl").read_bytes().splitlines():
        kind = json.loads(line)["kind"]
        if kind == "voided":
            kinds.pop()
        elif kind != "repaired":
            kinds.append(kind)
    found["timeline"] = kinds
    return found


def faults(counts: dict[str, int]) -> Iterator[str]:
    cases = [
        f"{call}:{fault}:when={number}"
        for call, count in sorted(counts.items())
        for number in range(1, count + 1)
        for fault in FAULTS
    ]
    yield from cases[::EVERY]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
@pytest.mark.slow
def test_a_daemon_whose_calls_fail_one_by_one_tells_the_truth(
    root: Path, tmp_path: Path, operation: Operation
) -> None:
    with steno.connect_sync(root, name="tester") as client:
        session = prepare(client, "reference", operation)
        folder = Path(session.stat().folder)
        before = content(folder)
        with Traced(client.welcome.pid, folder, tmp_path / "counts") as traced:
            operation.do(session)
        after = content(folder)
        assert after != before
        cases = list(faults(traced.counts()))
        assert cases
        for number, inject in enumerate(cases):
            session = prepare(client, f"case-{number}", operation)
            folder = Path(session.stat().folder)
            pid = client.welcome.pid
            outcome: Outcome | None = None
            with Traced(pid, folder, tmp_path / "report", inject):
                try:
                    operation.do(session)
                except steno.StenoError as error:
                    outcome = error.outcome
            now = content(folder)
            if outcome is None:
                assert now == after, f"{inject}: it was acknowledged"
            elif outcome is Outcome.NOT_APPLIED and client.welcome.pid == pid:
                assert now == before, f"{inject}: it was refused"
            operation.do(session)
            assert content(folder) == after, f"{inject}: it was repeated"
            assert session.append_message(message("on we go")).durability == "synced"
