"""Odd texts and numbers that mean something."""

from pathlib import Path

from steno_protocol import limits
from support.command import Steno


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
