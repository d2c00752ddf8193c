"""Texts beside names, folded to the width of a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_cli.render.tables import beside

WORDS = st.lists(st.text("abcä-/", min_size=1, max_size=40), min_size=1).map(" ".join)


@given(text=WORDS, width=st.integers(28, 120))
def test_every_line_fits_and_nothing_is_lost(text: str, width: int) -> None:
    lines = [*beside("root    ", text, 8, width)]
    assert max(map(len, lines)) <= width
    assert {line[:8] for line in lines[1:]} <= {" " * 8}
    assert "".join(line[8:] for line in lines).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize("width", [None, 20])
def test_text_stays_on_one_line_in_a_pipe_and_a_narrow_terminal(width: int | None) -> None:
    assert [*beside("root    ", "word " * 50, 8, width)] == ["root    " + "word " * 50]


def test_control_characters_are_shown_as_escapes() -> None:
    assert [*beside("x ", "a\x1b[2Jb", 2, 80)] == ["x a\\x1b[2Jb"]
