"""Suggestions for a misspelt word."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_protocol.spelling import LETTERS_MAX, close_spellings

WORDS = st.text("abc", max_size=7)


def _edited(word: str) -> set[str]:
    """The words that one change of a letter makes of a word."""
    splits = [(word[:place], word[place:]) for place in range(len(word) + 1)]
    return (
        {a + b[1:] for a, b in splits if b}
        | {a + letter + b for a, b in splits for letter in "abc"}
        | {a + letter + b[1:] for a, b in splits if b for letter in "abc"}
        | {a + b[1] + b[0] + b[2:] for a, b in splits if len(b) > 1}
    )


@pytest.mark.parametrize(
    ("word", "close"),
    [
        ("shw", ["show"]),
        ("frok", ["fork"]),
        ("session", ["sessions"]),
        ("sesion", ["sessions"]),
        ("undlete", ["undelete"]),
        ("sesson-list", []),
        ("opne", ["open"]),
        ("rm", []),
        ("", []),
    ],
)
def test_a_suggestion_is_at_most_two_letters_away(word: str, close: list[str]) -> None:
    choices = ["show", "fork", "sessions", "undelete", "delete", "open", "import", "grep", "gc"]
    assert close_spellings(word, choices, 1) == close


def test_a_swap_of_letters_is_one_change_and_the_nearest_comes_first() -> None:
    assert close_spellings("shwo", ["shop", "show"], 3) == ["show", "shop"]
    assert close_spellings("shwo", ["shop", "show"], 1) == ["show"]


@given(word=WORDS, other=WORDS)
def test_words_one_change_away_are_suggested_and_none_more_than_two(word: str, other: str) -> None:
    once = {word} | _edited(word)
    twice = once | {each for near in once for each in _edited(near)}
    suggested = close_spellings(word, [other], 1) == [other]
    assert suggested or other not in once
    assert not suggested or other in (once if len(word) < 2 * LETTERS_MAX else twice)
