"""Commands that name sessions, on hosts that die in them, lag and repeat them, by seeds.

Sessions are written, rewritten, forked, shortened and removed for good meanwhile.

PYTHONPATH=tests python tests/stenod_cluster/test_moves_by_chance.py 0 10000
"""

import itertools
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from steno_protocol.errors import Exists, NotFound, StenoError
from stenod.store.log import Copy
from stenod_cluster import limits
from stenod_cluster.forks import Holds
from stenod_cluster.journal import (
    Fenced,
    Kind,
    Label,
    Message,
    Publication,
    name_of_subject,
    subject_of_name,
)
from stenod_cluster.owned_folder import OwnedFolder
from support.cluster_commands import ClusterCommands
from support.memory_journal import Fault, MemoryStream
from support.replicated import Host, line

NAMES = ("p", "q", "r", "s")
BELOW = ("", "/c", "/c/d")
VERBS = ("make", "fork", "fork", "fork", "rename", "rename", "delete", "delete", "undelete")
INTENT = b'{"kind":"reverted","generation":%d,"at":1.0,"details":{"next_id":0}}\n'
STEPS = 24
FAULTS = {Fault.UNANSWERED: 0.02, Fault.DROPPED: 0.02, Fault.LATE: 0.02, Fault.UNREACHED: 0.01}

SHORT = {"JOURNAL_COPY_BYTES_MIN": 20}
"""Limits that a session of some lines reaches, too."""

State = dict[str, str]
"""The session of each name, the trash included."""

Text = dict[int, bytes]
"""The generations of a session."""


class Died(BaseException):
    """The end of a host's process."""


@dataclass
class Command:
    """A command that hosts serve until one of them answers.

    Attributes:
        verb: what it does.
        session: the session.
        goal: its new id, for a rename.
        key: its key.
        at: Unix time of the command.
        after: the state of the journal once it took place; None before.
        is_done: it took place.
        made: the sessions that it makes, by the rest of their ids.
        source: the session that it forks.
        place: where it forks it.
    """

    verb: str
    session: str
    goal: str
    key: str
    at: int
    is_done: bool = False
    is_answered: bool = False
    made: dict[str, bytes] = field(default_factory=dict[str, bytes])
    source: str = ""
    place: str = ""

    def applied(self, state: State) -> State | None:
        """The state after it; None if it is to be refused."""
        trash = f".trash/{self.at}.{self.key}.{self.session.replace('/', '~')}"
        match self.verb:
            case "rename":
                return _moved(state, self.session, self.goal)
            case "delete":
                return _moved(state, self.session, trash)
            case "undelete":
                found = [each for each in state if _is_trash_of(each, self.session)]
                last = max(
                    found, key=lambda each: int(each.split("/")[1].split(".")[0]), default=""
                )
                return _moved(state, last, self.session) if last else None
            case _:
                made = {f"{self.session}{below}": f"{self.key}{below}" for below in self.made}
                return None if made.keys() & state.keys() else {**state, **made}


def _is_trash_of(name: str, session: str) -> bool:
    return (
        name.startswith(".trash/")
        and name.count("/") == 1
        and name.endswith(f".{session.replace('/', '~')}")
    )


def _family(state: State, name: str) -> list[str]:
    return [each for each in state if each == name or each.startswith(f"{name}/")]


def _moved(state: State, source: str, goal: str) -> State | None:
    is_within = goal.startswith(f"{source}/") or source.startswith(f"{goal}/")
    going = _family(state, source)
    is_taken = any(goal + name.removeprefix(source) in state for name in going)
    # What is below the goal is not in the way of all hosts.
    if source not in state or is_taken or is_within:
        return None
    kept = {name: each for name, each in state.items() if name not in going}
    return {**kept, **{goal + name.removeprefix(source): state[name] for name in going}}


def _text(files: dict[str, bytes]) -> Text:
    """The generations among the files of a session."""
    found = {
        int(name.removeprefix("context_").removesuffix(".jsonl")) - 1: data
        for name, data in files.items()
        if name.startswith("context_")
    }
    return {**found, max(found, default=-1) + 1: files["context.jsonl"]}


