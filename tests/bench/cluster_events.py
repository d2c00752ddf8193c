"""Takeovers, hand-overs, the loss of a leader, replay, and a cluster with many sessions."""

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import nats.errors
from nats.aio.client import Client

import steno
from bench.lines import message
from bench.measuring import Comparison, latencies_us, percentile
from bench.publishing import OWNER
from steno_protocol.commands import HandOver
from steno_protocol.replies import Done
from stenod_cluster.journal import Kind, Label, Publication, subject_of_name
from stenod_cluster.nats_journal import NatsJournal
from stenod_cluster.options import ReplicationOptions
from stenod_cluster.subjects import stream_name, subject_of
from support.clustered_daemon import clustered_daemon
from support.foreground import ForegroundDaemon
from support.nats_cluster import NatsCluster
from support.nats_journals import joined
from support.pacing import wait_for_fact, wait_for_s
from support.resident import resident_bytes

CLUSTER: Final = "bench"
STREAM: Final = stream_name(CLUSTER)
LARGE_BYTES: Final = 64 << 20
BATCH_RECORDS: Final = 500
SMALL_RECORDS: Final = 5_000
MANY_SESSIONS: Final = 100_000
PUBLISHED_AT_ONCE: Final = 1_000
DEAD_S: Final = 2.5
"""The default of `replication.dead_s`, which each takeover contains."""

