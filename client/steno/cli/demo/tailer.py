"""The follower process of the demo: prints each line that it receives.

`python -m steno.cli.demo.tailer ROOT SESSION KEY`: says `ready` on stdout once it follows, then
prints one `Seen` document a line, and ends after the record that bears KEY.
"""

import sys
from typing import assert_never

import msgspec

from steno import connect_sync
from steno.cli.demo.proof import Seen
from steno.values import DmailEvent, Live, RecordsEvent, Reset
from steno_protocol.lines import split_lines
from steno_protocol.positions import Position
from steno_protocol.records import stamp_of


def main(root: str, session_id: str, last_key: str) -> int:
    """Follow the session; 0 when its last record was seen, 1 when it was rewritten."""
    with connect_sync(root, name="follower", spawn=False) as client:
        session = client.session(session_id)
        with session.subscribe() as events:
            for event in events:
                match event:
                    case RecordsEvent():
                        if _print_result(event, last_key):
                            return 0
                    case Live():
                        _print(b"ready")
                    case Reset():
                        sys.stderr.write(f"steno: the session was rewritten: {event.why}\n")
                        return 1
                    case DmailEvent():
                        pass
                    case _:
                        assert_never(event)
    return 1


def _print_result(event: RecordsEvent, last_key: str) -> bool:
    """Print each line of a block; True when the last one of all was among them."""
    lines = split_lines(event.block)
    for number, line in enumerate(lines, event.first.line):
        cursor = Position(event.first.generation, number)
        _print(msgspec.json.encode(Seen(cursor=str(cursor), line=line[:-1].decode())))
    stamp = stamp_of(lines[-1]) if lines else None
    return stamp is not None and stamp.key == last_key


def _print(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3]))
