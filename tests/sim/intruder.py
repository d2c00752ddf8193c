"""Another program at both files of a session, which knows what it destroyed itself.

It appends whole lines and pieces to the context and to the events, replaces and rotates the context
as editors and kimi-cli do, and edits it in place. What it appends are tokens that are told apart
wherever they end up.
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from sim.neighbour import CONTEXT, BusyDisk, rotate
from steno_protocol import paths
from support.simulated_disk import Call, Moment
from support.simulated_inodes import File
from support.writing import PATH

WIRE = f"{PATH}/{paths.WIRE}"
ASIDE = "aside"

MANNERS = {
    "lines": ["line"],
    "pieces": ["piece"],
    "editor": ["replace"],
    "rotation": ["rotate"],
    "in place": ["line", "overwrite", "cut"],
    "all": ["line", "line", "piece", "replace", "replace", "rotate", "overwrite", "cut"],
}
"""What each manner does to the context; all of them append to the events."""

_TOKEN = re.compile(rb"theirs-\d+-")


class RoughDisk(BusyDisk):
    """A busy disk on which files only grow where no look can be part of what follows it.

    Attributes:
        only_appends: the call that is to be made takes a file's name away, and what came to
            another name behind the look before it is beyond any guard.
        at_death: called when the daemon dies, before anything of it is taken apart.
    """

    only_appends = False
    at_death: Callable[[], None]

    def _change(self, call: Call, effect: Callable[[], object], **how: object) -> object:
        is_swap = call.method == "rename" and call.name == paths.REWRITE
        is_twin = call.method == "unlink" and paths.generation_of(call.name) is not None
        self.only_appends = is_swap or is_twin
        try:
            return super()._change(call, effect, **how)
        finally:
            self.only_appends = False

    def _let_others(self) -> None:
        if not self.died:
            super()._let_others()

    def _die(self, moment: Moment) -> None:
        self.at_death()
        super()._die(moment)


@dataclass(slots=True, eq=False)
class Piece:
    """Something that was appended.

    Attributes:
        data: its bytes without newlines at its ends.
        is_line: it was a whole line behind a whole line.
        is_durable: a power cut can take it no more.
    """

    data: bytes
    is_line: bool
    is_durable: bool = False

    @property
    def whole(self) -> bytes:
        """What has to be there of it."""
        return b"\n%b\n" % self.data if self.is_line else self.data


class Intruder:
    """The other program.

    Args:
        disk: where it works.
        chance: decides everything.
        manner: one of `MANNERS`.
        has_open: whether the daemon keeps a file open for what has to be kept of it, and how many
            bytes of it then.

    Attributes:
        pieces: what it appended and nobody may lose.
        spared: lines and tokens that it destroyed itself.
        copied: all that it put in the place of files.
        orphans: files whose only name it took away while the daemon had them open.
    """

    def __init__(
        self,
        disk: RoughDisk,
        chance: random.Random,
        manner: str,
        has_open: Callable[[File], int | None],
    ) -> None:
        self.pieces: list[Piece] = []
        self.spared: set[bytes] = set()
        self.copied: list[bytes] = []
        self.orphans: list[tuple[File, bytes]] = []
        self._disk = disk
        self._chance = chance
        self._acts = MANNERS[manner]
        self._has_open = has_open
        self._number = 0
        self._read: bytes | None = None

    def act(self) -> None:
        """Perhaps do something, now."""
        if self._chance.random() < 0.03:
            self.act_now()

    def act_now(self) -> None:
        """Do something."""
        if self._chance.random() < 0.1:
            # The kernel writes back by itself.
            self._disk.sync_all()
        elif self._chance.random() < 0.25:
            self._append_event()
        elif self._disk.has_file(CONTEXT):
            self._change_context(self._chance.choice(self._acts))
        elif not self._disk.only_appends:
            self._put_back()

    def finish(self) -> None:
        """Leave a context behind."""
        if not self._disk.has_file(CONTEXT):
            self._read = self._read or b""
            self._put_back()

    def forget(self) -> None:
        """Its process is gone, too."""
        self._read = None

    def _change_context(self, act: str) -> None:
        if act == "line":
            self._append(CONTEXT, b'{"role":"user","content":"%b"}\n' % self._token())
        elif act == "piece":
            begin = self._chance.choice([b"", b'{"role":"user","content":"'])
            end = self._chance.choice([b"\n", b"\n", b"", b'"}\n', b'"}'])
            self._append(CONTEXT, begin + self._token() + end)
        elif not self._disk.only_appends:
            self._edit(act)

    def _edit(self, act: str) -> None:
        match act:
            case "replace":
                self._replace()
            case "rotate":
                self._rotate()
            case "overwrite":
                self._overwrite()
            case _:
                self._cut()

    def _token(self) -> bytes:
        self._number += 1
        return b"theirs-%d-" % self._number

    def _append_event(self) -> None:
        if not self._disk.has_file(WIRE):
            return
        head = b'{"timestamp":1.5,"message":{"type":"TextPart","payload":{"text":"'
        whole = head + self._token() + b'"}}}\n'
        is_half = "piece" in self._acts and self._chance.random() < 0.5
        # The token is in the part that is left.
        self._append(WIRE, whole[: len(whole) - self._chance.randint(1, 5)] if is_half else whole)

    def _append(self, path: str, data: bytes) -> None:
        before = self._disk.file_at(path).cached
        is_behind_line = not before or before.endswith(b"\n")
        self._disk.foreign.append(path, data)
        is_line = is_behind_line and data.startswith(b"{") and data.endswith(b"}\n")
        self.pieces.append(Piece(data.strip(b"\n"), is_line))

    def _replace(self) -> None:
        """Read the file, and some calls later put what was read in its place."""
        if self._read is None:
            self._read = self._disk.content(CONTEXT)
            return
        self._lose_name(self._disk.file_at(CONTEXT))
        self._put(f"{PATH}/{ASIDE}")
        self._disk.foreign.rename(f"{PATH}/{ASIDE}", paths.CONTEXT)

    def _lose_name(self, file: File) -> None:
        """A file is about to lose its only name."""
        if file.links > 1:
            return
        whole, kept = bytes(file.cached), self._has_open(file)
        # After a cut in place the daemon may keep no more than a part of a line.
        self.destroy(whole[whole.rfind(b"\n", 0, kept or 0) + 1 :])
        if kept:
            self.orphans.append((file, whole[:kept]))

    def held_orphans(self) -> dict[str, bytes]:
        """What lost its name, and is to be kept by a daemon that has it open."""
        held = ((file, data) for file, data in self.orphans if self._has_open(file) is not None)
        return {f"inode {file.inode}": data for file, data in held}

    def _rotate(self) -> None:
        """Move the file away as kimi-cli does; some calls later another one is made there."""
        self._read = rotate(self._disk, self._chance)
        if self._chance.random() < 0.7:
            self._put_back()

    def _put_back(self) -> None:
        if self._read is not None:
            self._put(CONTEXT)

    def _put(self, path: str) -> None:
        read, self._read = self._read or b"", None
        self.copied.append(read)
        self._disk.foreign.replace(path, read)

    def _overwrite(self) -> None:
        before = self._disk.content(CONTEXT)
        # Newlines stay: what comes behind the last one that is left is somebody else's line.
        offset = self._chance.randint(0, max(0, len(before) - 1))
        room = len(before[offset:].partition(b"\n")[0])
        data = self._chance.choice([b"x", b"\n", b"edited"])[:room]
        self._disk.foreign.overwrite(CONTEXT, offset, data)
        self._edited(before)

    def _cut(self) -> None:
        before = self._disk.content(CONTEXT)
        self._disk.foreign.truncate(CONTEXT, self._chance.randint(0, len(before)))
        self._edited(before)

    def _edited(self, before: bytes) -> None:
        """Whatever line is not what it was any more, it destroyed."""
        left = set(self._disk.content(CONTEXT).splitlines(keepends=True))
        self.destroy(b"".join(line for line in before.splitlines(True) if line not in left))

    def destroy(self, data: bytes) -> None:
        """Nobody has to keep what is in this data."""
        self.spared.update(data.splitlines(keepends=True))
        self.spared.update(_TOKEN.findall(data))

    def is_spared(self, piece: Piece) -> bool:
        """True for a piece that it destroyed itself."""
        return any(token in self.spared for token in _TOKEN.findall(piece.data))
