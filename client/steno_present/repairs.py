"""What the daemon changed when it opened a session, in words."""

from steno_present.wording import count, number
from steno_protocol.replies import RepairedFile


def repair(found: RepairedFile) -> str:
    """A repair of the end of a file.

    >>> repair(RepairedFile(session="demo", file="context.jsonl", offset=9, why="cut"))
    'demo: the daemon repaired the end of context.jsonl (cut): its last line got its newline'
    """
    where = f"{found.session}: the daemon repaired the end of {found.file} ({found.why})"
    if not found.bytes:
        return f"{where}: its last line got its newline"
    cut = f"{count(found.bytes, 'byte')} after byte {number(found.offset)}"
    return f"{where}: {cut} were cut off and are kept in {found.kept_in}"
