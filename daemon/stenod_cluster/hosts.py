"""The daemons of a cluster, as they are heard.

Each daemon says that it lives several times within `replication.dead_s`. Whoever is not heard for
that time may be succeeded. That decides only when another daemon may try: the journal's fence, not
the clock, keeps a woken owner from writing.
"""

import threading
from collections.abc import Callable

import msgspec

from stenod_cluster import limits
from stenod_cluster.journal import Journal, Owner, Peer

_ALIVE = "alive"
_ENDED = "ended"
_WHO = "who"


def _ignored(name: str) -> None:
    del name


class Hosts:
    """The other daemons.

    Args:
        journal: carries the announcements.
        owner: this daemon.
        dead_s: seconds without a word after which a daemon may be succeeded.
        clock: seconds on a clock that never goes back.
        on_taken: called with name and owner when another daemon says that it took a session over.
        on_moved: called with a name when another daemon says that its session has another one.
    """

    def __init__(
        self,
        journal: Journal,
        owner: Owner,
        dead_s: float,
        clock: Callable[[], float],
        on_taken: Callable[[str, Owner], None],
        on_moved: Callable[[str], None] = _ignored,
    ) -> None:
        self.owner = owner
        self.dead_s = dead_s
        self._journal = journal
        self._clock = clock
        self._on_taken = on_taken
        self._on_moved = on_moved
        self._heard: dict[str, tuple[Owner, float]] = {}
        self._ended: dict[str, str] = {}
        self._lock = threading.Lock()
        self._began = clock()
        journal.listen(self._hear)
        self.ask()

    @property
    def period_s(self) -> float:
        """Seconds between two words of this daemon."""
        return self.dead_s / limits.HEARTBEATS_MIN

    def ask(self) -> None:
        """Ask all daemons to say at once that they live."""
        self._journal.announce(self.owner, _WHO, b"")

    def tell_alive(self) -> None:
        """Say that this daemon lives."""
        self._journal.announce(self.owner, _ALIVE, msgspec.json.encode(self.owner))

    def tell_ended(self) -> None:
        """Say that this daemon ends, so that nobody waits for it."""
        self._journal.announce(self.owner, _ENDED, msgspec.json.encode(self.owner))

    def tell_taken(self, folder: str) -> None:
        """Say that this daemon took a folder over."""
        body = msgspec.json.encode((folder, self.owner))
        self._journal.announce(self.owner, "taken", body)

    def tell_moved(self, name: str) -> None:
        """Say that a session has another name, or none."""
        body = msgspec.json.encode((name, self.owner))
        self._journal.announce(self.owner, "moved", body)

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

    def peers(self) -> list[Peer]:
        """Return the other daemons, the dead ones too."""
        now = self._clock()
        with self._lock:
            return [Peer(owner, now - heard) for owner, heard in self._heard.values()]

    def _hear(self, topic: str, body: bytes) -> None:
        try:
            if topic == _WHO:
                self.tell_alive()
            elif topic in {"taken", "moved"}:
                name, teller = msgspec.json.decode(body, type=tuple[str, Owner])
                if teller != self.owner:
                    self._note(_ALIVE, teller)
                    self._on_taken(name, teller) if topic == "taken" else self._on_moved(name)
            else:
                self._note(topic, msgspec.json.decode(body, type=Owner))
        except (msgspec.DecodeError, UnicodeDecodeError):
            # Another program's message on this subject.
            return

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
