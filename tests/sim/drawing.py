"""Commands that clients ask for, drawn from the seed with their records."""

import json
import random
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from sim.orders import Change, Fate, Order
from steno_protocol import commands
from steno_protocol.positions import Position
from steno_protocol.replies import Ack, Compaction
from support.lines import SESSION, user, uuid7
from support.wire_writing import encode_event, event

Drawn = tuple[type[commands.Mutation], dict[str, Any], list[bytes]]
"""A kind of command, the fields that only this kind has, and the records."""

WRITER_WEIGHTS = {
    "append": 10, "batch": 6, "call": 3, "result": 3, "checkpoint": 5, "usage": 2, "prompt": 1,
    "revert": 3, "clear": 1, "restore": 1, "compact": 4, "mail": 3, "deliver": 4,
}  # fmt: skip

INTRUDED_WEIGHTS = {
    "append": 12, "batch": 5, "event": 6, "events": 3, "checkpoint": 4, "revert": 2, "clear": 1,
    "restore": 1,
}  # fmt: skip
"""Beside a program that changes the files at any time: only kinds that can be judged there."""

AGENT_WEIGHTS = {
    "append": 40, "batch": 15, "checkpoint": 10, "usage": 8, "revert": 10, "clear": 4, "restore": 4,
    "prompt": 4,
}  # fmt: skip

FULL_WEIGHTS = {
    "event": 16, "mail": 8, "deliver": 5, "fork": 2, "checkpoint": 6, "revert": 4, "restore": 2,
}  # fmt: skip

WIRE_SHARE = 0.4
"""Of a writer's orders in a world of both files, or of a stream."""

STREAM_NAME = "notes"
"""The stream that is written."""

CONTEXT_SHARE = 0.5
"""Of an agent's orders in the world of everything; the rest are of `FULL_WEIGHTS`."""

MOVES_SHARE = 0.25
"""Of an agent's orders in the world of moves: renames and restorations."""

SPARED_SHARE = 0.8
"""Of the deletions in the world of everything: most sessions have a life worth judging."""

WRITTEN_SHARE = 0.3
"""Of the appends in the world of everything, beside those that are drawn so anyway."""


def pick(chance: random.Random, weights: dict[str, int]) -> str:
    """One of these kinds."""
    return chance.choices(list(weights), list(weights.values()))[0]


