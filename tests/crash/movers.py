"""Programs that make families of sessions under load, rename, fork, delete and restore them.

Each command is repeated under its key, at any host, until it is done; what must be left is known.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import steno
from crash.families import RETRY_S, SETTLE_S, texts
from crash.world import FAMILY_PREFIX, Family
from steno_protocol.commands import HandOver
from steno_protocol.replies import Done
from support.pacing import wait_for_s

REQUEST_S: Final = 10.0
STEPS_MAX: Final = 5
"""Commands about one family before the next one is made."""

PAUSE_S: Final = 0.2
"""Between two commands: names are few beside records."""


class Mover:
    """One program, in a thread of its own.

    Args:
        number: its number.
        seed: of its choices.
        endpoints: the daemons of the cluster.
        is_struck: set while a blow is under way, which may last longer than a command may.

    Attributes:
        families: what it made.
        counts: of its commands, and of the errors of their attempts.
    """

    def __init__(
        self, number: int, seed: int, endpoints: Sequence[str], is_struck: threading.Event
    ) -> None:
        self.families: list[Family] = []
        self.counts: Counter[str] = Counter()
        self._number = number
        self._random = random.Random(f"{seed} {number}")
        self._endpoints = list(endpoints)
        self._is_struck = is_struck
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"mover-{number}")
        self._keys = 0

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def finish(self) -> None:
        """Let it end its last command, and wait for that."""
        self._is_ending.set()
        self._thread.join()

    def _run(self) -> None:
        steps = (self._rename, self._fork, self._delete_and_undelete, self._append)
        while not self._is_ending.is_set():
            family = self._create()
            for _ in range(self._random.randint(1, STEPS_MAX)):
                if family.fault or self._is_ending.wait(PAUSE_S):
                    break
                self._random.choice(steps)(family)
            if not family.fault and self._random.random() < 0.4:
                self._delete_for_good(family)

    # --- steps -----------------------------------------------------------------------------------

    def _create(self) -> Family:
        name = f"{FAMILY_PREFIX}m{self._number}-{len(self.families)}"
        family = Family(name, name)
        self.families.append(family)
        for session in family.sessions:
            for text in texts(session):
                self._write(family, session, text, self._key(family))
        return family

    def _append(self, family: Family) -> None:
        text = f"more {len(family.more)} of {family.place};"
        family.more.append(text)
        self._write(family, family.place, text, self._key(family))

    def _write(self, family: Family, session: str, text: str, key: str) -> None:
        def append(client: steno.BlockingClient) -> None:
            opened = client.open(session, follow=False)
            opened.append_message({"role": "user", "content": text}, key=key)

        self._repeat(family, "append", append)

    def _rename(self, family: Family) -> None:
        old, new = family.place, f"{family.name}-r{self._keys}"
        key = self._key(family)
        self._repeat(family, "rename", lambda client: client.rename(old, new, key=key))
        family.place = new

    def _fork(self, family: Family) -> None:
        key, place = self._key(family), f"{family.name}-f{self._keys}"
        fork = replace(family, place=place, below=("",), more=list(family.more))

        def make(client: steno.BlockingClient) -> None:
            client.session(family.place).fork(place, key=key)

        self._repeat(family, "fork", make)
        if not family.fault:
            self.families.append(fork)

    def _delete_and_undelete(self, family: Family) -> None:
        self._delete(family)
        key = self._key(family)
        self._repeat(family, "undelete", lambda client: client.undelete(family.place, key=key))

    def _delete_for_good(self, family: Family) -> None:
        self._delete(family)
        family.is_deleted = not family.fault

    def _delete(self, family: Family) -> None:
        key = self._key(family)
        self._repeat(family, "delete", lambda client: client.delete(family.place, key=key))

    # --- repeating -------------------------------------------------------------------------------

    def _key(self, family: Family) -> str:
        self._keys += 1
        return f"{family.name}-{self._keys}"

    def _repeat(
        self, family: Family, name: str, command: Callable[[steno.BlockingClient], object]
    ) -> None:
        """Send a command until it is done; a family that has a fault is left alone."""
        deadline = time.monotonic() + SETTLE_S
        while not family.fault:
            error = self._try(family, command)
            if error is None:
                self.counts[f"moved, {name}"] += 1
                return
            self.counts[f"errors of moves, {name}, {type(error).__name__}"] += 1
            if self._is_struck.is_set():
                deadline = time.monotonic() + SETTLE_S
            if time.monotonic() > deadline:
                family.fault = f"{name}: {type(error).__name__}: {error.message}"
            wait_for_s(RETRY_S)

    def _try(
        self, family: Family, command: Callable[[steno.BlockingClient], object]
    ) -> steno.StenoError | None:
        self._random.shuffle(self._endpoints)
        try:
            with steno.connect_sync(endpoint=self._endpoints, timeout=REQUEST_S) as client:
                try:
                    command(client)
                except steno.BadRequest as error:
                    # Hosts that died and came back own parts of the family.
                    self._gather(client, family, error)
                    return error
        except steno.StenoError as error:
            return error
        return None

    def _gather(
        self, client: steno.BlockingClient, family: Family, error: steno.BadRequest
    ) -> None:
        """Give a session below the family's first one to the owner of that, as the error says."""
        if error.session is None or "owns the session" not in error.message:
            return
        for first in client.cluster(family.place, limit=1).sessions:
            client.request(HandOver(session=error.session, host=first.endpoint), Done)
