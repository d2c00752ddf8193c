"""A whole session against a model of lists: commands, repeats, deaths, clocks, and who follows.

`STENO_MODEL_EXAMPLES=1000` plays more of them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from model.guards import MUTANTS, NOTICED
from model.session import REFUSALS, Begun, Line, Record, Session, Told, WireFile
from model.stage import DEATHS, Mirror, Stage
from steno_protocol import paths
from steno_protocol.commands import Mutation
from steno_protocol.errors import StenoError
from steno_protocol.replies import Ack, Compaction
from stenod.core.keys import KeyTable
from support import lines
from support.simulated_disk import MOMENTS, PowerCut
from support.wire_writing import append_wire, event

TESTS = Path(__file__).parents[1]
EXAMPLES = int(os.environ.get("STENO_MODEL_EXAMPLES", "40"))
STEPS = int(os.environ.get("STENO_MODEL_STEPS", "30"))
PLAYED_S_MAX = 590
"""For all sessions of a mutant; 15 s of work for a processor that others may want, too."""
KEYS_MAX = 4
"""Keys that the daemon keeps in memory here, so that most are looked up."""

HOUR_S = 3600.0
CLOCK_STEPS_S = [0.001, 1.0, HOUR_S, -HOUR_S, 3 * 365 * 24 * HOUR_S, -3 * 365 * 24 * HOUR_S]
TEXTS = st.sampled_from(["", "hi", "what is next?", "\u2028é\U0001f600"])
IDS = st.sampled_from([0, 0, 1, 1, 2, 3, 5])


@dataclass(frozen=True, slots=True)
class Order:
    """A command of the context and what it means to the model."""

    command: Callable[[bool], Mutation]
    records: Sequence[bytes]
    apply: Callable[[Session], Told]


@dataclass(frozen=True, slots=True)
class WireOrder:
    """A command of the wire file, as `Order`; the context's durable head comes with it."""

    command: Callable[[bool], Mutation]
    records: Sequence[bytes]
    apply: Callable[[WireFile, str], Told]


