"""A crash run: servers, daemons and agents, blows at them, and the verdict.

    PYTHONPATH=tests python -m crash [--blows N] [--seed N] [--hosts N] [--agents N] [--movers N]
        [--only KIND]

Progress goes to stderr, the report to stdout; exit 1 if anything acknowledged was lost, doubled or
elsewhere, if anything refused is there, if the folders differ, if a session or its follower stood
still, or if a session that was moved or forked is not at its new place alone.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import steno
from crash import families
from crash.blows import KINDS, Blow, drawn, strike
from crash.facts import Fact, Order
from crash.movers import Mover
from crash.verdict import judge
from crash.watchers import Watchers
from crash.world import Agents, Host, World
from stenod_cluster.copies import kept_from
from support.nats_cluster import NatsCluster
from support.pacing import wait_for_fact

PROGRESS_S = 60.0
"""Time in which each session goes on after a blow. The longest waits are those of a stopped daemon
that was taken for dead, of the servers' election, and of an attempt of an agent."""

TAKEOVER_S = 30.0
WORK_ACKS = 100
"""Acks of each session between two blows, so that each blow meets work of its own."""

SESSIONS = ("plan", "code/review", "code/tests", "notes", "drafts", "drafts/old")
PAUSE_S = 0.004


@dataclass(slots=True)
class Report:
    """What a run found.

    Attributes:
        faults: what is wrong; empty if all is right.
        gaps_s: for each kind of blow, how long the slowest session had no ack, its follower no
            record, and a reader no answer.
        counts: of outcomes, attempts and takeovers.
    """

    faults: list[str] = field(default_factory=list[str])
    gaps_s: dict[str, list[tuple[float, float, float]]] = field(
        default_factory=dict[str, list[tuple[float, float, float]]]
    )
    counts: Counter[str] = field(default_factory=Counter[str])

    def lines(self) -> Iterator[str]:
        """The report as text."""
        columns = " ".join(f"{each:>13}" for each in ("writer", "follower", "reader"))
        yield f"{'longest wait: median, largest (s)':50}   n  {columns}"
        for kind, gaps in sorted(self.gaps_s.items()):
            ordered = (sorted(column) for column in zip(*gaps, strict=True))
            shown = " ".join(f"{its[len(its) // 2]:6.2f} {its[-1]:6.2f}" for its in ordered)
            yield f"{kind:50} {len(gaps):3}  {shown}"
        yield ""
        yield from (f"{name}: {count}" for name, count in sorted(self.counts.items()))
        yield ""
        yield from (f"FAULT {fault}"[:1000] for fault in self.faults[:40])
        yield f"{len(self.faults)} faults"


@dataclass(frozen=True, slots=True)
class Plan:
    """A run.

    Attributes:
        blows: what is done, in order.
        seed: of the agents.
        hosts: daemons.
        agents: client processes.
        movers: programs that make, rename, fork, delete and restore families of sessions.
        sessions: what the agents use.
        pause_s: of each agent between two commands.
        work_acks: acks of each session between two blows.
    """

    blows: Sequence[Blow]
    seed: int = 0
    hosts: int = 2
    agents: int = 8
    movers: int = 0
    sessions: tuple[str, ...] = SESSIONS
    pause_s: float = PAUSE_S
    work_acks: int = WORK_ACKS


def crash(plan: Plan, folder: Path, *, is_quiet: bool = False) -> Report:
    """Play a run in an empty folder."""
    report = Report()
    with NatsCluster(is_advertised=False) as cluster, _hosts(plan, folder, cluster) as hosts:
        orders = [
            Order(
                agent=number, seed=plan.seed * 1000 + number, pause_s=plan.pause_s,
                endpoints=tuple(host.endpoint for host in hosts), sessions=plan.sessions,
            )
            for number in range(plan.agents)
        ]  # fmt: skip
        with Agents(orders, folder) as agents:
            world = World(cluster, hosts, agents, plan.sessions)
            stuck = agents.wait_for_acks(plan.sessions, 0.0, PROGRESS_S)
            assert not stuck, f"no acks in {stuck} before the first blow"
            with _load(world, plan, report) as watchers:
                _play(world, plan, report, watchers, is_quiet=is_quiet)
            agents.finish()
        _count(agents.facts, hosts, report)
        report.faults += world.faults
        _compare(world, report)
    return report