class WriterDrawing:
    """Draws the orders of one session's writers.

    Args:
        chance: decides everything.
        wall_s: the clients' clock.

    Attributes:
        orders: everything that was drawn.
        begun: every compaction that was begun.
    """

    def __init__(self, chance: random.Random, wall_s: Callable[[], float]) -> None:
        self.orders: list[Order] = []
        self.begun: list[Compaction] = []
        self._chance = chance
        self._wall_s = wall_s

    def draw(self, head: Position, *, has_wire: bool, stream_head: Position | None) -> Order:
        """Draw an order of a client that last saw the session end at `head`.

        Args:
            head: the end of the context.
            has_wire: draw events, too.
            stream_head: the end of the stream, if there is one.
        """
        chance = self._chance
        if stream_head is not None and chance.random() < WIRE_SHARE:
            return self._draw_stream(stream_head)
        if has_wire and chance.random() < WIRE_SHARE:
            return self._draw_events()
        key = self._key(chance.random() < 0.7, "job")
        expect = str(head) if chance.random() < 0.1 else None
        durability = "written" if chance.random() < 0.2 else "synced"
        how = {"expect": expect, "durability": durability, "by": chance.choice([None, "planner"])}
        kind, fields, records = self._draw_change(pick(chance, WRITER_WEIGHTS), head)
        if kind is commands.CompactCommit:
            fields["lease"] = key
        return self._add(kind(session=SESSION, key=key, **how, **fields), records)

    def draw_intruded(self) -> Order:
        """Draw an order beside another program."""
        chance, number = self._chance, len(self.orders)
        key = self._key(chance.random() < 0.5, "ours", "-")
        kind = pick(chance, INTRUDED_WEIGHTS)
        count = chance.randint(2, 3) if kind in ("batch", "events") else 1
        is_written = chance.random() < 0.15
        how: dict[str, Any] = {"durability": "written" if is_written else "synced"}
        made: type[commands.Mutation] = commands.Append
        records: list[bytes] = []
        match kind:
            case "append" | "batch":
                records = [user(f"ours-{number}-{part}") for part in range(count)]
            case "event" | "events":
                made = commands.AppendWire
                records = [event(number, f"ours-{part}") for part in range(count)]
            case "checkpoint":
                made = commands.Checkpoint
            case "revert":
                made, how["checkpoint_id"] = commands.RevertTo, chance.randint(0, 2)
            case "clear":
                made = commands.Clear
            case _:
                made, how["generation"] = commands.RestoreGeneration, chance.randint(0, 3)
        return self._add(made(session=SESSION, key=key, **how), records)

    def _key(self, is_uuid: bool, name: str, end: str = "") -> str:
        number = len(self.orders)
        return uuid7(int(self._wall_s() * 1000), number) if is_uuid else f"{name}-{number}{end}"

    def _add(self, command: commands.Mutation, records: list[bytes]) -> Order:
        order = Order(command, records, gives_up=self._chance.random() < 0.3)
        self.orders.append(order)
        return order

    def _draw_events(self) -> Order:
        chance, number = self._chance, len(self.orders)
        key = self._key(chance.random() < 0.7, "event")
        how = {"durability": chance.choice(["synced", "written"])}
        by = chance.choice([None, "planner"])
        count = chance.randint(1, 4)
        records = [event(part, f"{number} {part}" * part) for part in range(count)]
        return self._add(commands.AppendWire(session=SESSION, key=key, by=by, **how), records)

    def _draw_stream(self, head: Position) -> Order:
        chance, number = self._chance, len(self.orders)
        key = self._key(chance.random() < 0.7, "stream")
        how = {
            "durability": chance.choice(["synced", "written"]),
            "by": chance.choice([None, "planner"]),
            "expect": str(head) if chance.random() < 0.2 else None,
        }
        records = [
            b'{"n":%d, "part":%d,"text":"%s"}' % (number, part, b"x" * part * 40)
            for part in range(chance.randint(1, 4))
        ]
        return self._add(
            commands.AppendStream(session=SESSION, stream=STREAM_NAME, key=key, **how), records
        )

    def _draw_change(self, kind: str, head: Position) -> Drawn:
        chance, number = self._chance, len(self.orders)
        match kind:
            case "append":
                return commands.Append, {}, [user(f"{number}")]
            case "batch":
                parts = range(chance.randint(2, 5))
                return commands.Append, {}, [user(f"{number} {part}" * part) for part in parts]
            case "call":
                calls = [{"id": f"t{number % 2}", "type": "function"}]
                record = {"role": "assistant", "content": None, "tool_calls": calls}
                return commands.Append, {}, [_encode(record)]
            case "result":
                record = {"role": "tool", "content": "ok", "tool_call_id": f"t{number % 2}"}
                return commands.Append, {}, [_encode(record)]
            case "compact":
                return commands.CompactCommit, self._compaction(head), [user(f"summary {number}")]
            case "mail":
                bound = {"checkpoint_id": chance.choice([0, 0, 1, 2, 4])}
                return commands.SendDmail, {**bound, "message": "turn back"}, []
            case "deliver":
                fields = {"mail_id": self._mail_id(), "add_user_message": chance.random() < 0.5}
                return commands.DeliverDmail, fields, []
            case _:
                return _draw_plain(chance, kind, number, [0, 1, 2, 3], [0, 1, 2, 3])

    def _compaction(self, head: Position) -> dict[str, Any]:
        """The reply to the beginning of a compaction, new or old; sometimes made up."""
        chance = self._chance
        if not self.begun or chance.random() < 0.05:
            cut = Position(head.generation, chance.randint(0, head.line + 1))
            found = str(cut), str(head), chance.randint(0, 9)
        else:
            begun = self.begun[-1] if chance.random() < 0.8 else chance.choice(self.begun)
            found = begun.cut, begun.at, begun.checkpoint_id
        return dict(zip(("cut", "at", "checkpoint_id"), found, strict=True))

    def _mail_id(self) -> str:
        """A mail that a client knows of, the latest most of the time."""
        mails = [order for order in self.orders if order.is_mail]
        known = [order.key for order in mails if order.fate is Fate.DONE]
        if not known or self._chance.random() < 0.1:
            return mails[-1].key if mails else "nobody"
        return known[-1] if self._chance.random() < 0.8 else self._chance.choice(known)


