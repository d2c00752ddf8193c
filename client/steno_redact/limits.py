"""The bounds of redaction, each with its unit and its reason."""

from typing import Final

SCAN_CHARS_MAX: Final = 1_000_000_000
"""Characters that one own pattern may look at in one text. RE2 takes linear time for each match,
and at worst looks at the rest of the text again for each; that is 4 s for this many."""

MATCHES_MIN: Final = 100
"""Matches of an own pattern that every text may have, however long it is."""

RECORD_CHARS_MAX: Final = 100_000_000
"""Characters that are searched for one record, each as often as it is looked at. A record of the
largest size takes 67 million once; beyond this, it is masked as a whole. That takes 10 s."""

STEP_CHARS_MIN: Final = 30
"""Characters that an escape, a line break inside of a key, or a match costs: 3 us."""

SEARCH_CHARS_MIN: Final = 100
"""Characters that a search costs besides those of its text."""

PASSES_MAX: Final = 8
"""Passes over one text until no pattern matches any longer; two are usual, because a mask can make
a boundary at which another pattern begins to match."""

JSON_LEVELS_MAX: Final = 4
"""Levels of JSON inside of JSON texts that are decoded; the arguments of a tool call are one."""

JSON_CHARS_MAX: Final = 4_000_000
"""A longer text is searched as it is, and not decoded as JSON: that takes 40 ms."""

DEPTH_MAX: Final = 200
"""Levels of objects and arrays that are searched; what lies deeper is masked. Python ends a
recursion at 1000 calls, and each level takes three."""

PREVIEW_CHARS_MAX: Final = 24
"""Characters on each side of a mask in a preview: enough to find the place again."""

RE2_BYTES_MAX: Final = 8 << 20
"""Memory of one own pattern; RE2 goes on more slowly without more."""

CLEAN_CHARS_MAX: Final = 64
"""Characters of a text without a secret that is remembered: keys, roles and names are shorter."""

CLEAN_TEXTS_MAX: Final = 4096
"""Texts that are remembered, 0.3 MB."""

KEY_CHARS_MAX: Final = 200
"""Characters of a name in front of a value; a longer one is a text."""

CUT_LINES_MAX: Final = 16
"""Lines of a key that line breaks cut, up to which words behind it are left out of its mask."""

CUT_CHARS_MAX: Final = 4096
"""Characters of a key that line breaks cut and that begins with a line; a JSON token has 2 000. One
that has so many is taken to its end."""

VENDOR_CHARS_MIN: Final = 15
"""Characters of the shortest key of a vendor."""
