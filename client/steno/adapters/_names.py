"""Names of other programs as parts of session ids and as names of streams."""

import hashlib
import re
from typing import Final

from steno_protocol import limits, paths
from steno_protocol.errors import BadRequest

_PLAIN: Final = re.compile(r"[A-Za-z0-9_@+,-]", re.ASCII)
_QUOTED: Final = re.compile(rb"=([0-9A-F]{2})")

DIGEST: Final = "_=="
"""How a segment with the digest of a name begins: `segment_of` never makes two `=`."""

_FOLDERS: Final = frozenset({paths.QUARANTINE, paths.UPLOADS})
"""Folders of a session, which no part of an id may be called."""


def segment_of(name: str) -> str:
    """Return a name as one segment of a session id; `name_of` is the inverse.

    A character that an id or its first place cannot have becomes `=HH` for each byte of its UTF-8,
    as in quoted-printable text. A segment that would not begin with a letter or digit gets a `_`.

    >>> segment_of("-srv/shop")
    '_-srv=2Fshop'

    Raises:
        BadRequest: the name is empty, too long for a segment, or no UTF-8.
    """
    try:
        segment = "".join([char if _PLAIN.fullmatch(char) else _quoted(char) for char in name])
    except UnicodeEncodeError:
        raise BadRequest(f"{name[:80]!a} is no name: it is not valid Unicode") from None
    if not segment[:1].isalnum() or segment in _FOLDERS:
        segment = f"_{segment}"
    if not name:
        raise BadRequest("an empty text is no name: use at least one character")
    if len(segment) > limits.SESSION_SEGMENT_CHARS_MAX:
        raise BadRequest(
            f"{name[:80]!r} is no name: it has {len(segment)} characters as a part of a session id,"
            f" and at most {limits.SESSION_SEGMENT_CHARS_MAX} are allowed: use a shorter one"
        )
    return segment


def segment_or_digest(name: str, chars_max: int = limits.SESSION_SEGMENT_CHARS_MAX) -> str:
    """Return a segment for any text: that of `segment_of`, else one with a digest of the name.

    Args:
        name: the text.
        chars_max: characters that the segment may have, where an id has several.
    """
    try:
        segment = segment_of(name)
    except BadRequest:
        # Empty, too long, or no valid Unicode.
        segment = ""
    return segment if 0 < len(segment) <= chars_max else f"{DIGEST}{digest_of(name)}"


def name_of(segment: str) -> str:
    """Return the name behind a segment that `segment_of` made.

    >>> name_of("_-srv=2Fshop")
    '-srv/shop'
    """
    quoted = segment.removeprefix("_").encode()
    return _QUOTED.sub(lambda found: bytes([int(found[1], 16)]), quoted).decode(errors="replace")


def digest_of(*parts: str) -> str:
    """Return a key, or the name of a stream, that depends on all parts and on their order."""
    text = "\0".join(parts).encode(errors="surrogatepass")
    return hashlib.sha256(text).hexdigest()[:40]


def _quoted(char: str) -> str:
    return "".join(f"={byte:02X}" for byte in char.encode())
