"""The daemons of a cluster, as they are heard.

Each daemon says that it lives several times within `replication.dead_s`. Whoever is not heard for
that time may be succeeded. That decides only when another daemon may try: the journal's fence, not
the clock, keeps a woken owner from writing.
"""

import threading
import time
from collections.abc import Callable, Iterable

import msgspec

from stenod_cluster import limits
from stenod_cluster.journal import Announcements, Owner

_ALIVE = "alive"
_ENDED = "ended"
_WHO = "who"
_TAKEN = "taken"
_MOVED = "moved"
_GIVEN = "given"
_LEFT = "left"


class Hosts:
    """The other daemons.

    Args:
        announcements: those of all daemons.
        owner: this daemon.
        dead_s: seconds without a word after which a daemon may be succeeded.
        clock: seconds on a clock that never goes back.
        on_taken: called with name and owner when another daemon says that it took a session over.
        on_moved: called with a name when another daemon says that its session has another one.
        on_given: called with name and owner when another daemon gives this one a session.

    Attributes:
        owner: this daemon.
        dead_s: as above.
        answer_s: seconds in which a living daemon answers another one.
    """

    def __init__(
        self,
        announcements: Announcements,
        owner: Owner,
        dead_s: float,
        clock: Callable[[], float],
        on_taken: Callable[[str, Owner], None],
        on_moved: Callable[[str], None],
        on_given: Callable[[str, Owner], None],
    ) -> None:
        self.owner = owner
        self.dead_s = self.answer_s = dead_s
        self._announcements = announcements
        self._clock = clock
        self._on_taken = on_taken
        self._on_moved = on_moved
        self._on_given = on_given
        # What a thread waits for: a topic, a name, and the host that says it.
        self._awaited: dict[tuple[str, str, str], threading.Event] = {}
        self._heard: dict[str, tuple[Owner, float]] = {}
        self._ended: dict[str, str] = {}
        self._lock = threading.Lock()
        self._began = clock()
        announcements.listen(self._hear)
        self.ask()

    @property
    def period_s(self) -> float:
        """Seconds between two words of this daemon."""
        return self.dead_s / limits.HEARTBEATS_MIN

    def ask(self) -> None:
        """Ask all daemons to say at once that they live."""
        self._announcements.announce(self.owner, _WHO, b"")

    def tell_alive(self) -> None:
        """Say that this daemon lives."""
        self._announcements.announce(self.owner, _ALIVE, msgspec.json.encode(self.owner))

    def tell_ended(self) -> None:
        """Say that this daemon ends, so that nobody waits for it."""
        self._announcements.announce(self.owner, _ENDED, msgspec.json.encode(self.owner))

    def tell_taken(self, name: str, hosts: Iterable[str]) -> None:
        """Say that this daemon has a session and its files; blocks.

        Args:
            name: the session.
            hosts: those that had it. The living ones note that their copies are old ones, before
                this daemon changes anything.
        """
        living = [host for host in hosts if self.living(host) is not None]
        heard = [(host, self._await(_LEFT, name, host)) for host in living]
        until = time.monotonic() + self.answer_s
        self._tell(_TAKEN, name)
        for host, each in heard:
            self._is_heard(each, host, until)
        for host in living:
            self._awaited.pop((_LEFT, name, host), None)

    def tell_left(self, name: str) -> None:
        """Say that this disk's copy of a session is marked as an old one."""
        self._tell(_LEFT, name)

    def tell_moved(self, name: str) -> None:
        """Say that a session has another name, or none."""
        self._tell(_MOVED, name)

    def give(self, name: str, host: str) -> bool:
        """Give a session to another daemon; blocks until that has it, with its files.

        Returns:
            False if it does not say so in time.
        """
        heard = self._await(_TAKEN, name, host)
        try:
            for _ in range(limits.GIVE_ATTEMPTS_MAX):
                # Any word may be lost, and the other daemon may be closing the session still.
                self._tell(_GIVEN, name, host)
                if self._is_heard(heard, host, time.monotonic() + self.answer_s):
                    return True
                if self.living(host) is None:
                    break
        finally:
            self._awaited.pop((_TAKEN, name, host), None)
        return False

    def _is_heard(self, word: threading.Event, host: str, until: float) -> bool:
        """Wait for a word of another daemon while that lives; False without it."""
        while not word.wait(max(0.0, min(self.period_s, until - time.monotonic()))):
            if time.monotonic() >= until or self.living(host) is None:
                return False
        return True

    def _tell(self, topic: str, name: str, to: str = "") -> None:
        self._announcements.announce(self.owner, topic, msgspec.json.encode((name, self.owner, to)))

    def _await(self, topic: str, name: str, host: str) -> threading.Event:
        return self._awaited.setdefault((topic, name, host), threading.Event())

    def living(self, host: str) -> Owner | None:
        """Return the daemon of another root that may still write; None if it is dead.

        A daemon that has just begun has heard nobody yet, and waits as long as for a silent one.
        """
        now = self._clock()
        with self._lock:
            heard = self._heard.get(host)
        if heard is not None and now - heard[1] < self.dead_s:
            return heard[0]
        return None

    def may_live(self, owner: Owner) -> bool:
        """Whether the owner of a folder may still write, although it was perhaps never heard."""
        if self.living(owner.host) is not None:
            return True
        with self._lock:
            has_ended = self._ended.get(owner.host) == owner.incarnation
            was_heard = owner.host in self._heard
        return not was_heard and not has_ended and self._clock() - self._began < self.dead_s

    def peers(self) -> list[tuple[Owner, float]]:
        """Return the other daemons, the dead ones too, and the seconds since each was heard."""
        now = self._clock()
        with self._lock:
            return [(owner, now - heard) for owner, heard in self._heard.values()]

    def _hear(self, topic: str, body: bytes) -> None:
        try:
            if topic == _WHO:
                self.tell_alive()
            elif topic in {_TAKEN, _MOVED, _GIVEN, _LEFT}:
                name, teller, to = msgspec.json.decode(body, type=tuple[str, Owner, str])
                if teller != self.owner:
                    if topic != _LEFT:
                        # An answer to this daemon, which says nothing new of the other one.
                        self._note(_ALIVE, teller)
                    self._hear_of(topic, name, teller, to)
            else:
                self._note(topic, msgspec.json.decode(body, type=Owner))
        except (msgspec.DecodeError, UnicodeDecodeError):
            # Another program's message on this subject.
            return

    def _hear_of(self, topic: str, name: str, teller: Owner, to: str) -> None:
        """Hear what another daemon says of a session."""
        awaited = self._awaited.get((topic, name, teller.host))
        if topic == _TAKEN:
            self._on_taken(name, teller)
        elif topic == _MOVED:
            self._on_moved(name)
        elif topic == _GIVEN and to == self.owner.host:
            self._on_given(name, teller)
        if awaited is not None:
            awaited.set()

    def _note(self, topic: str, owner: Owner) -> None:
        if owner.host == self.owner.host:
            return
        with self._lock:
            if topic == _ENDED:
                self._ended[owner.host] = owner.incarnation
                if self._heard.get(owner.host, (owner, 0.0))[0] == owner:
                    self._heard.pop(owner.host, None)
            elif topic == _ALIVE and self._ended.get(owner.host) != owner.incarnation:
                self._heard[owner.host] = owner, self._clock()
