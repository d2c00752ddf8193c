"""The differences of two states of a session; pure."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

from steno_view.limits import DIFF_LINES_MAX


def differences(left: Sequence[bytes], right: Sequence[bytes]) -> list[dict[str, Any]]:
    """The parts of two lists of lines, in order.

    Returns:
        Each part as `{"same": bool, "left": [first, end], "right": [first, end]}`. A part that is
        not the same has lines on one side or on both.
    """
    start = _shared(left, right)
    end = _shared(left[start:][::-1], right[start:][::-1])
    parts = [_part(True, (0, start), (0, start))]
    parts += _middle(left[start : len(left) - end], right[start : len(right) - end], start)
    parts.append(
        _part(True, (len(left) - end, len(left)), (len(right) - end, len(right)))
    )  # fmt: skip
    return [part for part in parts if part["left"][0] < part["left"][1] or _has_right(part)]


def _middle(left: Sequence[bytes], right: Sequence[bytes], start: int) -> list[dict[str, Any]]:
    """The parts between the lines that both begin and end with."""
    if not left and not right:
        return []
    if max(len(left), len(right)) > DIFF_LINES_MAX:
        return [_part(False, (start, start + len(left)), (start, start + len(right)))]
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    return [
        _part(tag == "equal", (start + a, start + b), (start + c, start + d))
        for tag, a, b, c, d in matcher.get_opcodes()
    ]


def _shared(left: Sequence[bytes], right: Sequence[bytes]) -> int:
    """How many lines both begin with."""
    number = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        number += 1
    return number


def _part(same: bool, left: tuple[int, int], right: tuple[int, int]) -> dict[str, Any]:
    return {"same": same, "left": [*left], "right": [*right]}


def _has_right(part: dict[str, Any]) -> bool:
    return bool(part["right"][0] < part["right"][1])
