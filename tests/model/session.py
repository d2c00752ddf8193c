"""A session as a few lists: its expected files, numbers, mail and answers.

It shares no code with the daemon but the words of a checkpoint's notice and of a D-Mail.
"""

import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from steno_protocol import records
from steno_protocol.errors import BadRequest, Busy, Conflict, Exists, NotFound

Record = dict[str, Any]
Answer = tuple[str, str, int | None]
"""`first`, `head` and the checkpoint's id of an ack."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its record and the stamp of its command."""

    stamp: str
    record: Record

    @property
    def chars(self) -> int:
        """Characters of its text, if it is a message."""
        content = self.record.get("content") if self.record["role"][0] != "_" else None
        return (
            len(content) if isinstance(content, str) else len(content[0]["text"] if content else "")
        )


@dataclass(slots=True)
class Generation:
    """One generation: its lines, and the checkpoint id that it goes on from, never used before.

    Its parents are the generations that compactions left behind: the number of each, and the id of
    the checkpoint that the compaction set, below which ids are searched there.
    """

    lines: list[Line] = field(default_factory=list[Line])
    parents: tuple[tuple[int, int], ...] = ()
    floor: int = 0

    @property
    def n_checkpoints(self) -> int:
        """The id of the next checkpoint."""
        return max([self.floor, *(number + 1 for number, _ in self.checkpoints)])

    @property
    def checkpoints(self) -> list[tuple[int, int]]:
        """Id and line of each checkpoint."""
        found = enumerate(self.lines)
        return [
            (line.record["id"], at) for at, line in found if line.record["role"] == "_checkpoint"
        ]

    @property
    def history(self) -> list[Record]:
        """Its messages."""
        return [line.record for line in self.lines if line.record["role"][0] != "_"]

    @property
    def tokens(self) -> tuple[int, int]:
        """The token count, alone and with an estimate of the lines behind it."""
        counts = [at for at, line in enumerate(self.lines) if line.record["role"] == "_usage"]
        counted = self.lines[counts[-1]].record["token_count"] if counts else 0
        later = self.lines[counts[-1] + 1 :] if counts else self.lines
        return counted, counted + sum(line.chars for line in later) // 4

    @property
    def prompt(self) -> str | None:
        """Its system prompt."""
        found = [line.record for line in self.lines if line.record["role"] == "_system_prompt"]
        return found[-1]["content"] if found else None


@dataclass(frozen=True, slots=True)
class Letter:
    """A D-Mail: `bound` is the stamp of its checkpoint's line."""

    key: str
    number: int
    text: str
    bound: str


@dataclass(frozen=True, slots=True)
class Begun:
    """The answer to `compact_begin`."""

    generation: int
    cut: int
    at: int
    number: int


