"""Changes to good bytes, as a fault, a foreign program or an attacker makes them."""

from fuzz.source import Source

_SPLICES = (
    b"", b"\n", b"\r\n", b"\0", b"\0" * 16, b"\xff", b"\xc3", b"\xef\xbb\xbf", b"{", b"}", b'"',
    b"[" * 120, b"]", b",", b":", b"\\", b"\\ud800", b"\\u005f", b"\xe2\x80\xa8", b"\xc2\x85",
    b"-1", b"1e999", b"9" * 30, b"9" * 400, b"NaN", b"null", b"true", b" ", b"\t", b"\x0b",
    b'"_id":"k.0/2"', b'"_id":"k"', b'"role":"_checkpoint"', b'"id":9007199254740993',
    b'"role":"user"', b'{"role":"user","content":"spliced"}\n', b'"generation":999999999',
    b'{"kind":"voided","generation":1}\n', b'{"kind":"cleared","generation":1,"details":{}}\n',
)  # fmt: skip


def mutated(data: bytes, source: Source) -> bytes:
    """The bytes with a few changes; the source decides on their places and kinds."""
    for _ in range(source.number(5)):
        data = _change(data, source)
    return data


def _change(data: bytes, source: Source) -> bytes:
    start = source.number(len(data) + 1)
    end = min(len(data), start + source.number(64))
    match source.number(7):
        case 0:
            return data[:start] + source.pick(_SPLICES) + data[start:]
        case 1:
            return data[:start] + source.pick(_SPLICES) + data[end:]
        case 2:
            return data[:start]
        case 3:
            return data[:start] + data[end:]
        case 4:
            return data[:end] + data[start:]
        case 5:
            return data[:start] + bytes(end - start) + data[end:]
        case _:
            return data[:start] + source.take(8) + data[end:]