class AgentDrawing:
    """Draws the orders of a daemon's agents.

    Args:
        chance: decides everything.
        sessions: the sessions that agents change.
        has_all: they write events, compact and send D-Mails, too.
        has_moves: they rename sessions and restore deleted ones, too.
    """

    def __init__(
        self, chance: random.Random, sessions: list[str], *, has_all: bool, has_moves: bool = False
    ) -> None:
        self._chance = chance
        self._sessions = sessions
        self._has_all = has_all
        self._has_moves = has_moves
        self._made: dict[str, bool] = {}
        self._number = 0
        self._mails: list[Order] = []

    def next_number(self) -> int:
        """A number that nothing else has."""
        self._number += 1
        return self._number

    def draw(self, by: str, orders: list[Order], wall_s: float) -> Order:
        """Draw a change of some session, with a key that is made now.

        Args:
            by: the agent.
            orders: its orders until now.
            wall_s: its clock.
        """
        if not self._has_all:
            return self._draw_usual(by, wall_s)
        if self._chance.random() < CONTEXT_SHARE:
            order = self._draw_usual(by, wall_s)
            while isinstance(order.command, commands.Delete) and (
                self._chance.random() < SPARED_SHARE
            ):
                order = self._draw_usual(by, wall_s)
        else:
            number, session = self.next_number(), self._chance.choice(self._sessions)
            key = uuid7(int(wall_s * 1000), number)
            order = self._draw_more({"session": session, "key": key, "by": by}, number, orders)
        is_append = isinstance(order.command, commands.Append)
        if is_append and self._chance.random() < WRITTEN_SHARE:
            order.command = replace(order.command, durability="written")
        order.after = _done_beside(order, orders)
        return order

    def _draw_usual(self, by: str, wall_s: float) -> Order:
        number = self.next_number()
        key = uuid7(int(wall_s * 1000), number)
        session = self._chance.choice(self._sessions)
        how = {"session": session, "key": key, "by": by}
        if self._has_moves and self._chance.random() < MOVES_SHARE:
            return self._draw_move(how, number)
        drawn = self._chance.random()
        if drawn < 0.07:
            return Order(commands.Delete(**how), [])
        if drawn < 0.11:
            self._made[f"fork-{number}"] = True
            return Order(commands.Fork(**how, new_session=f"fork-{number}"), [])
        return self._draw_change(how, number)

    def _draw_move(self, how: dict[str, Any], number: int) -> Order:
        """A deletion, a restoration, or a rename of a usual session, a fork or a renamed one."""
        drawn = self._chance.random()
        if drawn < 0.2:
            return Order(commands.Delete(**how), [])
        if drawn < 0.5:
            return Order(commands.Undelete(session=how["session"], key=how["key"]), [])
        if self._made and self._chance.random() < 0.5:
            how["session"] = self._chance.choice(list(self._made))
        # Sometimes one that was renamed comes back to a usual id, where agents change it again. A
        # fork does not: its verdict is about the instant at which it was made.
        session, target = how["session"], f"moved-{number}"
        is_fork = self._made.get(session, False)
        if session in self._made and not is_fork and self._chance.random() < 0.3:
            target = self._chance.choice(self._sessions)
        else:
            self._made[target] = is_fork
        return Order(commands.Rename(**how, new_session=target), [])

    def _draw_change(self, how: dict[str, Any], number: int) -> Order:
        chance = self._chance
        expect = f"0:{chance.randint(0, 6)}" if chance.random() < 0.05 else None
        durability = "written" if chance.random() < 0.2 else "synced"
        kind, fields, records = self._draw_kind(pick(chance, AGENT_WEIGHTS), number)
        if kind is commands.Append:
            fields["durability"] = durability
        return Order(kind(**how, expect=expect, **fields), records)

    def _draw_kind(self, kind: str, number: int) -> Drawn:
        chance = self._chance
        match kind:
            case "append":
                return commands.Append, {}, [user(f"{number}" * chance.choice([1, 30]))]
            case "batch":
                parts = range(chance.randint(2, 4))
                return commands.Append, {}, [user(f"{number} {part}") for part in parts]
            case _:
                return _draw_plain(chance, kind, number, [0, 1, 2], [0, 1, 2])

    def _draw_more(self, how: dict[str, Any], number: int, orders: list[Order]) -> Order:
        chance, session = self._chance, how["session"]
        kind = pick(chance, FULL_WEIGHTS)
        if kind == "deliver" and not self._known_mails(session):
            kind = "mail"
        if kind in ("mail", "revert") and not _has_checkpoint(orders, session):
            kind = "checkpoint"
        command: Change
        match kind:
            case "event":
                return self._draw_events(how, number)
            case "mail":
                order = Order(self._mail(how, number), [])
                self._mails.append(order)
                return order
            case "deliver":
                shown = chance.random() < 0.5
                mail = self._mail_id(session)
                command = commands.DeliverDmail(**how, mail_id=mail, add_user_message=shown)
            case "fork":
                cut = chance.choice([{"checkpoint_id": chance.randint(0, 2)}, {"undo": 1}])
                command = commands.Fork(**how, new_session=f"fork-{number}", **cut)
            case _:
                made, fields, _ = _draw_plain(chance, kind, number, [0, 0, 1, 2], [0, 0, 1])
                command = made(**how, **fields)
        return Order(command, [])

    def _draw_events(self, how: dict[str, Any], number: int) -> Order:
        chance = self._chance
        durability = "synced" if chance.random() < 0.3 else "written"
        expect = f"0:{chance.randint(0, 6)}" if chance.random() < 0.05 else None
        command = commands.AppendWire(**how, durability=durability, expect=expect)
        count = chance.choice([1, 1, 2, 4])
        kinds = [chance.choice(["TurnBegin", "TextPart"]) for _ in range(count)]
        records = [
            encode_event(kind, {"n": f"{number} {part}" * (part + 1)}, 1.5)
            for part, kind in enumerate(kinds)
        ]
        return Order(command, records)

    def _mail(self, how: dict[str, Any], number: int) -> commands.SendDmail:
        chance = self._chance
        replaces = self._mail_id(how["session"]) if chance.random() < 0.2 else None
        bound = chance.choice([0, 0, 0, 1, 2])
        return commands.SendDmail(
            **how, checkpoint_id=bound, message=f"turn back {number}", replaces=replaces
        )

    def _mail_id(self, session: str) -> str:
        """A mail to a session, the latest that is known to be there most of the time."""
        known = self._known_mails(session)
        if not known or self._chance.random() < 0.05:
            return "nobody"
        return known[-1] if self._chance.random() < 0.8 else self._chance.choice(known)

    def _known_mails(self, session: str) -> list[str]:
        mails = [order for order in self._mails if order.session == session]
        return [order.key for order in mails if order.is_acknowledged]


