"""Closed, full and endless standard streams of a command."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from steno_cli.entry import main
from support.command import Ran, Steno
from support.session_files import contents_in


def run_in_shell(root: Path, redirection: str, *arguments: str) -> Ran:
    """Run the command behind a redirection that closes a stream."""
    steno = Steno(root)
    ran = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh", *steno.words(*arguments)],
        env=steno.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def test_a_command_whose_stdout_is_closed_is_refused_before_anything_is_sent(root: Path) -> None:
    for arguments in (("append", "demo", "hi"), ("read", "demo")):
        ran = run_in_shell(root, ">&-", *arguments)
        assert (ran.code, len(ran.err.splitlines())) == (1, 1)
        assert "stdout is closed: nothing was done" in ran.err
    assert run_in_shell(root, ">&-", "append", "demo", "hi", "--json").error["code"] == "failed"
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("words", ["--version", "show --help"])
def test_a_text_that_cannot_be_written_is_a_failure(root: Path, words: str) -> None:
    ran = run_in_shell(root, ">/dev/full", *words.split())
    assert (ran.code, ran.err) == (
        1,
        "steno: No space left on device: standard input, standard output or an open file\n",
    )


def test_an_error_shows_the_beginning_of_an_id_of_any_length(root: Path) -> None:
    ran = run_in_shell(root, "", "stat", "a" * 100_000)
    assert ran.err.endswith(f"[session {'a' * 80}…]\n")


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"], ids=["full", "closed"])
def test_an_unusable_stderr_changes_neither_the_exit_code_nor_the_output(
    root: Path, redirection: str
) -> None:
    for code, out, words in (
        (0, "0:0\n", "append demo hi"),
        (4, "", "stat nothing"),
        (4, "", "stat nothing --json"),
        (1, "", "append demo"),
        (2, "", "label demo a,b"),
    ):
        ran = run_in_shell(root, redirection, *words.split())
        assert (words, ran.code, ran.out) == (words, code, out)


READING = [
    ("append", "demo", "--batch"),
    ("emit", "demo", "Noted", "-"),
    ("prompt", "demo", "-"),
    ("dmail", "send", "demo", "0", "-"),
]
"""Commands that read stdin."""


def test_a_closed_stdin_is_wrong_usage_for_a_command_that_reads_it(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run_in_shell(root, "<&-", "append", "demo")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("steno: stdin is closed")
    # As Python has it then.
    monkeypatch.setattr(sys, "stdin", None)
    for words in READING:
        assert main(["--root", str(root), *words]) == 2
        assert capsys.readouterr().err.startswith("steno: stdin is closed")
    assert list(root.iterdir()) == []


def test_a_closed_stdin_does_not_matter_to_other_commands(root: Path) -> None:
    assert run_in_shell(root, "<&-", "append", "demo", "hi").code == 0
    assert contents_in(root, "demo") == {"hi": 1}
    assert run_in_shell(root, "<&-", "show", "demo").code == 0
    assert run_in_shell(root, "<&-", "delete", "demo").code == 0


def test_an_endless_stdin_is_more_than_one_batch(root: Path, steno: Steno) -> None:
    endless = ["yes", '{"role":"user","content":"x"}']
    with subprocess.Popen(endless, stdout=subprocess.PIPE) as stream:
        ran = subprocess.run(
            steno.words("append", "demo", "--batch"),
            env=steno.environment,
            stdin=stream.stdout,
            capture_output=True,
            timeout=60,
            check=False,
        )
        stream.kill()
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert b"stdin holds more than a batch, which is 4096 records" in ran.stderr
    assert b"leave --batch out, which appends line by line" in ran.stderr
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
@pytest.mark.parametrize("arguments", READING[1:])
def test_a_stdin_that_is_no_text_is_wrong_usage(
    root: Path, arguments: tuple[str, ...], locale: str
) -> None:
    ran = Steno(root, LC_ALL=locale)(*arguments, stdin=b'{"a":"\xff"}')
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("steno: stdin is no text in ")
    assert list(root.iterdir()) == []


def test_messages_are_json_with_json(steno: Steno) -> None:
    steno("append", "demo", "hi")
    for arguments, printed in (
        (("wire", "demo"), "demo has no event there"),
        (("turns", "demo"), "demo has no turn"),
        (("stat", "de"), "there is no session de; only demo begins with it"),
    ):
        ran = steno(*arguments, "--json")
        assert ran.code == 0
        assert json.loads(ran.err)["note"].startswith(printed)
    # Two records of which the second is none: the note says where it stopped.
    lines = '{"role":"user","content":"hi"}\n{"role":7}\n'
    ran = steno("append", "demo", "--json", stdin=lines)
    note, error = map(json.loads, ran.err.splitlines())
    assert note["note"].startswith("line 2 of stdin")
    assert error["error"]["code"] == "bad_request"


def test_wrong_usage_is_json_except_for_errors_of_the_parser(steno: Steno) -> None:
    ran = steno("append", "demo", "--role", "user", "--json")
    assert (ran.code, ran.error["code"]) == (2, "bad_request")
    ran = steno("append", "demo", "--role", "_usage", "--json")
    assert (ran.code, ran.err.startswith("steno: argument --role")) == (2, True)
