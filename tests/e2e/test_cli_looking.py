"""`steno stat`, `open` and `turns`."""

from pathlib import Path

import pytest

from support.command import STAT, Steno
from support.session_files import records_in

pytestmark = pytest.mark.served


def test_open_creates_a_session_once_and_checks_exclusive(root: Path, steno: Steno) -> None:
    assert steno("open", "demo", "--no-create").code == 4
    made = steno("open", "demo")
    assert (made.code, made.out) == (0, "0:0\n")
    assert made.err == f"steno: demo was created, in {root}/sessions/demo\n"
    assert "demo exists, in" in steno("open", "demo").err
    ran = steno("open", "demo", "--exclusive", "--json")
    assert (ran.code, ran.error["code"]) == (1, "exists")
    printed = steno("open", "other", "--exclusive", "--key", "k1", "--json").document
    assert steno("open", "other", "--exclusive", "--key", "k1", "--json").document == printed
    assert (set(printed), printed["created"], printed["stamp"]) == (STAT, True, True)


def test_a_session_without_stamps_stores_records_unchanged(root: Path, steno: Steno) -> None:
    assert steno("open", "demo", "--no-stamp", "--json").document["stamp"] is False
    steno("append", "demo", "hi")
    assert records_in(root, "demo") == [{"role": "user", "content": "hi"}]
    assert "without _id and _by" in steno("stat", "demo").out


def test_stat_shows_head_title_and_labels(root: Path, steno: Steno) -> None:
    assert steno("stat", "demo").code == 4
    steno("append", "demo", "hello world.")
    steno("checkpoint", "demo")
    steno("usage", "demo", "1472")
    steno("title", "demo", "A title")
    printed = steno("stat", "demo", "--json").document
    assert (set(printed), printed["head"], printed["n_checkpoints"]) == (
        {*STAT, "origin"}, "0:3", 1,
    )  # fmt: skip
    rows = dict(line.split("  ", 1) for line in steno("stat", "de").out.splitlines())
    assert {name: value.strip() for name, value in rows.items()} == {
        "session": "demo", "title": "A title", "ends at": f"0:3, {printed['bytes']} B",
        "tokens": "1 472, and about 0 not yet counted", "checkpoints": "the next is 1",
        "generations": "0 left behind", "open": "yes", "folder": f"{root}/sessions/demo",
    }  # fmt: skip


def test_turns_are_listed_with_the_numbers_that_a_fork_takes(steno: Steno) -> None:
    steno("append", "demo", "before")
    assert "demo has no turn" in steno("turns", "demo").err
    for said in ('"first"', '[{"type":"text","text":"second"}]'):
        steno("emit", "demo", "TurnBegin", f'{{"user_input":{said}}}', "--timestamp", "1764000000")
        steno("emit", "demo", "TurnEnd")
    printed = steno("turns", "demo", "--json").documents
    assert printed == [
        {"turn": 0, "cursor": "0:1", "timestamp": 1764000000.0, "at": "0:1", "user_input": "first"},
        {"turn": 1, "cursor": "0:3", "timestamp": 1764000000.0, "at": "0:1",
         "user_input": [{"type": "text", "text": "second"}]},
    ]  # fmt: skip
    lines = steno("turns", "demo").out.splitlines()
    assert [(line.split()[0], line.split()[-1]) for line in lines] == [
        ("0", "first"), ("1", "second"),
    ]  # fmt: skip
    assert max(map(len, steno.on_terminal(30, "turns", "demo").splitlines())) <= 30
