"""Impossible texts and numbers on the command line: wrong usage, and nothing is sent."""

import os
from pathlib import Path

import pytest

from steno_protocol import limits
from support.command import Steno

LATIN = os.fsdecode("é".encode("latin-1"))
"""An argument that is not UTF-8, as a program receives it."""


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["title", "d", "a\nb"], "a title is one line without control characters"),
        (["title", "d", "\x1b[31mred"], "a title is one line without control characters"),
        (["fork", "d", "e", "--title", "a\x07"], "one line without control characters"),
        (["title", "d", "x" * 201], "it has 201 characters, at most 200"),
        (["clear", "d", "--why", "x" * 1001], "it has 1001 characters, at most 1000"),
        (["label", "d", "+a\nb"], "is not a label"),
        (["label", "d", "a,b"], "is not a label"),
        (["label", "d", "+"], "is not a label"),
        (["label", "d", "x" * 65], "is not a label"),
        (["replay", "d", "--speed", "-1"], "'-1' is not a number from 0 on"),
        (["replay", "d", "--speed", "nan"], "'nan' is not a number from 0 on"),
        (["replay", "d", "--speed", "inf"], "'inf' is not a number from 0 on"),
        (["revert", "d", "x"], "'x' is neither the number of a checkpoint"),
        (["fork", "d", "e", "--checkpoint", ""], "'' is neither the number of a checkpoint"),
        (["dmail", "send", "d", "0:1", "hi"], "'0:1' is neither the number of a checkpoint"),
        (["emit", "d", "T", "--timestamp", "x"], "'x' is no time: give seconds since 1970"),
        (["emit", "d", "T", "--timestamp", "nan"], "'nan' is no time: give seconds since 1970"),
        (["compact", "d", "--model", "m", "--preserve", "0"], "from 1 to 10000"),
        (["compact", "d", "--model", "m", "--preserve", "10001"], "from 1 to 10000"),
        (["logs", "-n", "9" * 23], "is not a number from 0 on, up to 9007199254740992"),
        (["usage", "d", "9" * 5000], "is not a number from 0 on"),
        (["demo", "--agents", "9" * 5000], "is not a number from 1 to 32"),
        (["undo", "d", "--turns", "9" * 23], "is not a number from 1 on"),
        (["stats", "--json", "--format", "prometheus"], "two formats"),
        (["export", "d", "--json", "--format", "markdown"], "two formats"),
    ],
)
def test_impossible_values_are_wrong_usage(root: Path, arguments: list[str], printed: str) -> None:
    ran = Steno(root)(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert printed in ran.err
    assert list(root.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["append", "d", LATIN],
        ["append", LATIN, "hi"],
        ["title", "d", LATIN],
        ["label", "d", "+fine", f"+{LATIN}"],
        ["clear", "d", "--why", LATIN],
        ["sessions", LATIN],
        ["sessions", "--label", LATIN],
        ["grep", LATIN],
        ["dmail", "send", "d", "0", LATIN],
        ["emit", "d", LATIN],
    ],
)
def test_an_argument_that_is_not_utf8_is_wrong_usage(root: Path, arguments: list[str]) -> None:
    ran = Steno(root)(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "it is not UTF-8" in ran.err
    assert list(root.iterdir()) == []


def test_speed_zero_in_any_notation_does_not_pause(root: Path) -> None:
    steno = Steno(root)
    for at in ("1", "10000"):
        assert steno("emit", "d", "x", "--timestamp", at).code == 0
    for speed in ("0", "0.0", "1e5"):
        assert len(steno("replay", "d", "--speed", speed).out.splitlines()) == 2


def test_a_title_of_another_program_is_one_printable_line_in_a_list(root: Path) -> None:
    steno = Steno(root)
    steno("append", "d", "hi")
    title = r"a\nb\tc\u2028d\u001b[31m"
    (root / "sessions" / "d" / "state.json").write_text(f'{{"custom_title":"{title}"}}')
    (line,) = steno("sessions").out.split("\n")[:-1]
    assert line.endswith(r"a b c\u2028d\x1b[31m")
    assert limits.TITLE_CHARS_MAX == 200
