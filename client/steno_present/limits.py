"""The bounds of what is shown of a record: unit in the name, reason beside it."""

from typing import Final

LINE_WRAPPED_CHARS_MAX: Final = 10_000
"""A longer line is cut at the width and not between words, which takes quadratic time."""

RESULT_LINE_CHARS_MAX: Final = 800
"""Characters of one line of a tool's result; more are folded. They fill ten lines of a terminal."""

RESULT_LINES_MAX: Final = 12
"""Lines of a tool's result or of a call's arguments; more are folded."""