WAIT_S: Final = 60.0
RETRY_S: Final = 0.005
BARE_ANSWER_S: Final = 0.5
LONE_APPENDS: Final = 400


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two daemons of a cluster, and a client of each."""

    cluster: NatsCluster
    daemons: Sequence[ForegroundDaemon]

    def client(self, number: int) -> steno.BlockingClient:
        return steno.connect_sync(endpoint=self.daemons[number].endpoint, timeout=WAIT_S)

    def hand_over(self, session: str, giver: int) -> None:
        """Give a session to the other daemon."""
        with self.client(giver) as client:
            host = self.daemons[1 - giver].endpoint
            client.request(HandOver(session=session, host=host), Done)

    def append_s(self, number: int, session: str) -> float:
        """Append a record at a daemon as soon as it takes it; returns the seconds."""
        start = time.perf_counter()
        with self.client(number) as client:
            while True:
                try:
                    client.open(session, follow=False).append_message(message(1))
                except steno.StenoError:
                    assert time.perf_counter() - start < WAIT_S
                    wait_for_s(RETRY_S)
                else:
                    return time.perf_counter() - start


def measure_events(folder: Path, rounds: int, report: Callable[[str], None]) -> list[Comparison]:
    """All of them; each round has sessions of its own."""
    takeovers = Comparison("a session changes its daemon", ("s", "beyond_dead_s"), "s", ())
    losses = Comparison("a server dies: time without an ack", ("s",), "s", ["bare publish, leader"])
    with _pair(folder) as pair:
        for number in range(rounds):
            for row, measure in _CHANGES.items():
                seconds = measure(pair, f"{number}-{row.replace(' ', '-').replace(',', '')}")
                takeovers.add(row, _changed(row, seconds))
                report(f"{row}: {seconds:.3f} s")
            for row, seconds in _loss(pair, f"loss-{number}").items():
                losses.add(row, {"s": seconds})
                report(f"{row}: {seconds:.3f} s")
        many = _measure_many(pair, report)
    return [takeovers, losses, *many]


def _changed(row: str, seconds: float) -> dict[str, float]:
    return {"s": seconds, **({"beyond_dead_s": seconds - DEAD_S} if row in _DEATHS else {})}


@contextmanager
def _pair(folder: Path) -> Generator[_Pair]:
    with ExitStack() as stack:
        cluster = stack.enter_context(NatsCluster())
        daemons = [clustered_daemon(folder / name, CLUSTER, cluster) for name in ("one", "two")]
        for daemon in daemons:
            stack.enter_context(daemon)
        yield _Pair(cluster, daemons)


# --- a session changes its daemon -----------------------------------------------------------------


def _write(pair: _Pair, session: str, size: int, batch: int = BATCH_RECORDS) -> None:
    with pair.client(0) as client:
        opened = client.open(session, follow=False)
        records = [message(number) for number in range(batch)]
        written = 0
        while written < size:
            opened.append_message(records)
            written += sum(map(len, records))


def _killed(pair: _Pair, session: str) -> float:
    """Kill the first daemon; returns the seconds until the second one has appended."""
    # Its last word counts, which came up to a fifth of the time before.
    pair.daemons[0].kill()
    seconds = pair.append_s(1, session)
    pair.daemons[0].start()
    return seconds


def _with_mirror(pair: _Pair, session: str) -> float:
    _write(pair, session, LARGE_BYTES)
    pair.hand_over(session, 0)
    pair.append_s(1, session)
    pair.hand_over(session, 1)
    pair.append_s(0, session)
    return _killed(pair, session)


def _without_mirror(pair: _Pair, session: str) -> float:
    _write(pair, session, LARGE_BYTES)
    return _killed(pair, session)


def _small(pair: _Pair, session: str) -> float:
    _write(pair, session, 1)
    return _killed(pair, session)


def _handed_over(pair: _Pair, session: str) -> float:
    _write(pair, session, 1)
    pair.hand_over(session, 0)
    pair.append_s(1, session)
    pair.hand_over(session, 1)
    pair.append_s(0, session)
    start = time.perf_counter()
    pair.hand_over(session, 0)
    pair.append_s(1, session)
    return time.perf_counter() - start


def _replayed(pair: _Pair, session: str) -> float:
    """The first opening at a daemon that has no files of 64 MiB, without waiting for a death."""
    _write(pair, session, LARGE_BYTES)
    pair.hand_over(session, 0)
    return pair.append_s(1, session)


def _replayed_small(pair: _Pair, session: str) -> float:
    """The same with a message of the journal for each of 5 000 records."""
    _write(pair, session, SMALL_RECORDS * len(message(1)), batch=1)
    pair.hand_over(session, 0)
    return pair.append_s(1, session)


_CHANGES: Final[dict[str, Callable[[_Pair, str], float]]] = {
    "killed, small": _small,
    "killed, 64 MiB with a mirror": _with_mirror,
    "killed, 64 MiB without one": _without_mirror,
    "hand-over": _handed_over,
    "replay of 64 MiB": _replayed,
    "replay of 5 000 messages": _replayed_small,
}
_DEATHS: Final = [row for row in _CHANGES if row.startswith("killed")]


# --- the loss of a server -------------------------------------------------------------------------


class _Appending(threading.Thread):
    """Appends until it is ended, and keeps the longest time without an ack."""

    def __init__(self, append: Callable[[], None]) -> None:
        super().__init__()
        self._append = append
        self._is_ended = threading.Event()
        self.acks_s: list[float] = []

    def run(self) -> None:
        while not self._is_ended.is_set():
            with suppress(steno.StenoError, nats.errors.Error, OSError, TimeoutError):
                self._append()
                self.acks_s.append(time.perf_counter())

    def end(self) -> None:
        self._is_ended.set()
        self.join()

    def gap_s(self) -> float:
        return max(after - before for before, after in pairwise(self.acks_s))


def _loss(pair: _Pair, session: str) -> dict[str, float]:
    """The leader of the stream is killed, and a follower is, under the same load."""
    found: dict[str, float] = {}
    for role in ("leader", "follower"):
        with (
            pair.client(0) as client,
            closing(_Publisher(pair.cluster, f"{session}-{role}")) as bare,
        ):
            opened = client.open(f"{session}-{role}", follow=False)
            lanes = {
                f"bare publish, {role}": _Appending(bare.append),
                f"steno, {role}": _Appending(partial(_append, opened)),
            }
            for lane in lanes.values():
                lane.start()
                _wait_for_ack(lane, 0.0)
            leader = pair.cluster.wait_for_leader(STREAM)
            node = leader if role == "leader" else pair.cluster.followers_of(STREAM)[0]
            killed_s = time.perf_counter()
            node.kill()
            for lane in lanes.values():
                _wait_for_ack(lane, killed_s + 1.0)
                lane.end()
            node.start()
            pair.cluster.wait_ready()
            found |= {row: lane.gap_s() for row, lane in lanes.items()}
    return found


def _append(session: steno.BlockingSession) -> None:
    session.append_message(message(1))


def _wait_for_ack(lane: _Appending, after_s: float) -> None:
    wait_for_fact(
        lambda: bool(lane.acks_s) and lane.acks_s[-1] >= after_s, WAIT_S, f"{lane} has no ack"
    )


class _Publisher:
    """Bare publishing that goes to another server by itself: the engine's own time without acks."""

    def __init__(self, cluster: NatsCluster, folder: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._subject = subject_of(CLUSTER, f"bare-{folder}")
        self._client = Client()
        # The type of the method's options is not complete.
        connected = self._client.connect(  # pyright: ignore[reportUnknownMemberType]
            cluster.servers, ping_interval=1, max_outstanding_pings=1, connect_timeout=1,
            max_reconnect_attempts=-1, reconnect_time_wait=0, error_cb=_ignore,
        )  # fmt: skip
        self._loop.run_until_complete(connected)

    def append(self) -> None:
        """Publish one message."""
        asked = self._client.request(self._subject, message(1), BARE_ANSWER_S)
        reply = self._loop.run_until_complete(asked)
        if b'"error"' in reply.data:
            raise OSError(reply.data.decode())

    def close(self) -> None:
        """Hang up."""
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


async def _ignore(error: Exception) -> None:
    # Servers die here.
    del error


# --- many sessions --------------------------------------------------------------------------------


def _measure_many(pair: _Pair, report: Callable[[str], None]) -> list[Comparison]:
    """A cluster that knows 100 000 sessions, beside itself with a few."""
    comparison = Comparison(
        f"one client while the cluster knows {MANY_SESSIONS:,} sessions",
        ("p50_us", "p99_us", "list_s", "server_mib"), "p50_us", ["few sessions"],
    )  # fmt: skip
    comparison.add("few sessions", _with_sessions(pair, "lone-before"))
    start = time.perf_counter()
    _publish_many(pair.cluster)
    report(f"{MANY_SESSIONS:,} sessions published in {time.perf_counter() - start:.1f} s")
    comparison.add("many sessions", _with_sessions(pair, "lone-after"))
    return [comparison]


def _with_sessions(pair: _Pair, session: str) -> dict[str, float]:
    with pair.client(0) as client:
        opened = client.open(session, follow=False)
        latencies = sorted(latencies_us(LONE_APPENDS, partial(_append, opened)))
    with _journal(pair.cluster) as journal:
        start = time.perf_counter()
        journal.names()
        list_s = time.perf_counter() - start
    resident = max(resident_bytes(node.pid) for node in pair.cluster.nodes)
    return {
        "p50_us": percentile(latencies, 0.5), "p99_us": percentile(latencies, 0.99),
        "list_s": list_s, "server_mib": resident / (1 << 20),
    }  # fmt: skip


def _new_session(session: str) -> Publication:
    """The messages by which a session begins."""
    label = Label(f"id-of-{session}", "")
    name = Publication(subject_of_name(session), 0, OWNER, Kind.NAME, label.body())
    return Publication(label.identity, 0, OWNER, Kind.OWN, b"", also=(name,))


@contextmanager
def _journal(cluster: NatsCluster) -> Generator[NatsJournal]:
    options = ReplicationOptions(CLUSTER, tuple(cluster.servers), publish_s=WAIT_S)
    with joined(options, "bench") as journal:
        journal.wait_ready(WAIT_S)
        yield journal


def _publish_many(cluster: NatsCluster) -> None:
    with _journal(cluster) as journal:
        for begin in range(0, MANY_SESSIONS, PUBLISHED_AT_ONCE):
            numbers = range(begin, begin + PUBLISHED_AT_ONCE)
            outcomes = journal.publish([_new_session(f"many-{number}") for number in numbers])
            for outcome in outcomes:
                if isinstance(outcome, OSError):
                    raise outcome