def _draw_plain(
    chance: random.Random, kind: str, number: int, checkpoints: list[int], generations: list[int]
) -> Drawn:
    """A change without records, back to one of these checkpoints or generations."""
    match kind:
        case "checkpoint":
            return commands.Checkpoint, {"add_user_message": chance.random() < 0.5}, []
        case "usage":
            return commands.UpdateTokenCount, {"token_count": number}, []
        case "prompt":
            return commands.WriteSystemPrompt, {"prompt": f"prompt {number}"}, []
        case "revert":
            return commands.RevertTo, {"checkpoint_id": chance.choice(checkpoints)}, []
        case "clear":
            return commands.Clear, {}, []
        case "restore":
            return commands.RestoreGeneration, {"generation": chance.choice(generations)}, []
        case _:
            raise AssertionError(kind)


def _encode(record: object) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


def _has_checkpoint(orders: list[Order], session: str) -> bool:
    """Whether an agent ever set a checkpoint in a session."""
    return any(
        isinstance(order.command, commands.Checkpoint) and order.session == session
        for order in orders
        if order.is_acknowledged
    )


def _done_beside(order: Order, orders: list[Order]) -> Order | None:
    """The agent's last order in the session's other file that it knows to be durable."""
    for other in reversed(orders):
        is_beside = other.is_event is not order.is_event and other.session == order.session
        if is_beside and other.replies and _is_durable(other.replies[0]):
            return other
    return None


def _is_durable(reply: object) -> bool:
    return isinstance(reply, Ack) and reply.durability == "synced"