@contextmanager
def _hosts(plan: Plan, folder: Path, cluster: NatsCluster) -> Generator[list[Host]]:
    hosts = [Host(folder, chr(ord("a") + number), cluster) for number in range(plan.hosts)]
    try:
        for host in hosts:
            host.start()
        yield hosts
    finally:
        for host in hosts:
            host.close()
            (host.root / "daemon.log").write_text("".join(host.daemon.log))


@contextmanager
def _load(world: World, plan: Plan, report: Report) -> Generator[Watchers]:
    """What goes on beside the agents."""
    endpoints = [host.endpoint for host in world.hosts]
    movers = [Mover(number, plan.seed, endpoints, world.is_struck) for number in range(plan.movers)]
    watchers = Watchers(endpoints, plan.sessions)
    programs = [*movers, watchers]
    for program in programs:
        program.start()
    try:
        yield watchers
    finally:
        for program in programs:
            program.finish()
            report.counts.update(program.counts)
    world.families += [family for mover in movers for family in mover.families]


def _play(world: World, plan: Plan, report: Report, watchers: Watchers, *, is_quiet: bool) -> None:
    for number, blow in enumerate(plan.blows, 1):
        began_s = time.monotonic()
        world.is_struck.set()
        strike(world, blow)
        world.is_struck.clear()
        ended_s = time.monotonic()
        stuck = world.agents.wait_for_acks(world.sessions, ended_s, PROGRESS_S, plan.work_acks)
        gaps = [_gap(world.agents.facts, each, began_s, ended_s) for each in world.sessions]
        silent = watchers.wait_for_events(ended_s, PROGRESS_S)
        followed, read = watchers.longest_s(began_s)
        report.gaps_s.setdefault(blow.kind, []).append((max(gaps), followed, read))
        report.faults += [
            f"blow {number}, {blow}: the follower of {at} is silent, watchers met"
            f" {watchers.examples}"
            for at in silent
        ]
        report.faults += [f"blow {number}, {blow}: {session} stands still" for session in stuck]
        if not is_quiet:
            shown = " ".join(f"{gap:.2f}" for gap in gaps)
            print(
                f"{number}/{len(plan.blows)} {blow}: {len(world.agents.facts)} facts, gaps {shown},"
                f" followers {followed:.2f}, readers {read:.2f}",
                file=sys.stderr, flush=True,
            )  # fmt: skip


def _gap(facts: Sequence[Fact], session: str, began_s: float, ended_s: float) -> float:
    """The longest time without an ack in a session that overlaps a blow."""
    last_s, longest_s = began_s, 0.0
    for at_s in sorted(fact.at_s for fact in facts[-200_000:] if _is_ack(fact, session, began_s)):
        longest_s = max(longest_s, at_s - last_s)
        last_s = at_s
        if at_s > ended_s:
            return longest_s
    return time.monotonic() - last_s


def _is_ack(fact: Fact, session: str, after_s: float) -> bool:
    return fact.at_s > after_s and fact.session == session and fact.outcome == "ack"


def _count(facts: Iterable[Fact], hosts: Sequence[Host], report: Report) -> None:
    seconds: dict[str, int] = defaultdict(int)
    for fact in facts:
        seconds[f"commands, {fact.outcome}"] += 1
        seconds[f"acknowledged {fact.kind}"] += fact.outcome == "ack"
        seconds["acknowledged records"] += fact.records if fact.outcome == "ack" else 0
        seconds["attempts beyond the first"] += fact.attempts - 1
        seconds["acks of an earlier attempt"] += fact.is_duplicate
        for error in fact.errors:
            seconds[f"errors, {error.partition(':')[0]}"] += 1
    report.counts.update(seconds)
    for host in hosts:
        for event in ("taken_over", "fenced", "in_doubt", "session_lost"):
            report.counts[f"daemons logged {event}"] += sum(
                f" {event} " in line for line in host.daemon.log
            )
        report.faults += [
            f"daemon {host.name} logged {line.strip()}"
            for line in host.daemon.log
            if "Traceback" in line or "internal" in line or " CRITICAL " in line
        ]


# --- the end --------------------------------------------------------------------------------------


