"""The program that wrote a transcript, found in its first lines."""

from pathlib import Path

import pytest

from steno_agents.codex import Codex
from steno_follow import recognition
from steno_follow.recognition import foreign_format

LINE_BYTES_MAX = 100
BYTES_MAX = 1000
KNOWN = b'{"type":"session_meta","payload":{"id":"1"}}'


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recognition, "DETECTED_LINE_BYTES_MAX", LINE_BYTES_MAX)
    monkeypatch.setattr(recognition, "DETECTED_BYTES_MAX", BYTES_MAX)
    monkeypatch.setattr(recognition, "DETECTED_LINES_MAX", 3)


def is_found(folder: Path, content: bytes) -> bool:
    file = folder / "talk.jsonl"
    file.write_bytes(content)
    return foreign_format(file) is Codex


@pytest.mark.parametrize(
    "size", [LINE_BYTES_MAX - 1, LINE_BYTES_MAX, LINE_BYTES_MAX + 1, 5 * LINE_BYTES_MAX]
)
def test_a_line_of_any_length_is_followed_by_the_next_one(tmp_path: Path, size: int) -> None:
    assert is_found(tmp_path, b"x" * size + b"\n" + KNOWN)
    # The end of a line that is passed over is no line.
    assert not is_found(tmp_path, b"x" * size + KNOWN)


def test_a_record_as_long_as_a_line_may_be_is_read_whole(tmp_path: Path) -> None:
    assert is_found(tmp_path, KNOWN + b" " * (LINE_BYTES_MAX - len(KNOWN) - 1) + b"\n")
    assert not is_found(tmp_path, KNOWN + b" " * (LINE_BYTES_MAX - len(KNOWN)) + b"\n")


def test_the_lines_and_bytes_that_are_read_are_bounded(tmp_path: Path) -> None:
    assert is_found(tmp_path, b"x\n\n" + KNOWN)
    assert not is_found(tmp_path, b"x\n\n\n" + KNOWN)
    assert not is_found(tmp_path, b"x" * BYTES_MAX + b"\n" + KNOWN)


def test_half_an_emoji_hides_no_record(tmp_path: Path) -> None:
    assert is_found(tmp_path, KNOWN.replace(b'"1"', rb'"\ud83d"'))