class WholeSession(RuleBasedStateMachine):
    """The session as it is, and as the model says: durable first, then after each written command.

    Attributes:
        states: the durable state, and one after each command that is written and not yet synced.
        wires: the same of the wire file.
    """

    @initialize(seed=st.integers(0, 2**32))
    def begin_session(self, seed: int) -> None:
        """A new session."""
        self._patch = patch.object(KeyTable.__init__, "__defaults__", (KEYS_MAX,))
        self._patch.start()
        self.stage = Stage(seed)
        self.states = [Session()]
        self.wires = [WireFile()]
        self.orders: dict[str, Order] = {}
        self.wire_orders: dict[str, WireOrder] = {}
        self.begun: list[Begun] = []
        self.death = "killed"
        self._keys = 0

    def teardown(self) -> None:
        """Leave nothing running."""
        if hasattr(self, "stage"):
            self.stage.close()
            self._patch.stop()

    # --- commands --------------------------------------------------------------------------------

    @rule(data=st.data(), count=st.integers(1, 3), text=TEXTS, is_synced=st.booleans())
    def append(self, data: st.DataObject, count: int, text: str, is_synced: bool) -> None:
        """Messages, synced or written."""
        roles = data.draw(st.lists(st.sampled_from(["user", "assistant"]), min_size=count))
        given = [{"role": role, "content": f"{text} {self._keys}"} for role in roles]
        key = self._key(data)
        durability = "synced" if is_synced else "written"
        self._do(
            key,
            lambda repeat: lines.append(key, repeat=repeat, durability=durability),
            [json.dumps(record, ensure_ascii=False).encode() for record in given],
            lambda session: session.append(key, given),
        )

    @rule(data=st.data(), shown=st.booleans())
    def checkpoint(self, data: st.DataObject, shown: bool) -> None:
        """A checkpoint."""
        key = self._key(data)
        self._do(
            key,
            lambda repeat: lines.checkpoint(key, repeat=repeat, add_user_message=shown),
            [],
            lambda session: session.checkpoint(key, shown=shown),
        )

    @rule(data=st.data(), count=st.integers(0, 9999))
    def usage(self, data: st.DataObject, count: int) -> None:
        """A token count."""
        key = self._key(data)
        record = {"role": "_usage", "token_count": count}
        self._do(
            key,
            lambda repeat: lines.usage(key, count, repeat=repeat),
            [],
            lambda session: session.append(key, [record]),
        )

    @rule(data=st.data(), text=TEXTS)
    def prompt(self, data: st.DataObject, text: str) -> None:
        """A system prompt."""
        key = self._key(data)
        self._do(
            key,
            lambda repeat: lines.prompt(key, text, repeat=repeat),
            [],
            lambda session: session.prompted(key, text),
        )

    @rule(data=st.data())
    def revert(self, data: st.DataObject) -> None:
        """A revert."""
        key, number = self._key(data), self._id(data)
        self._do(
            key,
            lambda repeat: lines.revert(key, number, repeat=repeat),
            [],
            lambda session: session.revert(key, number),
        )

    @rule(data=st.data(), generation=IDS)
    def restore(self, data: st.DataObject, generation: int) -> None:
        """A generation of the past."""
        key = self._key(data)
        self._do(
            key,
            lambda repeat: lines.restore(key, generation, repeat=repeat),
            [],
            lambda session: session.restore(key, generation),
        )

    @rule(data=st.data())
    def clear(self, data: st.DataObject) -> None:
        """Nothing is left."""
        key = self._key(data)
        self._do(
            key,
            lambda repeat: lines.clear(key, repeat=repeat),
            [],
            lambda session: session.clear(key),
        )

    @rule(data=st.data(), is_replacing=st.booleans())
    def send_mail(self, data: st.DataObject, is_replacing: bool) -> None:
        """A D-Mail to a checkpoint."""
        key, waiting, number = self._key(data), self.said.mail, self._id(data)
        replaces = waiting.key if waiting is not None and is_replacing else None
        self._do(
            key,
            lambda repeat: lines.mail(key, number, f"go {key}", replaces=replaces, repeat=repeat),
            [],
            lambda session: session.send(key, number, f"go {key}", replaces),
        )

    @rule(data=st.data(), shown=st.booleans(), is_known=st.integers(0, 5))
    def deliver_mail(self, data: st.DataObject, shown: bool, is_known: int) -> None:
        """The delivery of the mail that waits, or of one that does not."""
        key, waiting = self._key(data), self.said.mail
        mail = waiting.key if waiting is not None and is_known else "nobody"
        self._do(
            key,
            lambda repeat: lines.deliver(key, mail, add_user_message=shown, repeat=repeat),
            [],
            lambda session: session.deliver(key, mail, shown=shown),
        )

    @rule(preserve=st.integers(0, 3))
    def begin_compaction(self, preserve: int) -> None:
        """What is there to summarise?"""
        self._keys += 1
        after = self.said.copy()
        expected = _outcome(lambda: after.begin(preserve))
        command = lines.compact_begin(f"lease-{self._keys}", preserve=preserve)
        answer = self.stage.begin(command)
        if answer is None:
            self._live_again([*self.states, after])
            return
        if isinstance(expected, type):
            assert type(answer) is expected, answer
        else:
            assert isinstance(answer, Compaction), answer
            assert _begun(answer) == expected
            self.states = [after]
        if self.stage.has_died:
            self._live_again(self.states)
        if isinstance(expected, Begun):
            self.begun.append(expected)
            self._lease = command.lease

    @precondition(lambda self: self.said.lease is not None)
    @rule()
    def abort_compaction(self) -> None:
        """The compactor gives up."""
        self.stage.abort(self._lease)
        for state in self.states:
            state.abort()

    @precondition(lambda self: bool(self.begun))
    @rule(data=st.data(), newest=st.integers(0, 5))
    def commit_compaction(self, data: st.DataObject, newest: int) -> None:
        """A summary, most of the time of the newest compaction."""
        key = self._key(data)
        begun = self.begun[-1] if newest else data.draw(st.sampled_from(self.begun))
        summary = {"role": "user", "content": f"in short {key}"}
        cut, at = f"{begun.generation}:{begun.cut}", f"{begun.generation}:{begun.at}"
        self._do(
            key,
            lambda repeat: lines.compact(key, cut, at, begun.number, repeat=repeat),
            [json.dumps(summary).encode()],
            lambda session: session.commit(key, begun, summary),
        )

    @rule(data=st.data(), count=st.integers(1, 3), is_synced=st.booleans())
    def append_wire(self, data: st.DataObject, count: int, is_synced: bool) -> None:
        """Events."""
        key = self._key(data)
        given = [event(number, key) for number in range(count)]
        durability = "synced" if is_synced else "written"
        records = [{"role": "event", "content": json.loads(each)} for each in given]
        order = WireOrder(
            lambda repeat: append_wire(key, repeat=repeat, durability=durability),
            given,
            lambda wire, at: wire.append(key, records, at),
        )
        self.wire_orders[key] = order
        self._do_wire(key, order)

    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        """A compaction from its beginning to its end, and something to summarise."""
        for _ in range(3):
            self.append(data, count=1, text="hi", is_synced=True)
        self.begin_compaction(preserve=1)
        if self.begun:
            self.commit_compaction(data, newest=1)

    # --- repeats ---------------------------------------------------------------------------------

    @precondition(lambda self: bool(self.said.answers))
    @rule(data=st.data(), is_told=st.booleans())
    def repeat(self, data: st.DataObject, is_told: bool) -> None:
        """A command that was applied once, sent again: only a uuid7 has to be told to be one."""
        key = data.draw(st.sampled_from(sorted(self.said.answers)))
        self._ask(self.orders[key], self.said.answers[key], is_told or key[0] != "j")

    @precondition(lambda self: bool(self.wire_said.answers))
    @rule(data=st.data())
    def repeat_wire(self, data: st.DataObject) -> None:
        """The same of the wire file."""
        key = data.draw(st.sampled_from(sorted(self.wire_said.answers)))
        self._ask_wire(self.wire_orders[key], self.wire_said.answers[key])

    # --- accidents -------------------------------------------------------------------------------

    @rule(step_s=st.sampled_from(CLOCK_STEPS_S))
    def turn_the_clock(self, step_s: float) -> None:
        """Time passes, or somebody sets the clock."""
        self.stage.wall_s += step_s
        self.stage.disk.now_s = self.stage.wall_s

    @rule()
    def end(self) -> None:
        """A daemon ends, and another begins."""
        if self.stage.end():
            self._start(self.states[-1:], self.wires[-1:])
        else:
            self._live_again(self.states)

    @rule(death=st.sampled_from(sorted(DEATHS)))
    def die(self, death: str) -> None:
        """A daemon dies between two commands."""
        self.death = death
        self._live_again(self.states)

    @rule(death=st.sampled_from(sorted(DEATHS)), call=st.integers(0, 12), data=st.data())
    def plan_death(self, death: str, call: int, data: st.DataObject) -> None:
        """A daemon is going to die in the middle of something."""
        self.death = death
        disk, moment = self.stage.disk, data.draw(st.sampled_from(MOMENTS))
        plan = disk.crash_at if DEATHS[death] is PowerCut else disk.kill_at
        plan(len(disk.calls) + call, moment)

    # --- how a command goes ----------------------------------------------------------------------

    @property
    def said(self) -> Session:
        """The context with all that was answered."""
        return self.states[-1]

    @property
    def wire_said(self) -> WireFile:
        """The wire file with all that was answered."""
        return self.wires[-1]

    def _key(self, data: st.DataObject) -> str:
        self._keys += 1
        if data.draw(st.booleans()):
            return f"job-{self._keys}"
        return lines.uuid7(int(self.stage.wall_s * 1000), self._keys)

    def _id(self, data: st.DataObject) -> int:
        """The id of a checkpoint that can be gone back to, or of one that cannot."""
        present = self.said.present
        known = [present, *(self.said.generations[at] for at, _ in present.parents)]
        ids = {number for generation in known for number, _ in generation.checkpoints}
        return data.draw(st.sampled_from(sorted({*ids, present.n_checkpoints})))

    def _do(
        self,
        key: str,
        command: Callable[[bool], Mutation],
        records: Sequence[bytes],
        apply: Callable[[Session], Told],
    ) -> None:
        order = self.orders[key] = Order(command, records, apply)
        after = self.said.copy()
        expected = _outcome(lambda: apply(after))
        answer = self.stage.ask(command(False), records)
        if answer is None:
            self._live_again([*self.states, after])
            self._finish(key, order)
        elif isinstance(expected, type):
            assert type(answer) is expected, answer
        else:
            self.states.append(after)
            _check_ack(answer, expected, duplicate=False)
        self._after(answer)

    def _finish(self, key: str, order: Order) -> None:
        """The daemon died instead of an answer: whoever sent it sends it again."""
        known = self.said.answers.get(key)
        if known is not None:
            self._ask(order, known, is_told=True)
            return
        after = self.said.copy()
        expected = _outcome(lambda: order.apply(after))
        answer = self.stage.ask(order.command(True), order.records)
        if isinstance(expected, type):
            assert type(answer) is expected, answer
        else:
            self.states.append(after)
            _check_ack(answer, expected, duplicate=False)

    def _ask(self, order: Order, known: Told, is_told: bool) -> None:
        answer = self.stage.ask(order.command(is_told), order.records)
        if answer is not None:
            _check_ack(answer, known, duplicate=True)
        self._after(answer)

    def _do_wire(self, key: str, order: WireOrder) -> None:
        after = self.wire_said.copy()
        expected = order.apply(after, self.states[0].head)
        answer = self.stage.ask(order.command(False), order.records)
        if answer is None:
            self._live_again(self.states, [*self.wires, after])
            known = self.wire_said.answers.get(key)
            answer = self.stage.ask(order.command(True), order.records)
            if known is not None:
                _check_ack(answer, known, duplicate=True)
                return
            after = self.wire_said.copy()
            expected = order.apply(after, self.states[0].head)
        self.wires.append(after)
        _check_ack(answer, expected, duplicate=False)
        self._after_wire(answer)

    def _ask_wire(self, order: WireOrder, known: Told) -> None:
        answer = self.stage.ask(order.command(True), order.records)
        if answer is not None:
            _check_ack(answer, known, duplicate=True)
        self._after_wire(answer)

    def _after(self, answer: Ack | StenoError | None) -> None:
        """An answer that says synced holds, also when a death came right behind it."""
        if isinstance(answer, Ack) and answer.durability == "synced":
            self.states = self.states[-1:]
        if self.stage.has_died:
            self._live_again(self.states)
        self._forget_unsynced()

    def _after_wire(self, answer: Ack | StenoError | None) -> None:
        if isinstance(answer, Ack) and answer.durability == "synced":
            self.wires = self.wires[-1:]
        if self.stage.has_died:
            self._live_again(self.states)

    def _forget_unsynced(self) -> None:
        """Believe the daemon about which of the states is durable, as long as it is one of them."""
        head = str(self.stage.machine.head)
        heads = [state.head for state in self.states]
        assert head in (heads[0], heads[-1]), f"{head} is durable, of {heads}"
        if head == heads[-1]:
            self.states = self.states[-1:]

    def _live_again(
        self, states: Sequence[Session], wires: Sequence[WireFile] | None = None
    ) -> None:
        """The daemon is dead: the next one finds one of these states, and never less than it may.

        What was written lives through the death of a daemon, and not through a power cut.
        """
        wires = self.wires if wires is None else wires
        if self.death == "killed":
            states, wires = states[len(self.states) - 1 :], wires[len(self.wires) - 1 :]
        self.stage.kill(DEATHS[self.death])
        self._start(states, wires)

    def _start(self, states: Sequence[Session], wires: Sequence[WireFile]) -> None:
        self.stage.start()
        found = self._found()
        possible = [state.reopened() for state in states]
        matching = [state for state in possible if _seen(state) == found]
        assert matching, f"{found} is none of {[_seen(state) for state in possible]}"
        events = self._events()
        kept = [wire for wire in wires if wire.events == events]
        assert kept, f"{events} are none of {[wire.events for wire in wires]}"
        self.states, self.wires = [matching[-1]], [kept[-1]]

    # --- what has to be true ---------------------------------------------------------------------

    def _found(self) -> object:
        """What the files and the daemon say, in the words of `_seen`."""
        machine = self.stage.machine
        mail = machine.mail
        generations = []
        for number in range(machine.head.generation + 1):
            is_present = number == machine.head.generation
            name = paths.CONTEXT if is_present else paths.generation_file(number + 1)
            generations.append(_lines(self.stage.file(name)))
        told = None if mail is None else (mail.id, mail.checkpoint_id, mail.message)
        return generations, told, machine.unreserved_id

    def _events(self) -> list[tuple[Line, str]]:
        found = [json.loads(line) for line in self.stage.file(paths.WIRE).splitlines()]
        if found:
            assert found.pop(0) == {"type": "metadata", "protocol_version": "1.10"}
        return [(_event_line(record), record["_at"]) for record in found]

    @invariant()
    def files_are_what_the_model_says(self) -> None:
        """Every generation line by line, the mail, and the wire file."""
        assert self._found() == _seen(self.said)
        assert self._events() == self.wire_said.events

    @invariant()
    def the_daemon_says_what_the_model_says(self) -> None:
        """Its numbers at the durable head."""
        machine, present = self.stage.machine, self.states[0].present
        counters = machine.counters
        assert str(machine.head) == self.states[0].head
        assert str(machine.tentative_head) == self.said.head
        assert counters.n_checkpoints == present.n_checkpoints
        assert (counters.token_count, counters.token_count_with_pending) == present.tokens
        assert counters.has_system_prompt == (present.prompt is not None)

    @invariant()
    def who_follows_sees_what_the_model_says(self) -> None:
        """Who followed all the time, and who begins now."""
        self.stage.settle()
        for mirror in (self.stage.mirror, self.stage.follow()):
            self._check_mirror(mirror)
        durable = len(self.wires[0].events)
        found = [json.loads(line) for line in self.stage.wire_mirror.lines[1:]]
        assert len(found) >= durable
        events = [(_event_line(record), record["_at"]) for record in found]
        assert events == self.wire_said.events[: len(events)]

    def _check_mirror(self, mirror: Mirror) -> None:
        state, durable = mirror.state, self.states[0]
        present, mail = durable.present, self.said.mail
        assert str(state.head) == durable.head
        assert state.history == present.history
        assert (state.token_count, state.token_count_with_pending) == present.tokens
        assert state.n_checkpoints == present.n_checkpoints
        assert state.system_prompt == present.prompt
        told = mirror.mail
        waits = told.id if told is not None and told.state == "sent" else None
        assert waits == (mail.key if mail is not None else None)