class Play:
    """Three hosts of a cluster, and commands that each of them may serve.

    Args:
        folder: where their disks are.
        number: the seed.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self.chance = chance = random.Random(number)
        self.stream = MemoryStream(number)
        self.hosts = [Host(self.stream, name, str(folder / name / "sessions")) for name in "abc"]
        self.texts: dict[str, Text] = {}
        self.identities: dict[str, str] = {}
        self.commands: list[Command] = []
        self.state: State = {}
        self.last_error: Exception | None = None
        self._written: list[tuple[str, Text, Text]] = []
        self._ending: set[str] = set()
        self._faults = {
            Fault.STALE: chance.choice([0.0, 0.1]),
            **(FAULTS if chance.random() < 0.5 else {}),
        }
        self._deaths = chance.choice([0.0, 0.4, 0.8])
        announce, heard = self.stream.announce, chance.choice([0.0, 0.5, 1.0])

        def announce_some(host: str, topic: str, body: bytes) -> None:
            """An announcement may be lost."""
            if chance.random() < heard:
                announce(host, topic, body)

        self.stream.announce = announce_some  # type: ignore[method-assign]

    # --- the truth, by the messages alone ---------------------------------------------------------

    def truth(self) -> State:
        """The session of each name, by the last messages."""
        found: State = {}
        for subject, messages in self.stream._messages.items():
            name, last = name_of_subject(subject), messages[-1] if messages else None
            if name is None or name.startswith(".held/"):
                continue
            if isinstance(last, Message) and last.kind is Kind.NAME:
                identity = last.label.identity
                found[name] = self.identities.setdefault(identity, f"new {identity}")
        return found

    def look(self, command: Command | None = None) -> None:
        """Compare the journal with what the commands may have done: each of them whole or not."""
        found, keys = self.truth(), self._keys()
        for name in filter(self._has_ended, self._ending - found.keys()):
            self.state.pop(name, None)
        late = [each for each in self.commands if not each.is_done and each.key in keys]
        for count in range(len(late) + 1):
            for order in itertools.permutations(late, count):
                after = self._after(order)
                if after is not None and self._same(found, after):
                    self.state = after
                    for each in order:
                        each.is_done = True
                    return
        raise AssertionError(f"{found} is not {self.state} after {command}")

    def _has_ended(self, name: str) -> bool:
        """Whether a name leads to nothing, and its session has no other one."""
        messages = self.stream._messages.get(subject_of_name(name), [])
        last = messages[-1] if messages else None
        return not (isinstance(last, Message) and last.label.other)

    def _after(self, order: Sequence[Command]) -> State | None:
        """The state after several commands; None if one of them is to be refused."""
        state: State | None = self.state
        for each in order:
            state = None if state is None else each.applied(state)
        return state

    def _keys(self) -> set[str]:
        """The keys of the commands that changed a name."""
        messages = [each for found in self.stream._messages.values() for each in found]
        return {each.move for each in messages if isinstance(each, Message)}

    def _same(self, found: State, wanted: State) -> bool:
        if found.keys() != wanted.keys():
            return False
        for name, session in found.items():
            if session.startswith("new "):
                # The session that a command made under this name.
                self.identities[session.removeprefix("new ")] = found[name] = wanted[name]
        return found == wanted

    # --- steps ------------------------------------------------------------------------------------

    def step(self) -> None:
        """Let a host do something, and perhaps die in it."""
        host = self.chance.choice(self.hosts)
        if self.chance.random() < 0.4:
            self.start(host)
        self._silence()
        self.stream.rates = self._faults
        drawn = self.chance.random()
        with self._dying(host):
            if drawn < 0.15:
                self._write(host)
            elif drawn < 0.2:
                self._hand_over(host)
            elif drawn < 0.27:
                self._tidy(host)
            elif drawn < 0.35:
                self._shorten(host)
            elif drawn < 0.47:
                self._expire(host)
            else:
                self.serve(host, self._command())
        self.stream.rates = {}
        while self._written:
            self._note_text(*self._written.pop())

    def _command(self) -> Command:
        """A new command, or one that was sent before."""
        known = [each for each in self.commands if self.chance.random() < 0.5]
        if known and self.chance.random() < 0.4:
            return self.chance.choice(known)
        number = len(self.commands)
        verb = self.chance.choice(VERBS)
        session, goal = self.chance.sample(NAMES, 2)
        if verb in {"rename", "delete"} and self.live and self.chance.random() < 0.8:
            session = self.chance.choice(self.live)
        if verb == "undelete" and self.chance.random() < 0.8:
            deleted = [each for each in self.state if _is_trash_of(each, each.rpartition(".")[2])]
            session = self.chance.choice([each.rpartition(".")[2] for each in deleted] or [session])
            session = session.replace("~", "/")
        if verb == "fork" and not self.live:
            verb = "make"
        command = Command(verb, session, goal, f"k{number}", 1000 + number)
        if verb == "make":
            below = BELOW[: self.chance.choice([1, 1, 2, 3])]
            command.made = {each: line(f"{command.key}{each}") for each in below}
            made = command.made.items()
            self.texts |= {f"{command.key}{each}": {0: text} for each, text in made}
        if verb == "fork":
            command.goal = self.chance.choice(self.live)
            command.source = source = self.state[command.goal]
            text = self.texts[source]
            generation = self.chance.choice(list(text))
            lines = text[generation].splitlines(keepends=True)
            kept = self.chance.randint(0, len(lines))
            command.place = f"{generation}:{kept}"
            past = {each: text[each] for each in range(generation)}
            self.texts[command.key] = {**past, generation: b"".join(lines[:kept])}
            command.made = {"": b""}
        self.commands.append(command)
        return command

    @property
    def live(self) -> list[str]:
        """The names of the sessions that are not deleted."""
        return [name for name in self.state if not name.startswith(".trash/")]

    def serve(self, host: Host, command: Command) -> None:
        """Let a host serve a command, which takes place whole, once, or not at all."""
        served, before = ClusterCommands(host), command.is_done
        if command.verb == "fork":
            name, wanted = command.session, command.key
            if not before:
                name, wanted = command.goal, command.source
            if self.state.get(name) != wanted:
                # A daemon refuses it: it was deleted or renamed, or its source was.
                command.is_answered = True
                return
        answer: Exception | None = None
        key, at = command.key, command.at

        def act() -> None:
            match command.verb:
                case "rename":
                    served.rename(command.session, command.goal, key, at)
                case "delete":
                    served.delete(command.session, key, at)
                case "undelete":
                    served.undelete(command.session, key, at)
                case "fork":
                    served.fork(command.goal, command.session, command.place, key, at)
                case _:
                    served.take_in(command.session, command.made, key, at)

        try:
            served.decided(command.session, key, act)
        except (StenoError, OSError) as error:
            answer = self.last_error = error
        finally:
            host.close()
        self.look(command)
        if command.verb == "fork" and before and self.state.get(command.session) != command.key:
            # A late message of another command deleted or renamed it meanwhile.
            return
        command.is_answered |= answer is None
        assert answer or command.is_done, f"{command} was answered and did not take place"
        is_refused = isinstance(answer, (Exists, NotFound))
        assert not (is_refused and before), f"a repeat of {command} gets {answer!r}"
        assert not (is_refused and command.is_done), f"{command} took place, and gets {answer!r}"

    def _write(self, host: Host) -> None:
        if not self.live:
            return
        name = self.chance.choice(self.live)
        session = self.state[name]
        before = self.texts[session]
        generation = max(before)
        text = line(f"more {len(before[generation])}")
        after = {**before, generation: before[generation] + text}
        kept: bytes | None = None
        if self.chance.random() < 0.4:
            lines = before[generation].splitlines(keepends=True)
            kept = b"".join(lines[: self.chance.randint(0, len(lines))])
            after = {**before, generation + 1: kept + text}
        try:
            log = host.open(name, create=False).log
            if log.generation != generation or log.read(generation, 0, 10**6) != before[generation]:
                raise Fenced(name, self.stream.session(name))  # type: ignore[arg-type]
            self._written.append((session, before, after))
            if kept is None:
                log.append(text)
                log.sync()
            else:
                log.replace([Copy(generation, 0, len(kept)), text], INTENT % (generation + 1))
        except (StenoError, OSError):
            pass
        finally:
            host.close()

    def _shorten(self, host: Host) -> None:
        """Let a host publish a copy of a session, and remove what is before it."""
        if self.state:
            with suppress(StenoError, OSError):
                host.ownership.shorten(self.chance.choice(list(self.state)))

    def _expire(self, host: Host) -> None:
        """Let a host remove a deleted session for good, with those deleted with it."""
        deleted = [each for each in self.state if _is_trash_of(each, each.rpartition(".")[2])]
        if deleted:
            name = self.chance.choice(deleted)
            self._ending |= {name, *_family(self.state, name)}
            for each in self.hosts:
                # Its time is over on all disks.
                shutil.rmtree(Path(each.tree, name), ignore_errors=True)
            with suppress(StenoError, OSError):
                ClusterCommands(host).expire(name)

    def _note_text(self, session: str, *allowed: Text) -> None:
        """Note which of two texts a session has, as a host says that never had it."""
        rates, self.stream.rates = self.stream.rates, {}
        self.stream.settle()
        self.look()
        (name,) = (name for name, each in self.state.items() if each == session)
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            reader = Host(self.stream, "reader", f"{folder}/sessions")
            reader.now = 1000.0
            found = self._content(reader, name)
            reader.journal.close()
        self.stream.rates = rates
        assert found in allowed, f"{name} has {found!r}"
        self.texts[session] = found

    def _content(self, host: Host, name: str) -> Text | None:
        self._silence()
        folder = host.ownership.acquire(name)
        if folder is None or not folder.manifest.names:
            return None
        if not name.startswith("."):
            # A rewrite that was cut short is repaired.
            host.open(name, create=False)
            host.close()
        return _text(host.content(name))

    def _hand_over(self, host: Host) -> None:
        if self.live:
            with suppress(StenoError, OSError):
                other = self.chance.choice(self.hosts)
                host.ownership.release_to(self.chance.choice(self.live), other.hosts.owner)

    def _tidy(self, host: Host) -> None:
        for name in [*host.ownership.copies.stale()]:
            with suppress(StenoError, OSError):
                host.ownership.tidy(name)
        with suppress(OSError):
            host.ownership.holds.collect_all()

    def start(self, host: Host) -> None:
        """Begin a process of a host."""
        host.start()

    def _silence(self) -> None:
        """Let all hosts be silent for long: each may take what it wants."""
        for each in self.hosts:
            each.now += 100.0

    @contextmanager
    def _dying(self, host: Host) -> Generator[None]:
        """Let the process end before or after a message, or when its disk moves a folder."""
        left, is_stored = self.chance.randrange(8), self.chance.random() < 0.5
        if self.chance.random() >= self._deaths:
            yield
            return
        publish, move = self.stream.publish, host.local.move

        def publish_some(name: str, publication: Publication) -> int | OSError:
            nonlocal left
            left -= 1
            if left < 0 and not is_stored:
                raise Died
            found = publish(name, publication)
            if left < 0:
                raise Died
            return found

        def move_or_die(*arguments: object) -> None:
            if left <= 1 and not is_stored:
                raise Died
            move(*arguments)  # type: ignore[arg-type]
            if left <= 1:
                raise Died

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.stream, "publish", publish_some)
            patch.setattr(host.local, "move", move_or_die)
            with suppress(Died):
                yield
        self.stream.rates = {}
        self.start(host)
        self.look()

    # --- the end ----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Let each command be repeated, and compare all hosts with what is to be."""
        self.stream.settle()
        self.look()
        for host in self.hosts:
            self._silence()
            self.start(host)
            self._tidy(host)
        for command in self.commands:
            if command.is_done:
                self._silence()
                self.serve(self.chance.choice(self.hosts), command)
                assert command.is_answered, (
                    f"a repeat of {command} has no answer: {self.last_error!r}"
                )
        names = {*self.stream.names(), *self.state} - {*self.stream.names("", ".held")}
        for host in self.hosts:
            self._silence()
            self.start(host)
            for name in sorted(names):
                wanted = self.texts[self.state[name]] if name in self.state else None
                if not (name.startswith(".trash/") and wanted is None):
                    found = self._content(host, name)
                    assert found == wanted, f"{host.name} has {found!r} at {name}, not {wanted!r}"
            self._tidy(host)
            self._check_disk(host)
        self._check_freed()

    def _check_freed(self) -> None:
        """The journal has the messages of sessions, and of those that their forks refer to."""
        needed = set(self._identities())
        for identity in list(needed):
            while identity := self._source_of(identity):
                needed.add(identity)
        for identity in self.stream.counts():
            # What never had a name is not collected.
            assert identity in needed or identity not in self.identities, f"{identity} is left"
        for name in self.stream.names("", ".held"):
            _, source, _, holder = name.split("/")
            assert holder in needed, f"{name} is left"
            assert holder != source or len(self.stream.names("", f".held/{source}")) > 1, name

    def _identities(self) -> list[str]:
        return [self.stream.identity_of(name) for name in self.truth()]

    def _source_of(self, identity: str) -> str:
        first = self.stream._messages[identity][0]
        assert isinstance(first, Message)
        return first.label.identity if first.kind is Kind.FORK else ""

    def _check_disk(self, host: Host) -> None:
        """Each session is at one place of a disk, the one that the journal has for it."""
        for file in Path(host.tree).rglob("context.jsonl"):
            name = str(file.parent.relative_to(host.tree))
            if not name.startswith(".imports"):
                assert name in self.state, f"{host.name} has {name}: {self.state}"
                found = {each.name: each.read_bytes() for each in file.parent.glob("*.jsonl")}
                assert _text(found) == self.texts[self.state[name]]


