"""Halves of surrogate pairs in the JSON lines of other programs.

JavaScript cuts a text between the two halves of an emoji and writes the half as an escape, such as
`\\ud83d`. The line is JSON by its grammar, but UTF-8 cannot encode its text, so readers refuse it.
"""

import re
from typing import Final

_SURROGATES: Final = re.compile(
    rb"""(?<!\\)((?:\\\\)*+)\\u(?:  # the backslash is not itself escaped
      [dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}  # a whole pair
    | ([dD][89a-fA-F][0-9a-fA-F]{2})  # one half
    )""",
    re.VERBOSE,
)
"""It matches surrogates only, and not each escape: a long line has millions of them."""


def replace_lone_surrogates(line: bytes) -> bytes:
    """Return a line of JSON with U+FFFD for each half of a pair that stands alone."""
    return _SURROGATES.sub(_sound, line)


def _sound(found: re.Match[bytes]) -> bytes:
    return found[1] + rb"\ufffd" if found[2] else found[0]
