"""Appends in flight that are stored in the order of their lines.

Each append names the key of the one before it, which must be applied first. If the daemon refuses
one, it refuses all later ones, too, so that nothing is stored after the first failure. A line that
was refused only because its predecessor came late, as after `busy`, is sent again under its key.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

import msgspec

from steno._sansio.pending import Pending
from steno._sansio.requests import Durability, ack_of, mutation
from steno._sync.link import BlockingLink
from steno.values import Ack
from steno_protocol import replies
from steno_protocol.commands import Append
from steno_protocol.errors import Conflict, StenoError
from steno_protocol.limits import MIB
from steno_protocol.positions import Position

IN_FLIGHT_MAX: Final = 512
"""Lines in flight: more make no larger group commits, and a mailbox holds 4096 commands."""

IN_FLIGHT_BYTES_MAX: Final = 8 * MIB
"""Bytes in flight above which no line is added: the memory of a long input is bounded."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The last line that was acknowledged in its turn.

    Attributes:
        number: its number, for the caller.
        ack: its acknowledgement.
        lines: the acknowledged lines up to it, which are fewer than its number if some are blank.
    """

    number: int
    ack: Ack
    lines: int


@dataclass(slots=True)
class _Sent:
    """One line in flight; `pending` is None after an interrupt, when its outcome is unknown."""

    number: int
    lines: int
    record: bytes
    command: Append
    pending: Pending | None = None
    ack: Ack | None = None


class OrderedAppends:
    """A window of appends to one session, each with its own key and acknowledgement.

    An interrupt may end a call anywhere. Afterwards `settled` and `next_number` still say which
    lines are acknowledged, and `settle` goes on with the others.

    Args:
        link: the connection.
        session: the session, which exists.
        before: the line before the window, which was appended alone.
        durability: as in `BlockingSession.append_message`.
        is_alone: another writer's change is a Conflict; otherwise the lines follow it.

    Attributes:
        settled: the last acknowledged line, at first the one before the window.
    """

    def __init__(
        self,
        link: BlockingLink,
        session: str,
        before: Settled,
        durability: Durability,
        *,
        is_alone: bool,
    ) -> None:
        self._link = link
        self._session = session
        self.settled: Settled = before
        self._head = before.ack.head
        self._last_key = before.ack.key
        self._durability: Durability = durability
        self._is_alone = is_alone
        self._sent: deque[_Sent] = deque()
        self._sent_bytes = 0
        self._window = IN_FLIGHT_MAX

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def has_room(self) -> bool:
        """True while another line may be sent."""
        if not self._sent:
            return True
        return len(self._sent) < self._window and self._sent_bytes < IN_FLIGHT_BYTES_MAX

    @property
    def next_number(self) -> int:
        """The number of the oldest line in flight; without one, of the line after `settled`.

        A line that the caller took and that no call of `send` has stored here counts as not sent.
        """
        return self._sent[0].number if self._sent else self.settled.number + 1

    @property
    def is_answered(self) -> bool:
        """True if `settle` needs no wait."""
        first = self._sent[0] if self._sent else None
        return first is not None and first.pending is not None and first.pending.is_done

    def send(self, number: int, record: bytes, key: str | None) -> None:
        """Send a line without waiting for its acknowledgement.

        Args:
            number: its number, for the caller.
            record: its bytes.
            key: its idempotency key; None for a fresh one.
        """
        command = mutation(
            Append,
            self._session,
            self._link.name,
            key,
            self._head if self._is_alone else None,
            self._durability,
            after_key=self._last_key,
        )
        self._last_key = command.key
        self._head = Position(self._head.generation, self._head.line + 1)
        # Before it is sent: an interrupt while it is sent leaves a line that may be stored.
        sent = _Sent(number, self.settled.lines + len(self._sent) + 1, record, command)
        self._sent.append(sent)
        self._sent_bytes += len(record)
        sent.pending = self._link.begin(command, [record])

    def settle(self) -> Settled:
        """Wait for the acknowledgement of the oldest line, and return it as `settled`.

        After an error the line is still the oldest one; `drain` has to follow.

        Raises:
            StenoError: the line was not acknowledged.
        """
        first = self._sent[0]
        try:
            ack = self._outcome(first)
        except Conflict as error:
            if self._is_alone or error.head is None:
                raise
            ack = self._renew()
        self._window = min(self._window + 1, IN_FLIGHT_MAX)
        # In one step, and before the line leaves the window: after an interrupt between the two the
        # line is settled once more, from the acknowledgement that it has.
        self.settled = Settled(first.number, ack, first.lines)
        self._drop_first()
        return self.settled

    def drain(self) -> list[int]:
        """Wait for all lines in flight; returns the numbers of those that were stored."""
        stored: list[int] = []
        while self._sent:
            try:
                self._outcome(self._sent[0])
            except StenoError:
                pass
            else:
                stored.append(self._sent[0].number)
            self._drop_first()
        return stored

    # --- inside ----------------------------------------------------------------------------------

    def _drop_first(self) -> None:
        self._sent_bytes -= len(self._sent.popleft().record)

    def _outcome(self, sent: _Sent) -> Ack:
        if sent.ack is None:
            pending = sent.pending
            if pending is None:
                # Under the same key: if it was stored, this is answered with its first ack.
                sent.command = msgspec.structs.replace(sent.command, repeat=True)
                pending = self._link.begin(sent.command, [sent.record])
                sent.pending = pending
            try:
                reply, _ = self._link.finish(pending, replies.Ack)
            except StenoError:
                raise
            except BaseException:
                # An interrupt makes the connection forget the request.
                sent.pending = None
                raise
            sent.ack = ack_of(reply, sent.command.key)
        return sent.ack

    def _renew(self) -> Ack:
        """Send the refused lines of the window again; returns the ack of the oldest line.

        Its predecessor is acknowledged: the daemon answered them out of turn, or has forgotten the
        predecessor's key. All are answered first: a copy under way could overtake a new one.
        """
        refused = [sent for sent in self._sent if not self._is_stored(sent)]
        self._window = max(1, len(self._sent) // 2)
        refused[0].command = msgspec.structs.replace(refused[0].command, after_key=None)
        for sent in refused:
            sent.pending = None
            sent.pending = self._link.begin(sent.command, [sent.record])
        return self._outcome(self._sent[0])

    def _is_stored(self, sent: _Sent) -> bool:
        pending = sent.pending
        try:
            self._outcome(sent)
        except StenoError:
            # Another error than a conflict comes again, in its turn. The answer to a copy may have
            # been lost, so the daemon looks the key up in its files.
            is_repeat = sent.command.repeat or (pending is not None and pending.uncertain)
            sent.command = msgspec.structs.replace(sent.command, repeat=is_repeat)
            return False
        return True
