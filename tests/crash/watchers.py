"""Followers and readers of the sessions under load: how long each waits."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import steno
from support.pacing import wait_for_fact, wait_for_s

TURN_S: Final = 0.5
"""Time after which a follower looks whether it has to end."""

READ_S: Final = 60.0
RETRY_S: Final = 0.05
PAUSE_S: Final = 0.1
"""Between two reads of one reader."""


@dataclass(frozen=True, slots=True)
class Waited:
    """A wait of a reader, or the time between two events of a follower.

    Attributes:
        at_s: its end, on the machine's monotonic clock.
        took_s: how long it was.
    """

    at_s: float
    took_s: float


class Watchers:
    """A follower of each session, and a reader that begins at each host.

    Args:
        endpoints: the daemons of the cluster.
        sessions: what is followed and read.

    Attributes:
        counts: of reads, events, and errors.
        examples: the last error of each kind, which tells why a follower is silent.
    """

    def __init__(self, endpoints: Sequence[str], sessions: Sequence[str]) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self._sessions = sessions
        self._followed: dict[str, list[Waited]] = {each: [] for each in sessions}
        self._read: list[Waited] = []
        self._is_ending = threading.Event()
        self._threads = [
            self._thread(self._follow, _from(endpoints, number), session)
            for number, session in enumerate(sessions)
        ]
        self._threads += [
            self._thread(self._read_all, _from(endpoints, number))
            for number in range(len(endpoints))
        ]

    def start(self) -> None:
        """Begin; the sessions exist."""
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """End, and wait for that."""
        self._is_ending.set()
        for thread in self._threads:
            thread.join()

    def wait_for_events(self, after_s: float, wait_s: float) -> list[str]:
        """Wait until each follower has an event behind a time; returns those without one."""
        missing = set(self._sessions)

        def all_came() -> bool:
            came = {each for each in missing if self._last_s(each) > after_s}
            missing.difference_update(came)
            return not missing

        try:
            wait_for_fact(all_came, wait_s, "a follower stands still")
        except AssertionError:
            return sorted(missing)
        return []

    def longest_s(self, began_s: float) -> tuple[float, float]:
        """The longest wait of a follower and of a reader that ended behind a time."""
        followed = [each for its in self._followed.values() for each in its[-50_000:]]
        return _longest(followed, began_s), _longest(self._read[-50_000:], began_s)

    def _last_s(self, session: str) -> float:
        events = self._followed[session]
        return events[-1].at_s if events else 0.0

    def _thread(self, target: Callable[..., None], *arguments: object) -> threading.Thread:
        return threading.Thread(target=self._until_end, args=(target, *arguments))

    def _until_end(self, target: Callable[..., None], endpoints: list[str], *rest: object) -> None:
        while not self._is_ending.is_set():
            try:
                with steno.connect_sync(endpoint=endpoints, timeout=READ_S) as client:
                    target(client, *rest)
            except steno.StenoError as error:
                kind = type(error).__name__
                self.counts[f"errors of watchers, {kind}"] += 1
                self.examples[kind] = str(error)
                wait_for_s(RETRY_S)

    def _follow(self, client: steno.BlockingClient, session: str) -> None:
        events = self._followed[session]
        last_s = time.monotonic()
        with client.session(session).subscribe(client.stat(session).head) as subscription:
            while not self._is_ending.is_set():
                event = subscription.next_event(timeout=TURN_S)
                if isinstance(event, steno.RecordsEvent):
                    now = time.monotonic()
                    events.append(Waited(now, now - (events[-1].at_s if events else last_s)))
                    self.counts["events"] += 1

    def _read_all(self, client: steno.BlockingClient) -> None:
        while not self._is_ending.is_set():
            for session in self._sessions:
                began_s = time.monotonic()
                stat = client.stat(session)
                now = time.monotonic()
                self._read.append(Waited(now, now - began_s))
                self.counts["reads, stale" if stat.stale else "reads"] += 1
                wait_for_s(PAUSE_S)


def _from(endpoints: Sequence[str], number: int) -> list[str]:
    """The same addresses, beginning at one of them."""
    first = number % len(endpoints)
    return [*endpoints[first:], *endpoints[:first]]


def _longest(waited: Sequence[Waited], began_s: float) -> float:
    return max((each.took_s for each in waited if each.at_s > began_s), default=0.0)
