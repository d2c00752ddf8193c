"""The lines of stdin, each block of which is looked at once."""

import os
from pathlib import Path

import pytest

from steno_cli.stdin import InputLines
from steno_protocol import limits
from steno_protocol.errors import TooLarge


def test_a_text_is_put_together_once_however_many_lines_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"a\n" * (limits.RECORD_BYTES_MAX // 4)
    (tmp_path / "stdin").write_bytes(b"\n\n" + text)
    with (tmp_path / "stdin").open() as stream:
        lines = InputLines(stream)
        assert lines.peek() == b"a\n"

        def split_again() -> None:
            pytest.fail("a text is no lines")

        # Lines would be split, and counted again with each block.
        monkeypatch.setattr(lines, "_read", split_again)
        assert lines.take_all() == b"\n\n" + text
        assert lines.is_at_end


@pytest.mark.parametrize("line", [b"a\n", b"a" * 1000 + b"\n", b"a"])
def test_a_text_beyond_a_record_is_refused_before_all_of_it_is_read(
    tmp_path: Path, line: bytes
) -> None:
    text = line * (limits.RECORD_BYTES_MAX // len(line) + 1)
    (tmp_path / "stdin").write_bytes(text + b"b" * limits.RECORD_BYTES_MAX)
    with (tmp_path / "stdin").open() as stream:
        with pytest.raises(TooLarge, match="stdin holds a text of more than"):
            InputLines(stream).take_all()
        assert os.lseek(stream.fileno(), 0, os.SEEK_CUR) < len(text) + limits.MIB


def test_a_line_that_was_put_back_is_taken_once_more_with_its_number(tmp_path: Path) -> None:
    (tmp_path / "stdin").write_bytes(b"a\n\nb\nc")
    with (tmp_path / "stdin").open() as stream:
        lines = InputLines(stream)
        first = lines.take(wait=True)
        second = lines.take(wait=True)
        assert first is not None
        assert second is not None
        lines.put_back(second)
        taken = [lines.take(wait=True) for _ in range(3)]
    assert (first.number, first.text) == (1, b"a")
    assert [(each.number, each.text) for each in taken if each] == [(3, b"b"), (4, b"c")]
    assert lines.taken_bytes == len(b"a\n\nb\nc")
