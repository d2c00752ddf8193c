"""The piece of a found text that is shown."""

from hypothesis import given
from hypothesis import strategies as st

from steno_search.context import best_line, snippet
from steno_search.words import joined, separated

marked = st.lists(st.text(alphabet="ab \n", max_size=12), min_size=1, max_size=9).filter(
    lambda parts: len(parts) % 2 == 1
)


def test_the_piece_with_the_most_words_is_shown() -> None:
    text = ["far ", "one", " " + "x " * 400, "one", " near ", "two", " end"]
    piece = snippet(text, 60)
    assert piece.parts[1::2] == ["one", "two"]
    assert piece.is_cut_before
    assert not piece.is_cut_after


def test_the_best_line_has_the_most_words() -> None:
    assert best_line(["a\nb ", "one", "\nc ", "one", " ", "two", "\nd"]) == [
        "c ", "one", " ", "two", "",
    ]  # fmt: skip


def test_a_text_without_a_marked_word_is_shown_from_its_beginning() -> None:
    assert snippet(["x" * 300], 100).parts == ["x" * 100]


@given(marked, st.integers(8, 60))
def test_a_piece_is_a_part_of_the_text(parts: list[str], chars: int) -> None:
    whole = "".join(parts).replace("\n", " ")
    piece = snippet(parts, chars)
    shown = "".join(piece.parts)
    assert shown in whole
    assert len(shown) <= chars
    assert len(piece.parts) % 2 == 1
    assert piece.is_cut_before or whole.startswith(shown)
    assert piece.is_cut_after or whole.endswith(shown)


@given(marked)
def test_the_best_line_is_a_line(parts: list[str]) -> None:
    line = best_line(parts)
    assert len(line) % 2 == 1
    assert "".join(line) in "".join(parts).split("\n")


@given(st.text())
def test_a_separated_text_comes_back(text: str) -> None:
    kept = "".join(" " if each in "\0\1\2\x1f" else each for each in text)
    assert joined(separated(text)) == kept.encode("utf-8", "replace").decode()
