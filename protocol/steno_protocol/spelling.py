"""The words that a misspelt word may mean."""

from collections.abc import Iterable
from typing import Final

LETTERS_MAX: Final = 2
"""Letters that are wrong, missing, added or swapped: beyond two, a suggestion is a guess."""


def close_spellings(word: str, choices: Iterable[str], most: int) -> list[str]:
    """The choices at most two letters away from a word, the nearest first.

    A word of fewer than four letters may differ in one: two changes make any such word of another.

    Args:
        word: the word.
        choices: the right words.
        most: the number of suggestions.

    >>> close_spellings("shwo", ["shop", "show", "sessions"], 3)
    ['show', 'shop']
    >>> close_spellings("sessionize", ["sessions"], 3)
    []
    """
    letters = LETTERS_MAX if len(word) >= 2 * LETTERS_MAX else 1
    # The word may be as long as a file.
    alike = (choice for choice in choices if abs(len(choice) - len(word)) <= letters)
    far = {choice: _distance(word, choice, letters) for choice in alike}
    near = {choice: distance for choice, distance in far.items() if distance is not None}
    return sorted(near, key=lambda choice: near[choice])[:most]


def _distance(word: str, other: str, most: int) -> int | None:
    """The letters that differ; None if there are more than `most`."""
    return next((letters for letters in range(most + 1) if _is_near(word, other, letters)), None)


def _is_near(word: str, other: str, letters: int) -> bool:
    """Whether so many changes of a letter make one word of the other."""
    same = 0
    while word[same : same + 1] == other[same : same + 1] != "":
        same += 1
    word, other = word[same:], other[same:]
    if word == other:
        return True
    if abs(len(word) - len(other)) > letters or not letters:
        return False
    is_swapped = len(word) > 1 and word[:2] == other[1::-1]
    return (
        _is_near(word[1:], other[1:], letters - 1)
        or _is_near(word[1:], other, letters - 1)
        or _is_near(word, other[1:], letters - 1)
        or (is_swapped and _is_near(word[2:], other[2:], letters - 1))
    )
