"""What the library and the daemon say, in the words of the shell."""

import re
from pathlib import Path

import pytest

import steno
import steno_protocol
import stenod
from steno_cli.render.printed_commands import PHRASES, in_shell_words


def test_every_phrase_is_said_by_the_library_or_the_daemon() -> None:
    said = ""
    for package in (steno, steno_protocol, stenod):
        for path in Path(str(package.__file__)).parent.rglob("*.py"):
            said += path.read_text()
    joined = re.sub(r'"\s*f?"', "", said)
    assert [phrase for phrase in PHRASES if phrase not in joined] == []


@pytest.mark.parametrize(("number", "is_denied"), [(1, True), (13, True), (30, True), (28, False)])
def test_a_refusal_is_no_failure_of_the_disk(number: int, is_denied: bool) -> None:
    said = in_shell_words(f"the disk failed: [Errno {number}] Why: 'x'; nothing was kept")
    assert said.startswith("it cannot be written (Why): 'x'") == is_denied
    assert ("the disk failed" in said) != is_denied


def test_a_position_beyond_the_end_blames_no_other_writer() -> None:
    text = "another writer was faster: {} was expected and the session ends at 0:4; read"
    assert in_shell_words(text.format("0:99")).startswith("0:99 was expected and the session ends")
    assert in_shell_words(text.format("0:3")) == text.format("0:3")
