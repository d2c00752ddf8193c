"""A foreign program at both files of a session, which records what it destroyed itself.

It appends whole lines and pieces to the context and to the events, replaces and rotates the context
as editors and kimi-cli do, and edits it in place. What it appends are tokens that can be found
wherever they end up.
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from steno_protocol import paths
from support.simulated_disk import Call, Moment, SimulatedDisk
from support.simulated_inodes import File
from support.writing import PATH

CONTEXT = f"{PATH}/{paths.CONTEXT}"
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
"""The acts of each manner on the context; all of them append to the events."""

IN_PLACE = ("in place", "all")
"""Manners that change bytes in place."""

Result = TypeVar("Result")

_TOKEN = re.compile(rb"theirs-\d+-")


class BusyDisk(SimulatedDisk):
    """A disk on which a foreign program may act before each call.

    Attributes:
        before: called before every call that it does not make itself.
        only_appends: the call that is to be made takes a file's name away, and what came to
            another name behind the look before it is beyond any guard.
        at_death: called when the daemon dies, before anything of it is taken apart.
    """

    before: Callable[[], None] | None = None
    only_appends = False
    at_death: Callable[[], None]

    def _look(self, call: Call, effect: Callable[[], Result]) -> Result:
        self._let_others()
        return super()._look(call, effect)

    def _change(self, call: Call, effect: Callable[[], Result], **how: Any) -> Result:
        is_swap = call.method == "rename" and call.name == paths.REWRITE
        is_twin = call.method == "unlink" and paths.generation_of(call.name) is not None
        self.only_appends = is_swap or is_twin
        try:
            # No call can look and cut in one step; a change between the two is beyond any guard.
            if call.method != "truncate":
                self._let_others()
            return super()._change(call, effect, **how)
        finally:
            self.only_appends = False

    def _let_others(self) -> None:
        before, self.before = self.before, None
        if before is not None and not self.died:
            before()
        self.before = before

    def _die(self, moment: Moment) -> None:
        self.at_death()
        super()._die(moment)


@dataclass(slots=True, eq=False)
class Piece:
    """Bytes that it appended.

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
        """The bytes that have to be in some file."""
        return b"\n%b\n" % self.data if self.is_line else self.data


class ForeignProgram:
    """The foreign program.

    Args:
        disk: where it works.
        chance: decides everything.
        manner: one of `MANNERS`.
        has_open: returns how many bytes of a file the daemon keeps, None if it has it not open.

    Attributes:
        pieces: its appended bytes that the daemon may not lose.
        spared: lines and tokens that it destroyed itself.
        copied: the contents that it put in the place of files.
        orphans: files whose only name it took away while the daemon had them open.
    """

    def __init__(
        self,
        disk: BusyDisk,
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
        """Do something at a few of the calls."""
        if self._chance.random() < 0.03:
            self.act_now()

    def act_now(self) -> None:
        """Do something."""
        if self._chance.random() < 0.1:
            # The kernel writes back at any time.
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
        """Die with the machine and forget the file that it had read."""
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
        """Record what is lost when a file loses its only name."""
        if file.links > 1:
            return
        whole, kept = bytes(file.cached), self._has_open(file)
        # After a cut in place the daemon may keep no more than a part of a line.
        self.destroy(whole[whole.rfind(b"\n", 0, kept or 0) + 1 :])
        if kept:
            self.orphans.append((file, whole[:kept]))

    def held_orphans(self) -> dict[str, bytes]:
        """The files without a name that the daemon has open and keeps."""
        held = ((file, data) for file, data in self.orphans if self._has_open(file) is not None)
        return {f"inode {file.inode}": data for file, data in held}

    def _rotate(self) -> None:
        """Move the file away as kimi-cli does; some calls later another one is made there."""
        data = self._disk.content(CONTEXT)
        number = 1
        while self._disk.has_file(f"{PATH}/{paths.generation_file(number)}"):
            number += 1
        self._disk.foreign.rename(CONTEXT, paths.generation_file(number))
        lines = data.splitlines(keepends=True)
        self._read = b"".join(lines[: self._chance.randint(0, len(lines))])
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
        # Newlines stay: behind the last one that is left begins a line of another program.
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
        """Record every line that was changed as destroyed."""
        left = set(self._disk.content(CONTEXT).splitlines(keepends=True))
        self.destroy(b"".join(line for line in before.splitlines(True) if line not in left))

    def destroy(self, data: bytes) -> None:
        """Record that no line and token of this data has to be kept."""
        self.spared.update(data.splitlines(keepends=True))
        self.spared.update(_TOKEN.findall(data))

    def is_spared(self, piece: Piece) -> bool:
        """True for a piece that it destroyed itself."""
        return any(token in self.spared for token in _TOKEN.findall(piece.data))
