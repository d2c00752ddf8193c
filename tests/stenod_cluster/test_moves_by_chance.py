"""A rename or deletion that hosts begin, die in and repeat, in any order, by seeds."""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from stenod_cluster.journal import JournalLost, Publication
from support.memory_journal import Fault, MemoryStream
from support.replicated import Host, line

KEY = "k"
FAMILY = {"p": line("above"), "p/c": line("below"), "p/c/d": line("far below")}
MOVED = ("q", "q/c", "q/c/d")
STEPS = 6


Act = Callable[["Play", Host], None]


class Died(BaseException):
    """The end of a host's process."""


class NotDone(Exception):
    """The command was refused."""


class Play:
    """Three hosts, of which one at a time is alive, and a command that each may serve.

    Args:
        folder: where their disks are.
        chance: of all choices.
        act: serves the command, as a daemon does.
        opened: the sessions that clients open and write to meanwhile.
        stale: how often a read misses the last message.
    """

    def __init__(
        self,
        folder: Path,
        chance: random.Random,
        act: "Act",
        opened: Sequence[str],
        stale: float = 0.0,
    ) -> None:
        self._opened = opened
        self._act = act
        self.chance = chance
        self.stream = MemoryStream()
        self.hosts = [Host(self.stream, name, str(folder / name / "sessions")) for name in "abc"]
        # The hosts whose disks have a record of a rename, and those where the command is complete.
        self.begun: set[str] = set()
        self.done: set[str] = set()
        self.texts = dict(FAMILY)
        for session, text in FAMILY.items():
            log = self.hosts[0].open(session).log
            log.append(text)
            log.sync()
        self.hosts[0].close()
        self.stream.rates = {Fault.STALE: stale}

    def step(self) -> None:
        """Let a host start, and perhaps begin or repeat the command, and die in it."""
        host = self.chance.choice(self.hosts)
        self._start(host)
        if self.chance.random() < 0.7:
            patch = self._dying(host)
            with suppress(Died, NotDone):
                self._serve(host)
            patch.undo()
            self._start(host)
        if self.chance.random() < 0.3:
            host.ownership.acquire(self.chance.choice(self._opened))
        if self.chance.random() < 0.3:
            self._write(host, self.chance.choice(self._opened))

    def _write(self, host: Host, session: str) -> None:
        folder = host.ownership.acquire(session)
        first = f"p{session[1:]}"
        # A session that is half-way at its new place is another one as soon as it is written to.
        if folder is None or not folder.manifest.names or (session != first and not self.done):
            return
        text = line(f"more {len(self.texts[first])}")
        log = host.open(session).log
        log.append(text)
        log.sync()
        host.close()
        self.texts[first] += text

    def finish(self) -> None:
        """Let each host start and repeat the command, once all replicas have caught up."""
        self.stream.rates = {}
        self.chance.shuffle(self.hosts)
        for host in self.hosts:
            self._start(host)
            self._serve(host)

    def _serve(self, host: Host) -> None:
        if host.name not in self.done:
            self._act(self, host)

    def _start(self, host: Host) -> None:
        host.start()
        # All others are silent for long.
        for each in self.hosts:
            each.now += 100.0
        self.settle(host)

    def settle(self, host: Host) -> None:
        """Settle the rename that a host began."""
        if host.name not in self.begun - self.done:
            return
        if not Path(host.tree, "p").exists() or host.disk.settle_move("p", "q", KEY):
            self.done.add(host.name)
        else:
            self.begun.discard(host.name)

    def _dying(self, host: Host) -> pytest.MonkeyPatch:
        """Let the process end before or after a message, or before its disk moves the folder."""
        left, is_stored = self.chance.randrange(14), self.chance.random() < 0.5
        does_purge, publish, move = self.chance.random() < 0.7, self.stream.publish, host.local.move

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
            if left == 0:
                raise Died
            move(*arguments)  # type: ignore[arg-type]

        def purge_none(*_: object) -> None:
            raise JournalLost(None, "no majority")

        patch = pytest.MonkeyPatch()
        patch.setattr(self.stream, "publish", publish_some)
        patch.setattr(host.local, "move", move_or_die)
        if not does_purge:
            patch.setattr(self.stream, "purge", purge_none)
        return patch


def rename(play: Play, host: Host) -> None:
    """Rename p to q."""
    source = host.ownership.acquire("p")
    play.settle(host)
    if host.name in play.done or host.disk.moves.renamed_elsewhere("p", "q", KEY):
        return
    taken = host.ownership.acquire("q")
    if source is None or (taken is not None and taken.manifest.names):
        raise NotDone
    play.begun.add(host.name)
    tree = host.disk.open_root(host.tree)
    try:
        host.disk.move(tree, "p", tree, "q", KEY)
    except FileExistsError:
        play.begun.discard(host.name)
        raise NotDone from None
    finally:
        host.disk.close(tree)
    play.done.add(host.name)


def delete(play: Play, host: Host) -> None:
    """Delete p."""
    host.ownership.acquire("p")
    if host.disk.moves.deleted_elsewhere("p", KEY) is not None:
        return
    if host.ownership.acquire("p") is None:
        raise NotDone
    tree = host.disk.open_root(host.tree)
    trash = host.disk.open_folder(tree, ".trash", create=True)
    host.disk.move(tree, "p", trash, "p", KEY)
    for handle in (trash, tree):
        host.disk.close(handle)
    play.done.add(host.name)


def content(host: Host, session: str) -> bytes | None:
    folder = host.ownership.acquire(session)
    if folder is None or not folder.manifest.names:
        return None
    return host.content(session)["context.jsonl"]


@pytest.mark.parametrize("number", range(200))
def test_a_rename_takes_place_once_whoever_begins_it_and_dies(number: int, tmp_path: Path) -> None:
    chance = random.Random(number)
    play = Play(tmp_path, chance, rename, [*FAMILY, *MOVED], chance.choice([0.0, 0.0, 0.1]))
    for _ in range(STEPS):
        play.step()
    play.finish()
    for host in play.hosts:
        play._start(host)
        there = {session: content(host, session) for session in (*FAMILY, *MOVED)}
        assert there == {
            **dict.fromkeys(FAMILY),
            **dict(zip(MOVED, play.texts.values(), strict=True)),
        }


@pytest.mark.parametrize("number", range(100))
def test_a_deletion_takes_place_once_whoever_begins_it_and_dies(
    number: int, tmp_path: Path
) -> None:
    # One below it that is opened at the host where it died is a session of its own since.
    play = Play(tmp_path, random.Random(number), delete, ["p"])
    for _ in range(STEPS):
        play.step()
    play.finish()
    for host in play.hosts:
        play._start(host)
        assert [content(host, session) for session in FAMILY] == [None] * 3