@dataclass(slots=True)
class Session:
    """The whole session; a command changes it and returns the expected answer.

    Raises:
        StenoError: the expected refusal; nothing is changed.
    """

    generations: list[Generation] = field(default_factory=lambda: [Generation()])
    mail: Letter | None = None
    reserved: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    unreserved: int = 0
    lease: Begun | None = None
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])

    @property
    def present(self) -> Generation:
        """The present generation."""
        return self.generations[-1]

    @property
    def number(self) -> int:
        """The number of the present generation."""
        return len(self.generations) - 1

    @property
    def next_id(self) -> int:
        """The id of the next checkpoint, which no line and no compaction ever got."""
        return max(self.present.n_checkpoints, self.unreserved)

    @property
    def head(self) -> str:
        """The end of the present generation."""
        return f"{self.number}:{len(self.present.lines)}"

    def copy(self) -> "Session":
        """An independent copy."""
        return deepcopy(self)

    def reopened(self) -> "Session":
        """The session as the next daemon reads it from the files."""
        again = self.copy()
        kept = [number for generation, number in self.reserved if generation == self.number]
        again.unreserved, again.lease = max(kept, default=-1) + 1, None
        return again

    # --- lines -----------------------------------------------------------------------------------

    def append(self, key: str, given: Sequence[Record]) -> Answer:
        """Add lines."""
        first = self.head
        self.present.lines += stamped(key, given)
        return self._answer(key, first, None)

    def checkpoint(self, key: str, *, shown: bool) -> Answer:
        """Add a checkpoint."""
        number = self.next_id
        first = self.head
        self.present.lines += stamped(key, [own(number), *([notice(number)] if shown else [])])
        return self._answer(key, first, number)

    def prompted(self, key: str, text: str) -> Answer:
        """Put a system prompt first."""
        record = {"role": "_system_prompt", "content": text}
        if not self.present.lines:
            return self.append(key, [record])
        old = self.present
        kept = [each for each in old.lines if each.record["role"] != "_system_prompt"]
        return self._rewritten(key, [*stamped(key, [record]), *kept], old.parents)

    # --- rewrites --------------------------------------------------------------------------------

    def revert(self, key: str, number: int) -> Answer:
        """Drop a checkpoint and what follows."""
        at, line = self._find(number)
        source = self.generations[at]
        return self._rewritten(key, source.lines[:line], source.parents)

    def clear(self, key: str) -> Answer:
        """Drop everything."""
        return self._rewritten(key, [], ())

    def restore(self, key: str, generation: int) -> Answer:
        """Bring a generation back; the mail that waits expires."""
        if not 0 <= generation < self.number:
            raise NotFound("no such generation")
        source = self.generations[generation]
        answer = self._rewritten(key, source.lines, source.parents)
        self.mail = None
        return answer

    def begin(self, preserve: int) -> Begun | None:
        """Choose what a compaction summarises, and reserve its checkpoint's id."""
        if self.lease is not None and self.lease.generation == self.number:
            raise Busy("another compaction has the lease")
        number = self.next_id
        messages = [
            at for at, line in enumerate(self.present.lines) if line.record["role"][0] != "_"
        ]
        counted = [at for at in messages if not _is_notice(self.present.lines[at].record)]
        cut = counted[-preserve] if 0 < preserve <= len(counted) else None
        self.lease = None
        if cut is None or cut == messages[0]:
            self.unreserved = max(self.unreserved, number)
            return None
        self.lease = Begun(self.number, cut, len(self.present.lines), number)
        self.reserved.append((self.number, number))
        self.unreserved = number + 1
        return self.lease

    def abort(self) -> None:
        """Give a compaction up; its id is given out again if it was the last."""
        if self.lease is not None and self.unreserved == self.lease.number + 1:
            self.unreserved = self.lease.number
        self.lease = None

    def commit(self, key: str, begun: Begun, summary: Record) -> Answer:
        """Put a summary in place of the lines that it summarises."""
        if begun.generation != self.number:
            raise Conflict("the session was rewritten")
        old = self.present
        later = [number for number, line in old.checkpoints if line >= begun.at]
        if later and begun.number >= later[0]:
            raise Conflict("the reserved id was given out")
        is_kept = bool(later) or begun.number < max(old.n_checkpoints, self.unreserved)
        number = begun.number if is_kept else old.n_checkpoints
        prompts = [each for each in old.lines if each.record["role"] == "_system_prompt"]
        found = old.lines[begun.cut : begun.at]
        kept = [each for each in found if each.record["role"][0] != "_"] + old.lines[begun.at :]
        tokens = len(summary["content"]) // 4 + sum(each.chars for each in kept) // 4
        made = stamped(key, [own(number), summary])
        usage = stamped(key, [{"role": "_usage", "token_count": tokens}])
        lines = [*prompts[-1:], *made, *kept, *usage]
        return self._rewritten(key, lines, ((self.number, number), *old.parents), number)

    # --- mail ------------------------------------------------------------------------------------

    def send(self, key: str, number: int, text: str, replaces: str | None) -> Answer:
        """Send a D-Mail back to a checkpoint."""
        if self.mail is not None and self.mail.key != replaces:
            raise Exists("one waits already")
        at, line = self._find(number)
        self.mail = Letter(key, number, text, self.generations[at].lines[line].stamp)
        return self._answer(key, self.head, number)

    def deliver(self, key: str, mail_id: str, *, shown: bool) -> Answer:
        """Deliver the mail that waits."""
        mail = self.mail
        if mail is None or mail.key != mail_id:
            raise NotFound("it does not wait")
        at, line = self._find(mail.number)
        source = self.generations[at]
        letter = json.loads(records.dmail_message(mail.text))
        number = self.next_id
        shows = [notice(number)] if shown else []
        lines = [*source.lines[:line], *stamped(key, [own(number), *shows, letter])]
        answer = self._rewritten(key, lines, source.parents, number)
        self.mail = None
        return answer

    # --- common parts ----------------------------------------------------------------------------

    def _find(self, number: int) -> tuple[int, int]:
        """Generation and line of a checkpoint that can be gone back to."""
        if 0 <= number < self.present.n_checkpoints:
            behind = [at for at, own_id in self.present.parents if number < own_id]
            for at in (self.number, *behind):
                for found, line in self.generations[at].checkpoints:
                    if found == number:
                        return at, line
        raise NotFound("no such checkpoint")

    def _rewritten(
        self,
        key: str,
        lines: Sequence[Line],
        parents: tuple[tuple[int, int], ...],
        checkpoint_id: int | None = None,
    ) -> Answer:
        self.generations.append(Generation(list(lines), parents, self.next_id))
        self.unreserved = 0
        if self.mail is not None and not self._is_bound(self.mail):
            self.mail = None
        return self._answer(key, self.head, checkpoint_id)

    def _is_bound(self, mail: Letter) -> bool:
        try:
            at, line = self._find(mail.number)
        except NotFound:
            return False
        return self.generations[at].lines[line].stamp == mail.bound

    def _answer(self, key: str, first: str, checkpoint_id: int | None) -> Answer:
        answer = self.answers[key] = first, self.head, checkpoint_id
        return answer


@dataclass(slots=True)
class WireFile:
    """The wire file: each event and the context's durable head when it was written."""

    events: list[tuple[Line, str]] = field(default_factory=list[tuple[Line, str]])
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])

    def copy(self) -> "WireFile":
        """An independent copy."""
        return deepcopy(self)

    def append(self, key: str, given: Sequence[Record], at: str) -> Answer:
        """Add events; the first ones come behind a header, which is line 0."""
        first = 1 + len(self.events)
        self.events += [(line, at) for line in stamped(key, given)]
        answer = self.answers[key] = f"0:{first}", f"0:{first + len(given)}", None
        return answer


def stamped(key: str, given: Sequence[Record]) -> list[Line]:
    """The lines of one command."""
    count = len(given)
    names = [key] if count == 1 else [f"{key}.{number}/{count}" for number in range(count)]
    return [Line(name, record) for name, record in zip(names, given, strict=True)]


def own(number: int) -> Record:
    """The record of a checkpoint."""
    return {"role": "_checkpoint", "id": number}


def notice(number: int) -> Record:
    """The message that shows a checkpoint to the model."""
    return {"role": "user", "content": f"<system>CHECKPOINT {number}</system>"}


def _is_notice(record: Record) -> bool:
    return str(record["content"]).startswith("<system>CHECKPOINT ")


REFUSALS = (BadRequest, Busy, Conflict, Exists, NotFound)
"""The errors that the model raises."""
