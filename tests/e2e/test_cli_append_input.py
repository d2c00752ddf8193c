"""What `steno append` takes from stdin: a text, records, and lines that steno printed."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.command import Steno
from support.session_files import records_in

pytestmark = pytest.mark.served

RECORD = '{"role":"user","content":"a"}\n'


def contents(root: Path, session: str = "demo") -> list[Any]:
    return [record.get("content") for record in records_in(root, session)]


@pytest.fixture
def whole(root: Path) -> Steno:
    """A session with every kind of record, whose checkpoint ids count from 1."""
    steno = Steno(root)
    assert steno("append", "old", "first").code == 0
    assert steno("checkpoint", "old").code == 0
    assert steno("revert", "old", "0").code == 0
    for words in (
        ("checkpoint", "old"),
        ("usage", "old", "12"),
        ("append", "old", "second", "--role", "assistant"),
        ("prompt", "old", "be kind"),
        ("append", "old", "third"),
    ):
        assert steno(*words).code == 0
    return steno


def state(steno: Steno, session: str) -> dict[str, Any]:
    """The state of a session without what a copy has of its own."""
    shown: dict[str, Any] = steno("show", session, "--json").document
    for name in ("session", "head", "generation", "n_checkpoints"):
        del shown[name]
    places = [each["cursor"].partition(":")[2] for each in shown.pop("checkpoints")]
    return {**shown, "checkpoints": places}


@pytest.mark.parametrize("given", ["hi\n", "\n\nhi\r\n\n", "hi"])
def test_a_text_on_stdin_is_one_message(root: Path, given: str) -> None:
    ran = Steno(root)("append", "demo", "--key", "k", stdin=given)
    assert (ran.code, ran.out) == (0, "0:0\n")
    assert contents(root) == [given.rstrip("\r\n")]
    assert records_in(root, "demo")[0]["_id"] == "k"


def test_a_text_of_several_lines_keeps_them_and_gets_the_role(root: Path) -> None:
    assert Steno(root)("append", "demo", "-", "--role", "system", stdin="a\n\n{b}\n").code == 0
    [record] = records_in(root, "demo")
    assert (record["role"], record["content"]) == ("system", "a\n\n{b}")


def test_text_appends_records_as_a_text(root: Path) -> None:
    assert Steno(root)("append", "demo", "--text", stdin=RECORD + RECORD).code == 0
    assert contents(root) == [(RECORD + RECORD).rstrip()]


def test_a_text_goes_to_the_session_whose_id_begins_so(root: Path, steno: Steno) -> None:
    assert steno("append", "0d2d43d1-803e-7a90-8000-3d1c5e9b7a11", "one").code == 0
    shown = steno("sessions").out.split()[0]
    assert steno("append", shown, "--text", stdin="two").code == 0
    assert contents(root, "0d2d43d1-803e-7a90-8000-3d1c5e9b7a11") == ["one", "two"]


@pytest.mark.parametrize(
    ("given", "words", "says"),
    [
        ("hi\n" + RECORD, (), "line 2 of stdin is a record, and the lines before it are text"),
        ('{"role":"user",\n"content":"a"}', (), "the first line of stdin is no record"),
        ("{no json", (), "--text appends all of stdin as one text"),
        ("hi", ("--json",), "the first line of stdin is no record"),
        (f"[{RECORD}]", (), "`jq -c '.[]'` makes a line of each"),
        (b"\xff\xfe", (), "stdin is no text in UTF-8"),
        ("x" * 17_000_000, (), "longer than"),
        ("x\n" * 9_000_000, (), "stdin holds a text of more than"),
        ('{"role":"_usage"}', (), "no number in token_count"),
        ('{"role":"_checkpoint","id":0}', ("--batch",), "leave --batch out"),
    ],
)
def test_what_is_neither_text_nor_records_is_refused_with_the_way(
    root: Path, given: str | bytes, words: tuple[str, ...], says: str
) -> None:
    ran = Steno(root)("append", "demo", *words, stdin=given)
    assert (ran.code, ran.out) == (1, "")
    assert says in ran.err
    assert not (root / "sessions" / "demo").exists()


@pytest.mark.parametrize(
    ("given", "words", "says"),
    [
        (RECORD, ("--role", "system"), "--role is for a text"),
        ("hi", ("--batch",), "--batch is for records, and stdin holds a text"),
        ("hi", ("--text", "--batch"), "--text makes one message of stdin"),
        ("hi", ("--text", "hi"), "leave one of them out"),
        (RECORD, ("--key", "k" * 64), "--key is too long"),
    ],
)
def test_options_of_the_other_form_are_wrong_usage(
    root: Path, given: str, words: tuple[str, ...], says: str
) -> None:
    ran = Steno(root)("append", "demo", *words, stdin=given)
    assert ran.code == 2
    assert says in ran.err


@pytest.mark.parametrize("printed", ["read", "read --json", "export --format json"])
def test_what_steno_printed_makes_an_equal_session(whole: Steno, printed: str) -> None:
    command, *options = printed.split()
    lines = whole(command, "old", *options).out
    ran = whole("append", "copy", stdin=lines)
    assert (ran.code, ran.out) == (0, "".join(f"0:{line}\n" for line in range(6)))
    assert state(whole, "copy") == state(whole, "old")
    assert "checkpoint 1 of stdin is checkpoint 0 of copy" in ran.err
    assert ("the timeline of the export are left out" in ran.err) == (command == "export")


def test_printed_lines_repeated_with_a_key_are_applied_once(whole: Steno) -> None:
    lines = whole("read", "old", "--json").out
    first = "".join(lines.splitlines(keepends=True)[:4])
    assert whole("append", "copy", "--key", "k", stdin=first).code == 0
    for _ in range(2):
        assert whole("append", "copy", "--key", "k", stdin=lines).code == 0
    assert state(whole, "copy") == state(whole, "old")
    assert whole("info", "copy", "--json").document["head"] == "0:6"


def test_printed_lines_follow_an_expected_head_across_a_rewrite(whole: Steno) -> None:
    assert whole("append", "copy", "before").code == 0
    lines = whole("read", "old").out
    ran = whole("append", "copy", "--expect", "0:1", stdin=lines)
    assert (ran.code, ran.out.split()) == (0, ["1:0", "1:2", "1:3", "1:4", "1:5", "1:6"])
    assert whole("append", "copy", "--expect", "0:1", stdin=lines).code == 3


def test_a_refused_control_record_names_its_line(root: Path) -> None:
    given = RECORD + '{"role":"_checkpoint","id":0}\n{"role":"_usage","token_count":-1}\n' + RECORD
    ran = Steno(root)("append", "demo", stdin=given)
    assert (ran.code, ran.out) == (1, "0:0\n0:1\n")
    assert "line 3 of stdin was not acknowledged; 2 records before it stay appended" in ran.err
    assert "--from-line 3" in ran.err


def test_append_after_its_session_is_deleted_makes_no_other_one(root: Path, steno: Steno) -> None:
    with subprocess.Popen(
        steno.words("append", "demo"), env=steno.environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(RECORD.encode())
        process.stdin.flush()
        assert process.stdout.readline() == b"0:0\n"
        assert steno("delete", "demo").code == 0
        out, err = process.communicate(b'{"role":"_checkpoint","id":0}\n', timeout=60)
    assert (process.returncode, out) == (4, b"")
    assert b"line 2 of stdin was not acknowledged" in err
    assert not (root / "sessions" / "demo").exists()