def _outcome(apply: Callable[[], Any]) -> Any:
    """What the model says to a command, or the type of its refusal."""
    try:
        return apply()
    except REFUSALS as error:
        return type(error)


def _check_ack(answer: Ack | StenoError | None, expected: Told, *, duplicate: bool) -> None:
    assert isinstance(answer, Ack), repr(answer)
    assert (answer.first, answer.head, answer.checkpoint_id) == expected
    assert answer.duplicate == duplicate


def _begun(answer: Compaction) -> Begun | None:
    if not answer.messages:
        return None
    generation, cut = map(int, answer.cut.split(":"))
    return Begun(generation, cut, int(answer.at.split(":")[1]), answer.checkpoint_id)


def _seen(session: Session) -> object:
    """What of a session another program can see."""
    mail = session.mail
    told = None if mail is None else (mail.key, mail.number, mail.text)
    return [each.lines for each in session.generations], told, session.unreserved


def _lines(data: bytes) -> list[Line]:
    return [_line(json.loads(line)) for line in data.splitlines()]


def _line(record: Record) -> Line:
    stamp = record.pop("_id")
    return Line(stamp, record)


def _event_line(record: Record) -> Line:
    return Line(record["_id"], {"role": "event", "content": _given(record)})


def _given(record: Record) -> Record:
    return {key: value for key, value in record.items() if not key.startswith("_")}


@pytest.mark.slow
def test_a_session_is_what_a_model_of_lists_says_whatever_happens_to_its_daemon() -> None:
    run_state_machine_as_test(
        WholeSession,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.slow
@pytest.mark.timeout(PLAYED_S_MAX + 10)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_model_notices_a_missing_guard(mutant: str) -> None:
    """In a process of its own: what is drawn depends on what is imported, and what breaks leaks."""
    played = subprocess.run(
        [sys.executable, "-m", "model.mutants", mutant],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        capture_output=True,
        timeout=PLAYED_S_MAX,
        check=False,
    )
    assert played.returncode == NOTICED, f"{mutant}: {played.stderr.decode()[-2000:]}"
