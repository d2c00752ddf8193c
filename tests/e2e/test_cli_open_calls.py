"""Calls without a result: found, shown, and closed on demand."""

import json
from pathlib import Path

import pytest

from support.command import Steno
from support.session_files import records_in

pytestmark = pytest.mark.served

CALLS = [{"id": name, "function": {"name": "Shell", "arguments": "{}"}} for name in ("one", "two")]
TURN = [
    {"role": "user", "content": "list"},
    {"role": "assistant", "content": "", "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "two", "content": "b.txt"},
]


@pytest.fixture
def broken(root: Path) -> Steno:
    """A session whose program ended before the result of its first call."""
    steno = Steno(root)
    lines = "".join(json.dumps(each) + "\n" for each in TURN)
    assert steno("append", "demo", stdin=lines).code == 0
    return steno


def test_verify_notes_a_call_without_a_result(broken: Steno) -> None:
    ran = broken("verify", "demo")
    assert ran.code == 0
    assert ran.out == (
        "demo/context.jsonl:2: note: the call one of Shell has no result; unless it still runs,"
        " `steno repair demo --close-calls` closes it\n"
    )
    assert "no damage, 1 note" in ran.err
    checked = broken("verify", "demo", "--json").document
    assert (checked["damage"], checked["notes"]) == (0, 1)
    [finding] = checked["findings"]
    assert (finding["kind"], finding["remedy"], finding["line"]) == ("open_call", "close", 2)


def test_show_and_exports_name_a_call_without_a_result(broken: Steno) -> None:
    shown = broken("show", "demo")
    assert "── no result of Shell, called at 0:1 ─" in shown.out
    assert "1 call of demo has no result; if none still runs," in shown.err
    exported = broken("export", "demo")
    assert "No result of `Shell`, called at `0:1`." in exported.out
    assert "--close-calls` closes it" in exported.err
    assert "no result of Shell, called at 0:1" in broken("export", "demo", "--format", "html").out


def test_repair_closes_the_calls_once(root: Path, broken: Steno) -> None:
    ran = broken("repair", "demo", "--close-calls")
    assert (ran.code, ran.out) == (0, "0:3  Shell, called at 0:1\n")
    record = records_in(root, "demo")[-1]
    assert (record["role"], record["tool_call_id"], record["is_error"]) == ("tool", "one", True)
    assert "interrupted" in record["content"]
    again = broken("repair", "demo", "--close-calls")
    assert (again.code, again.out) == (0, "")
    assert "every call has a result" in again.err
    assert broken("verify", "demo").out == ""
    assert "no result" not in broken("show", "demo").out


def test_closing_as_json_is_a_repair(broken: Steno) -> None:
    closed = broken("repair", "demo", "--close-calls", "--json").document
    assert (closed["applied"], closed["head"], len(closed["findings"])) == (True, "0:4", 1)
    closed = broken("repair", "demo", "--close-calls", "--json").document
    assert (closed["applied"], closed["head"], closed["findings"]) == (False, None, [])


def test_a_fork_that_splits_a_call_says_it_and_can_close_it(root: Path, broken: Steno) -> None:
    assert broken("repair", "demo", "--close-calls").code == 0
    ran = broken("fork", "demo", "half", "--at", "0:3")
    assert (ran.code, ran.out) == (0, "half\n")
    assert "1 call of half has no result; if none still runs, `steno repair half --close" in ran.err
    assert "no result" not in broken("fork", "demo", "whole").err
    closed = broken("fork", "demo", "closed", "--at", "0:2", "--close-calls")
    assert "ends at 0:4" in closed.err
    assert [each.get("tool_call_id") for each in records_in(root, "closed")[2:]] == ["one", "two"]


@pytest.mark.parametrize("form", ["json", "jsonl", "markdown", "html"])
def test_an_export_can_close_the_calls(root: Path, broken: Steno, form: str) -> None:
    ran = broken("export", "demo", "--format", form, "--close-calls")
    assert ran.code == 0
    assert "no result" not in ran.out.lower() + ran.err
    assert "interrupted before its result" in ran.out
    assert len(records_in(root, "demo")) == len(TURN)
    if form == "json":
        [*_, last] = json.loads(ran.out)["records"]
        assert (last["cursor"], last["record"]["tool_call_id"]) == ("0:3", "one")
