"""The worlds of the simulation and the parts of each, drawn from the seed."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sim.foreign_program import IN_PLACE, MANNERS


@dataclass(frozen=True, slots=True)
class World:
    """The parts of one seed's world.

    Attributes:
        power_cuts: the power is cut; else only processes die.
        kills: processes die at any call.
        faults: calls to the disk fail.
        storms: the disk fails again and again for a while, and forgets meanwhile what a failed
            sync dropped.
        clock_jumps: wall clocks are set back and forth by hours and years, the clients' and the
            daemon's independently.
        few_keys: the daemon remembers few keys, so that it looks most of them up.
        at_once: the disk counts as fast, so that group commits serve the commands, not the tasks
            alone.
        shared: the session's folder is a mount's.
        has_wire: events are written beside the context.
        has_stream: records are written to a stream beside the context.
        foreign_lines: another program appends lines to the context between steps. Not together with
            power cuts: unsynced lines of others may vanish from between ours, and then no line is
            where it was. In a shared folder it may stop in the middle of a line.
        foreign_manner: how another program changes the files between any two calls, see `MANNERS`;
            empty if it does not.
        disconnects: connections are cut.
        narrow_queues: connections take few messages.
        short_pauses: much happens between a write and its sync.
        has_all: agents also write events, compact, and send D-Mails.
        compresses: past generations are compressed meanwhile, as by a rule of retention.
        has_groups: messages of all agents often come at once, and syncs of several files fail.
        has_moves: agents also rename sessions and restore deleted ones.
        has_forks: hosts fork the session, and write, shorten and remove the forks.
        bad_journal: the journal delays, loses and repeats messages, and hosts are cut off from it.
        small_messages: most changes need several messages of the journal.
        ignore_fdatasync: see `SimulatedDisk`.
        ignore_folder_fsync: see `SimulatedDisk`.
    """

    power_cuts: bool = False
    kills: bool = True
    faults: bool = False
    storms: bool = False
    clock_jumps: bool = False
    few_keys: bool = False
    at_once: bool = False
    shared: bool = False
    has_wire: bool = False
    has_stream: bool = False
    foreign_lines: bool = False
    foreign_manner: str = ""
    disconnects: bool = False
    narrow_queues: bool = False
    short_pauses: bool = False
    has_all: bool = False
    compresses: bool = False
    has_groups: bool = False
    has_moves: bool = False
    has_forks: bool = False
    bad_journal: bool = False
    small_messages: bool = False
    ignore_fdatasync: bool = False
    ignore_folder_fsync: bool = False


def _context(seed: int) -> World:
    foreign_lines = seed % 4 == 3
    # Only a clock shows whether a half line of another program stood still for a while.
    clock_jumps = not foreign_lines and seed % 3 == 1
    return World(
        power_cuts=not foreign_lines,
        faults=seed % 4 != 0,
        foreign_lines=foreign_lines,
        shared=seed % 8 == 7,
        storms=seed % 4 != 0 and seed % 5 == 0,
        clock_jumps=clock_jumps,
        few_keys=clock_jumps,
        at_once=seed // 8 % 2 == 0,
        compresses=seed % 16 in {0, 1, 5, 6, 12},
    )


def _files(seed: int) -> World:
    return replace(_context(seed), has_wire=True)


def _streams(seed: int) -> World:
    return replace(_context(seed), has_stream=True)


def _successors(seed: int) -> World:
    return World(power_cuts=seed % 4 != 3, faults=seed % 3 != 0, few_keys=seed % 5 == 1)


def _hosts(seed: int) -> World:
    return World(
        power_cuts=seed % 3 != 2,
        faults=seed % 4 == 0,
        storms=seed % 20 == 0,
        few_keys=seed % 5 == 1,
        has_wire=seed % 4 == 1,
        has_stream=seed % 4 == 2,
        has_forks=seed % 5 in {1, 3},
        bad_journal=seed % 6 != 0,
        small_messages=seed % 2 == 1,
    )


def _daemon(seed: int) -> World:
    return World(
        power_cuts=seed % 2 == 0,
        faults=seed % 3 != 0,
        few_keys=seed % 7 < 3,
        disconnects=seed % 5 != 0,
    )


def _full(seed: int) -> World:
    narrow, short = seed % 4 == 1, seed % 5 == 2
    return replace(_daemon(seed), has_all=True, narrow_queues=narrow, short_pauses=short)


def _groups(seed: int) -> World:
    return replace(_daemon(seed), power_cuts=True, has_groups=True)


def _moves(seed: int) -> World:
    return replace(_daemon(seed), has_moves=True)


def _foreign(seed: int) -> World:
    gentle = [manner for manner in MANNERS if manner not in IN_PLACE]
    return World(kills=False, foreign_manner=gentle[seed % len(gentle)], has_wire=True)


def _rough(seed: int) -> World:
    # A generator of its own, so that a world follows from its seed alone.
    chance = random.Random(f"world {seed}")
    faults, deaths = chance.random() < 0.6, chance.random() < 0.8
    return World(
        power_cuts=deaths,
        kills=deaths,
        faults=faults,
        shared=chance.random() < 0.5,
        foreign_manner=list(MANNERS)[seed % len(MANNERS)],
        has_wire=True,
    )


WORLDS: Mapping[str, Callable[[int], World]] = {
    # The writer of one session's context, with followers, faults and deaths.
    "context": _context,
    # The same with the writer of the wire file.
    "files": _files,
    # The writer of the context with that of a stream.
    "streams": _streams,
    # The writers of several streams, which are deleted, replaced by one another, and expire.
    "successors": _successors,
    # The writers of one session on two hosts, over a replicated journal; and forks of it.
    "hosts": _hosts,
    # A daemon with its clients, whose connections break.
    "daemon": _daemon,
    # The same with events, compactions and D-Mails.
    "full": _full,
    # A daemon whose group commits often have several files.
    "groups": _groups,
    # The daemon's clients, which also rename sessions and restore deleted ones.
    "moves": _moves,
    # Both writers beside a program that changes the files between any two calls.
    "foreign": _foreign,
    # The same with faults and deaths.
    "rough": _rough,
}
"""The worlds by the name that `python -m sim.run --world` takes."""
