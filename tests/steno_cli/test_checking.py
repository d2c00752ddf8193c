"""The reports of `verify` on many sessions, with calls found in the checked bytes."""

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

import steno
from steno import BlockingClient, NotFound
from steno.local import make_target
from steno.parts import BlockingLink
from steno_cli.command_limits import VERIFICATIONS_AHEAD_MAX
from steno_cli.connection import answers
from steno_cli.repair.checking import verify_sessions
from steno_cli.session_files import SessionFiles
from steno_protocol.commands import Stat
from steno_protocol.replies import SessionStat, Verification

pytestmark = pytest.mark.usefixtures("daemon")

CALL = {"id": "one", "function": {"name": "Shell", "arguments": "{}"}}
TURN = [
    {"role": "user", "content": "list"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
]


def _reports(root: Path, *sessions: str) -> list[Any]:
    link = BlockingLink(make_target(root, None, None, spawn=False), 60)
    with BlockingClient(link) as client:
        return [*verify_sessions(client, link, sessions)]


def _append(root: Path, *sessions: str) -> None:
    with steno.connect_sync(root, spawn=False) as client:
        for session in sessions:
            client.open(session, follow=False).append_message(TURN)


def _open_calls(report: Verification) -> list[int | None]:
    return [each.line for each in report.findings if each.kind == "open_call"]


def test_every_session_has_its_report_beside_one_that_is_missing(root: Path) -> None:
    ids = [f"s{number:02}" for number in range(2 * VERIFICATIONS_AHEAD_MAX)]
    _append(root, *ids)
    asked = [*ids[:3], "missing", *ids[3:]]
    reports = _reports(root, *asked)
    assert isinstance(reports[3], NotFound)
    found = [each for each in reports if isinstance(each, Verification)]
    assert [each.session for each in found] == ids
    assert all(_open_calls(each) == [2] for each in found)


def test_calls_are_found_without_another_request(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _append(root, "demo")
    monkeypatch.delattr(BlockingClient, "session")
    [report] = _reports(root, "demo")
    assert _open_calls(report) == [2]


def test_a_file_with_other_bytes_than_the_checked_ones_is_not_used(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _append(root, "demo")
    size = (root / "sessions" / "demo" / "context.jsonl").stat().st_size

    def other_bytes(files: SessionFiles, session: str) -> BytesIO:
        del files, session
        return BytesIO(b"\n" * size)

    monkeypatch.setattr(SessionFiles, "open_context", other_bytes)
    [report] = _reports(root, "demo")
    assert _open_calls(report) == [2]


def test_a_line_that_readers_skip_has_no_calls(root: Path) -> None:
    _append(root, "demo")
    file = root / "sessions" / "demo" / "context.jsonl"
    with file.open("ab") as appended:
        appended.write(
            b'{"role":"assistant","content":"\xff","tool_calls":[{"id":"two","function":{}}]}\n'
            b'{"role":"user","content":"next"}\n'
        )
    [report] = _reports(root, "demo")
    assert [each.kind for each in report.findings] == ["bad_utf8", "open_call"]
    assert _open_calls(report) == [2]


class _Asked:
    """A link that notes what is sent and what is waited for."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def begin(self, command: Stat) -> Stat:
        self.steps.append(f"send {command.session}")
        return command

    def finish(self, command: Stat, kind: type[Any]) -> tuple[Any, bytes]:
        del kind
        self.steps.append(f"wait {command.session}")
        if command.session == "b":
            raise NotFound("there is no such session")
        return command.session, b""


def test_the_next_requests_are_sent_before_a_reply_is_awaited() -> None:
    link: Any = _Asked()
    asked = [Stat(session=session) for session in "abcd"]
    found = [*answers(link, asked, SessionStat, 2)]
    assert [str(each) for each in found] == ["a", "there is no such session", "c", "d"]
    assert link.steps == [
        "send a", "send b", "send c", "wait a", "send d", "wait b", "wait c", "wait d",
    ]  # fmt: skip
