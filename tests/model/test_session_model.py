"""A whole session against a model of lists: commands, repeats, deaths, clocks, and followers.

`STENO_MODEL_EXAMPLES=1000` plays more of them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
from msgspec.structs import replace

from model.mutants import NOTICED
from model.session import REFUSALS, Answer, Begun, Line, Record, Session, WireFile
from model.stage import DEATHS, Mirror, Stage
from sim.mutants import CASES
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
    """A command and its effect on the model."""

    command: Mutation
    records: Sequence[bytes]
    apply: Callable[[Any], Answer]


@dataclass(eq=False, slots=True)
class Track:
    """One file of the session as it may be.

    Attributes:
        states: the durable state, and one after each command that is written and not yet synced.
        orders: every command by its key.
    """

    states: list[Any]
    orders: dict[str, Order] = field(default_factory=dict[str, Order])

    @property
    def newest(self) -> Any:
        """The state with every command that was answered."""
        return self.states[-1]


class WholeSession(RuleBasedStateMachine):
    """The session as it is, and as the model has it.

    Attributes:
        context: the context file, whose states are `Session`.
        wire: the wire file, whose states are `WireFile`.
    """

    @initialize(seed=st.integers(0, 2**32))
    def begin_session(self, seed: int) -> None:
        """Make a new session."""
        self._patch = patch.object(KeyTable.__init__, "__defaults__", (KEYS_MAX,))
        self._patch.start()
        self.stage = Stage(seed)
        self.context, self.wire = Track([Session()]), Track([WireFile()])
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
        """Append messages, synced or written."""
        roles = data.draw(st.lists(st.sampled_from(["user", "assistant"]), min_size=count))
        given = [{"role": role, "content": f"{text} {self._keys}"} for role in roles]
        key = self._key(data)
        self._do(
            lines.append(key, durability="synced" if is_synced else "written"),
            lambda session: session.append(key, given),
            [json.dumps(record, ensure_ascii=False).encode() for record in given],
        )

    @rule(data=st.data(), shown=st.booleans())
    def checkpoint(self, data: st.DataObject, shown: bool) -> None:
        """Set a checkpoint."""
        key = self._key(data)
        command = lines.checkpoint(key, add_user_message=shown)
        self._do(command, lambda session: session.checkpoint(key, shown=shown))

    @rule(data=st.data(), count=st.integers(0, 9999))
    def usage(self, data: st.DataObject, count: int) -> None:
        """Append a token count."""
        key = self._key(data)
        record = {"role": "_usage", "token_count": count}
        self._do(lines.usage(key, count), lambda session: session.append(key, [record]))

    @rule(data=st.data(), text=TEXTS)
    def prompt(self, data: st.DataObject, text: str) -> None:
        """Write a system prompt."""
        key = self._key(data)
        self._do(lines.prompt(key, text), lambda session: session.prompted(key, text))

    @rule(data=st.data())
    def revert(self, data: st.DataObject) -> None:
        """Revert to a checkpoint."""
        key, number = self._key(data), self._id(data)
        self._do(lines.revert(key, number), lambda session: session.revert(key, number))

    @rule(data=st.data(), generation=IDS)
    def restore(self, data: st.DataObject, generation: int) -> None:
        """Restore a generation of the past."""
        key = self._key(data)
        self._do(lines.restore(key, generation), lambda session: session.restore(key, generation))

    @rule(data=st.data())
    def clear(self, data: st.DataObject) -> None:
        """Clear the session."""
        key = self._key(data)
        self._do(lines.clear(key), lambda session: session.clear(key))

    @rule(data=st.data(), is_replacing=st.booleans())
    def send_mail(self, data: st.DataObject, is_replacing: bool) -> None:
        """Send a D-Mail to a checkpoint."""
        key, waiting, number = self._key(data), self.session.mail, self._id(data)
        replaces = waiting.key if waiting is not None and is_replacing else None
        command = lines.mail(key, number, f"go {key}", replaces=replaces)
        self._do(command, lambda session: session.send(key, number, f"go {key}", replaces))

    @rule(data=st.data(), shown=st.booleans(), is_known=st.integers(0, 5))
    def deliver_mail(self, data: st.DataObject, shown: bool, is_known: int) -> None:
        """Deliver the mail that waits, or one that does not."""
        key, waiting = self._key(data), self.session.mail
        mail = waiting.key if waiting is not None and is_known else "nobody"
        command = lines.deliver(key, mail, add_user_message=shown)
        self._do(command, lambda session: session.deliver(key, mail, shown=shown))

    @rule(preserve=st.integers(0, 3))
    def begin_compaction(self, preserve: int) -> None:
        """Ask for the lines to summarise."""
        self._keys += 1
        after = self.session.copy()
        expected = _outcome(lambda: after.begin(preserve))
        command = lines.compact_begin(f"lease-{self._keys}", preserve=preserve)
        answer = self.stage.begin(command)
        if answer is None:
            self._live_again(self.context, after)
            return
        if isinstance(expected, type):
            assert type(answer) is expected, answer
        else:
            assert isinstance(answer, Compaction), answer
            assert _begun(answer) == expected
            self.context.states = [after]
        if self.stage.has_died:
            self._live_again()
        if isinstance(expected, Begun):
            self.begun.append(expected)
            self._lease = command.lease

    @precondition(lambda self: self.session.lease is not None)
    @rule()
    def abort_compaction(self) -> None:
        """Give the compaction up."""
        self.stage.abort(self._lease)
        for state in self.context.states:
            state.abort()

    @precondition(lambda self: bool(self.begun))
    @rule(data=st.data(), newest=st.integers(0, 5))
    def commit_compaction(self, data: st.DataObject, newest: int) -> None:
        """Commit a summary, most of the time of the newest compaction."""
        key = self._key(data)
        begun = self.begun[-1] if newest else data.draw(st.sampled_from(self.begun))
        summary = {"role": "user", "content": f"in short {key}"}
        cut, at = f"{begun.generation}:{begun.cut}", f"{begun.generation}:{begun.at}"
        self._do(
            lines.compact(key, cut, at, begun.number),
            lambda session: session.commit(key, begun, summary),
            [json.dumps(summary).encode()],
        )

    @rule(data=st.data(), count=st.integers(1, 3), is_synced=st.booleans())
    def append_wire(self, data: st.DataObject, count: int, is_synced: bool) -> None:
        """Append events, which are joined to the durable head of the context."""
        key = self._key(data)
        given = [event(number, key) for number in range(count)]
        records = [{"role": "event", "content": json.loads(each)} for each in given]
        self._do(
            append_wire(key, durability="synced" if is_synced else "written"),
            lambda wire: wire.append(key, records, self.context.states[0].head),
            given,
            self.wire,
        )

    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        """Append something to summarise, and compact from the beginning to the commit."""
        for _ in range(3):
            self.append(data, count=1, text="hi", is_synced=True)
        self.begin_compaction(preserve=1)
        if self.begun:
            self.commit_compaction(data, newest=1)

    # --- repeats ---------------------------------------------------------------------------------

    @precondition(lambda self: bool(self.session.answers))
    @rule(data=st.data(), is_marked=st.booleans())
    def repeat(self, data: st.DataObject, is_marked: bool) -> None:
        """Send an applied command again: a key that is no uuid7 may come without the mark."""
        key = data.draw(st.sampled_from(sorted(self.session.answers)))
        self._ask_again(self.context, key, is_marked=is_marked or key[0] != "j")

    @precondition(lambda self: bool(self.wire.newest.answers))
    @rule(data=st.data())
    def repeat_wire(self, data: st.DataObject) -> None:
        """Send applied events again."""
        self._ask_again(self.wire, data.draw(st.sampled_from(sorted(self.wire.newest.answers))))

    # --- accidents -------------------------------------------------------------------------------

    @rule(step_s=st.sampled_from(CLOCK_STEPS_S))
    def turn_the_clock(self, step_s: float) -> None:
        """Let time pass, or set the clock."""
        self.stage.wall_s += step_s
        self.stage.disk.now_s = self.stage.wall_s

    @rule()
    def end(self) -> None:
        """End the daemon, and start another."""
        if self.stage.end():
            self._start(self.context.states[-1:], self.wire.states[-1:])
        else:
            self._live_again()

    @rule(death=st.sampled_from(sorted(DEATHS)))
    def die(self, death: str) -> None:
        """Kill the daemon between two commands."""
        self.death = death
        self._live_again()

    @rule(death=st.sampled_from(sorted(DEATHS)), call=st.integers(0, 12), data=st.data())
    def plan_death(self, death: str, call: int, data: st.DataObject) -> None:
        """Let the daemon die at one of the next calls to the disk."""
        self.death = death
        disk, moment = self.stage.disk, data.draw(st.sampled_from(MOMENTS))
        plan = disk.crash_at if DEATHS[death] is PowerCut else disk.kill_at
        plan(len(disk.calls) + call, moment)

    # --- how a command goes ----------------------------------------------------------------------

    @property
    def session(self) -> Session:
        """The context with every command that was answered."""
        return self.context.newest

    def _key(self, data: st.DataObject) -> str:
        self._keys += 1
        if data.draw(st.booleans()):
            return f"job-{self._keys}"
        return lines.uuid7(int(self.stage.wall_s * 1000), self._keys)

    def _id(self, data: st.DataObject) -> int:
        """The id of a checkpoint that can be gone back to, or of one that cannot."""
        present = self.session.present
        known = [present, *(self.session.generations[at] for at, _ in present.parents)]
        ids = {number for generation in known for number, _ in generation.checkpoints}
        return data.draw(st.sampled_from(sorted({*ids, present.n_checkpoints})))

    def _do(
        self,
        command: Mutation,
        apply: Callable[[Any], Answer],
        records: Sequence[bytes] = (),
        track: Track | None = None,
    ) -> None:
        track = track or self.context
        track.orders[command.key] = Order(command, records, apply)
        self._apply(track, command.key)

    def _apply(self, track: Track, key: str, *, repeat: bool = False) -> None:
        """Send a new command; if the daemon dies of it, send it again to the next one."""
        order, after = track.orders[key], track.newest.copy()
        expected = _outcome(lambda: order.apply(after))
        answer = self.stage.ask(replace(order.command, repeat=repeat), order.records)
        if answer is None:
            self._live_again(track, after)
            if key in track.newest.answers:
                self._ask_again(track, key)
            else:
                self._apply(track, key, repeat=True)
            return
        if isinstance(expected, type):
            assert type(answer) is expected, answer
        else:
            track.states.append(after)
            _check_ack(answer, expected, duplicate=False)
        self._after(track, answer)

    def _ask_again(self, track: Track, key: str, *, is_marked: bool = True) -> None:
        """Send an applied command again; the daemon may die of it."""
        order = track.orders[key]
        answer = self.stage.ask(replace(order.command, repeat=is_marked), order.records)
        if answer is not None:
            _check_ack(answer, track.newest.answers[key], duplicate=True)
        self._after(track, answer)

    def _after(self, track: Track, answer: Ack | StenoError | None) -> None:
        """Keep what a synced answer promises, also when a death came right behind it."""
        if isinstance(answer, Ack) and answer.durability == "synced":
            track.states = track.states[-1:]
        if self.stage.has_died:
            self._live_again()
        # Believe the daemon about the durable state, as long as it is one of them.
        states = self.context.states
        head, heads = str(self.stage.machine.head), [state.head for state in states]
        assert head in (heads[0], heads[-1]), f"{head} is durable, of {heads}"
        if head == heads[-1]:
            self.context.states = states[-1:]

    def _live_again(self, track: Track | None = None, after: Any = None) -> None:
        """Start the next daemon, which finds one of the possible states, and no older one.

        What was written survives the death of a daemon, and not a power cut.

        Args:
            track: the file that a command without an answer may have changed.
            after: its state then.
        """
        found: list[Sequence[Any]] = []
        for each in (self.context, self.wire):
            states = [*each.states, after] if each is track else each.states
            found.append(states[len(each.states) - 1 :] if self.death == "killed" else states)
        self.stage.kill(DEATHS[self.death])
        self._start(*found)

    def _start(self, sessions: Sequence[Session], wires: Sequence[WireFile]) -> None:
        self.stage.start()
        found = self._found()
        possible = [state.reopened() for state in sessions]
        matching = [state for state in possible if _seen(state) == found]
        assert matching, f"{found} is none of {[_seen(state) for state in possible]}"
        events = self._events()
        kept = [wire for wire in wires if wire.events == events]
        assert kept, f"{events} are none of {[wire.events for wire in wires]}"
        self.context.states, self.wire.states = [matching[-1]], [kept[-1]]

    # --- what has to be true ---------------------------------------------------------------------

    def _found(self) -> object:
        """The files and the daemon's numbers, in the form of `_seen`."""
        machine = self.stage.machine
        mail = machine.mail
        generations = []
        for number in range(machine.head.generation + 1):
            is_present = number == machine.head.generation
            name = paths.CONTEXT if is_present else paths.generation_file(number + 1)
            generations.append(_lines(self.stage.file(name)))
        waiting = None if mail is None else (mail.id, mail.checkpoint_id, mail.message)
        return generations, waiting, machine.unreserved_id

    def _events(self) -> list[tuple[Line, str]]:
        found = [json.loads(line) for line in self.stage.file(paths.WIRE).splitlines()]
        if found:
            assert found.pop(0) == {"type": "metadata", "protocol_version": "1.10"}
        return [(_event_line(record), record["_at"]) for record in found]

    @invariant()
    def check_files(self) -> None:
        """Compare every generation line by line, the mail, and the wire file."""
        assert self._found() == _seen(self.session)
        assert self._events() == self.wire.newest.events

    @invariant()
    def check_daemon(self) -> None:
        """Compare the daemon's numbers at the durable head."""
        machine, present = self.stage.machine, self.context.states[0].present
        counters = machine.counters
        assert str(machine.head) == self.context.states[0].head
        assert str(machine.tentative_head) == self.session.head
        assert counters.n_checkpoints == present.n_checkpoints
        assert (counters.token_count, counters.token_count_with_pending) == present.tokens
        assert counters.has_system_prompt == (present.prompt is not None)

    @invariant()
    def check_followers(self) -> None:
        """Compare the followers of all the time, and one that begins now."""
        self.stage.settle()
        for mirror in (self.stage.mirror, self.stage.follow()):
            self._check_mirror(mirror)
        durable = len(self.wire.states[0].events)
        found = [json.loads(line) for line in self.stage.wire_mirror.lines[1:]]
        assert len(found) >= durable
        events = [(_event_line(record), record["_at"]) for record in found]
        assert events == self.wire.newest.events[: len(events)]

    def _check_mirror(self, mirror: Mirror) -> None:
        state, durable = mirror.state, self.context.states[0]
        present, mail = durable.present, self.session.mail
        assert str(state.head) == durable.head
        assert state.history == present.history
        assert (state.token_count, state.token_count_with_pending) == present.tokens
        assert state.n_checkpoints == present.n_checkpoints
        assert state.system_prompt == present.prompt
        event = mirror.mail
        waits = event.id if event is not None and event.state == "sent" else None
        assert waits == (mail.key if mail is not None else None)