def play(number: int, folder: Path) -> Play:
    """Play one seed."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SHORT.items():
            patch.setattr(limits, name, value)
        found = Play(folder, number)
        for _ in range(STEPS):
            found.step()
        found.finish()
    return found


@pytest.mark.parametrize(
    "number", [*range(50), *(pytest.param(each, marks=pytest.mark.slow) for each in range(50, 150))]
)
def test_each_command_takes_place_once_or_never_whoever_dies_in_it(
    number: int, tmp_path: Path
) -> None:
    play(number, tmp_path)


def _forget_forks(patch: pytest.MonkeyPatch) -> None:
    """A collection sees what the session itself needs, and no fork."""
    held = Holds._held

    def own(self: Holds, identity: str) -> list[Any]:
        return [each for each in held(self, identity) if each.holder == identity]

    patch.setattr(Holds, "_held", own)
    patch.setattr(Holds, "_is_held_by_fork", lambda *_: False)


def _refer_elsewhere(patch: pytest.MonkeyPatch) -> None:
    """A fork refers to the message before the last one that its source had."""
    forking = OwnedFolder.forking
    patch.setattr(OwnedFolder, "forking", lambda *at: forking(at[0], at[1], at[2] - 1))


def _keep_source(patch: pytest.MonkeyPatch) -> None:
    """A fork that ends does not let go of its source."""
    patch.setattr(Holds, "_noted_base", lambda *_: Label("", ""))


@pytest.mark.parametrize(
    ("mutate", "seed"), [(_forget_forks, 60), (_refer_elsewhere, 3), (_keep_source, 56)]
)
def test_a_seed_fails_without_a_guard_of_forks(
    mutate: Callable[[pytest.MonkeyPatch], None],
    seed: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutate(monkeypatch)
    with pytest.raises((AssertionError, OSError, StenoError)):
        play(seed, tmp_path)


def main(first: int, last: int) -> None:
    """Play seeds, and count what came of them."""
    failed: Counter[str] = Counter()
    verbs: Counter[str] = Counter()
    for number in range(first, last):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            try:
                found = play(number, Path(folder))
            except AssertionError as error:
                failed[str(error)[:60]] += 1
                print(number, str(error)[:300], flush=True)
            else:
                verbs.update(each.verb for each in found.commands if each.is_done)
    print(f"{last - first} seeds, {failed.total()} failed; took place: {dict(verbs)}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