def _compare(world: World, report: Report) -> None:
    """Take every session over in turn; each daemon's files are then those of the one before."""
    for host in world.hosts:
        host.end()
    whole = [family for family in world.families if not family.fault]
    sessions = [*world.sessions, *(each for family in whole for each in family.sessions)]
    folders: list[dict[str, bytes]] = []
    # The first daemon twice: it takes over from the last one what that had taken over.
    for host in [*world.hosts, world.hosts[0]]:
        host.start()
        for session in tuple(sessions):
            try:
                _open(host, session)
            except steno.StenoError as error:
                report.faults.append(f"{host.name} does not open {session}: {error}")
                sessions.remove(session)
        listed = _listed(host)
        report.faults += [
            f"{host.name} has {each}, which differed" for each in listed if kept_from(each)
        ]
        report.faults += families.judge(
            world.families,
            listed,
            host.root / "sessions",
            has_old_names=world.has_old_names,
        )
        host.end()
        folders.append(_files(host, sessions))
    for host, found in zip(world.hosts[1:], folders[1:], strict=False):
        report.faults += _differences(host.name, folders[0], found)
    report.faults += _differences("the first daemon at the end", folders[0], folders[-1])
    for session in world.sessions:
        report.faults += judge(
            world.hosts[0].root / "sessions" / session, session, world.agents.facts
        )


def _open(host: Host, session: str) -> None:
    with steno.connect_sync(endpoint=host.endpoint, timeout=TAKEOVER_S) as client:

        def is_open() -> bool:
            try:
                client.open(session, create=False, follow=False)
            except steno.Held:
                return False
            return True

        wait_for_fact(is_open, TAKEOVER_S, f"{host.name} cannot take {session} over")


def _listed(host: Host) -> list[str]:
    with steno.connect_sync(endpoint=host.endpoint, timeout=TAKEOVER_S) as client:
        return [each.session for each in client.sessions()]


def _files(host: Host, sessions: Sequence[str]) -> dict[str, bytes]:
    """The replicated files of all sessions on one host, without hints, which each daemon renews."""
    from stenod_cluster.mirror import is_replicated
    from stenod_cluster.owned_folder import is_hint

    return {
        f"{session}/{each.name}": each.read_bytes()
        for session in sessions
        for each in sorted((host.root / "sessions" / session).iterdir())
        if each.is_file() and is_replicated(each.name) and not is_hint(each.name)
    }


def _differences(name: str, wanted: dict[str, bytes], found: dict[str, bytes]) -> Iterator[str]:
    for path in sorted({*wanted, *found}):
        ours, theirs = wanted.get(path), found.get(path)
        if ours != theirs:
            sizes = [None if each is None else len(each) for each in (ours, theirs)]
            yield f"{path} is another file on {name}: {sizes} bytes"


# --- the command ----------------------------------------------------------------------------------


def main() -> int:
    """Run the command."""
    options = _parser().parse_args()
    plan = Plan(
        _blows(options), options.seed, options.hosts, options.agents, options.movers,
        pause_s=options.pause_s, work_acks=options.work_acks,
    )  # fmt: skip
    folder = Path(tempfile.mkdtemp(prefix="crash.", dir=options.folder))
    began_s = time.monotonic()
    report = crash(plan, folder)
    print("\n".join(report.lines()))
    print(f"{len(plan.blows)} blows, seed {plan.seed}, {time.monotonic() - began_s:.0f} s")
    if report.faults or options.keep:
        print(f"the folders and logs are kept in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if report.faults else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="crash", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--blows", type=int, default=20, help="how many (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="of blows and agents (default: 0)")
    parser.add_argument("--hosts", type=int, default=2, help="daemons (default: 2)")
    parser.add_argument("--agents", type=int, default=8, help="client processes (default: 8)")
    parser.add_argument("--movers", type=int, default=2, help="programs that move (default: 2)")
    parser.add_argument("--only", choices=list(KINDS), help="one kind of blow")
    parser.add_argument(
        "--work-acks", type=int, default=WORK_ACKS, help="of each session between two blows"
    )
    parser.add_argument("--pause-s", type=float, default=PAUSE_S, help="between two commands")
    parser.add_argument("--folder", metavar="DIR", help="where the daemons' roots are made")
    parser.add_argument("--keep", action="store_true", help="keep the folders of a good run")
    return parser


def _blows(options: argparse.Namespace) -> list[Blow]:
    if options.only is None:
        return drawn(options.blows, options.seed, SESSIONS)
    many = drawn(options.blows * len(KINDS), options.seed, SESSIONS)
    return [blow for blow in many if blow.kind == options.only]