def _outcome(apply: Callable[[], Any]) -> Any:
    """The model's answer to a command, or the type of its refusal."""
    try:
        return apply()
    except REFUSALS as error:
        return type(error)


def _check_ack(answer: Ack | StenoError | None, expected: Answer, *, duplicate: bool) -> None:
    assert isinstance(answer, Ack), repr(answer)
    assert (answer.first, answer.head, answer.checkpoint_id) == expected
    assert answer.duplicate == duplicate


def _begun(answer: Compaction) -> Begun | None:
    if not answer.messages:
        return None
    generation, cut = map(int, answer.cut.split(":"))
    return Begun(generation, cut, int(answer.at.split(":")[1]), answer.checkpoint_id)


def _seen(session: Session) -> object:
    """The part of a session that another program can see."""
    mail = session.mail
    waiting = None if mail is None else (mail.key, mail.number, mail.text)
    return [each.lines for each in session.generations], waiting, session.unreserved


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
@pytest.mark.timeout(PLAYED_S_MAX)
def test_session_equals_a_model_of_lists_through_deaths_and_repeats() -> None:
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
@pytest.mark.parametrize("mutant", [name for name, world in CASES if world == "model"])
def test_the_model_notices_a_missing_guard(mutant: str) -> None:
    """In a process of its own: draws depend on the imports, and failures leak."""
    played = subprocess.run(
        [sys.executable, "-m", "model.mutants", mutant],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        capture_output=True,
        timeout=PLAYED_S_MAX,
        check=False,
    )
    assert played.returncode == NOTICED, f"{mutant}: {played.stderr.decode()[-2000:]}"
