"""Clauses about killed writers, torn files and a full disk."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from steno.testing.stores import limits
from steno.testing.stores.files import Snapshot, growing, restore, snapshot
from steno.testing.stores.ledger import Item
from steno.testing.stores.process import Died, Refused, StoreProcess
from steno.testing.stores.tracing import CHANGES, changes_of, kill_at, traced
from steno.testing.stores.trial import Case
from steno.testing.stores.verdicts import Broken, NotObserved

MakeItem = Callable[[], Item]
"""Makes the next append of a writer."""


def killed_writer(case: Case) -> str:
    """Kill -9 of a writer within its appends, and of its server; other writers go on."""
    survivor = case.open()

    def make() -> Item:
        return case.ledger.entry("writer", limits.LARGE_BYTES)

    for number in range(2 * case.rounds):
        _kill_within_appends(case, survivor, limits.LARGE_BYTES if number % 2 else 1)
    tried = [f"{2 * case.rounds} writers killed within their appends"]
    with suppress(NotObserved):
        calls = kill_at_calls(case, survivor, lambda victim: [victim.pid], make)
        tried.append(f"at {calls} calls of an append")
    if case.servers():
        for _ in range(2 * case.rounds):
            _kill_servers_within_appends(case, survivor)
        with suppress(NotObserved):
            calls = kill_at_calls(case, survivor, lambda _: case.servers(), make)
            tried.append(f"the server at {calls} calls")
    case.check()
    return ", ".join(tried)


def _kill_within_appends(case: Case, survivor: StoreProcess, size: int) -> None:
    victim = case.open()
    items = [case.ledger.entry("victim", size) for _ in range(limits.KILLED_APPENDS_MAX)]
    case.stream(victim, items)
    case.kill_within_stream(victim, case.acks_before_kill())
    _go_on(case, survivor)


def _kill_servers_within_appends(case: Case, survivor: StoreProcess) -> None:
    writer = case.open()
    items = [
        case.ledger.entry("client", limits.LARGE_BYTES) for _ in range(limits.KILLED_APPENDS_MAX)
    ]
    case.stream(writer, items)
    early = list(writer.acks(case.acks_before_kill()))
    case.ledger.ack(*(reply.id for reply in early if reply.error is None))
    case.kill_servers()
    # A client may ride out the death of its server, or raise: both are fine.
    case.take(writer)
    case.close(writer)
    _go_on(case, survivor)


def kill_at_calls(
    case: Case,
    survivor: StoreProcess,
    victims: Callable[[StoreProcess], list[int]],
    make: MakeItem,
) -> str:
    """Kill processes of an append at its calls that change something, one call at a time.

    Args:
        case: the case.
        survivor: another process, which goes on after each kill.
        victims: the processes to kill, for a writer.
        make: makes the appends.

    Returns:
        At how many calls they were killed, of how many that an append makes.

    Raises:
        NotObserved: strace is missing, or may not attach.
    """
    log = case.folder.with_suffix(".strace")
    writer = case.open()
    case.append(writer, make())
    with traced(victims(writer), ["-e", f"trace={CHANGES}"], log):
        case.append(writer, make())
    case.close(writer)
    calls = changes_of(log.read_text(errors="replace").splitlines())
    count = min(calls, limits.KILL_CALLS_MAX * case.rounds)
    chosen = case.random.sample(range(1, calls + 1), count)
    for number in sorted(chosen):
        writer = case.open()
        case.append(writer, make())
        with traced(victims(writer), kill_at(number)), suppress(Refused, Died):
            case.append(writer, make())
        case.kill(writer)
        _go_on(case, survivor)
    return f"{count} of the {calls}"


def _go_on(case: Case, survivor: StoreProcess) -> None:
    """Load in a new process, and append in another one and in the new one."""
    case.append(survivor, case.ledger.entry("survivor"))
    process = case.open()
    case.ledger.check(process.ask("load"))
    case.append(process, case.ledger.entry("next"))
    case.close(process)


def torn_tail(case: Case) -> str:
    """A file cut within its last entries, and garbage behind the last one."""
    return tear(case, lambda: case.ledger.entry("writer", limits.SMALL_BYTES_MAX))


def tear(case: Case, make: MakeItem) -> str:
    """Append, kill every process, then damage the tail of a file in many ways, one at a time."""
    writer = case.open()
    states: list[Snapshot] = []
    for _ in range(limits.TORN_APPENDS_MAX):
        case.append(writer, make())
        states.append(snapshot(case.folder))
    case.kill_all()
    files = growing(states)
    if not files:
        raise NotObserved("no file of the store grows at its end with every append")
    at_rest = snapshot(case.folder)
    cuts = 4 * case.rounds
    for _ in range(cuts):
        path = case.random.choice(files)
        _try_cut(case, states, at_rest, path)
    for garbage in _garbage(case, states, files[0]):
        _try_tail(case, at_rest, files[0], garbage)
    names = ", ".join(path.name for path in files)
    return f"{cuts} cuts and 3 tails of garbage in {names}"


def _try_cut(case: Case, states: list[Snapshot], at_rest: Snapshot, path: Path) -> None:
    sizes = [len(state[path]) for state in states]
    cut = case.random.randrange(sizes[0], sizes[-1])
    whole = sum(size <= cut for size in sizes)
    restore(case.folder, {**at_rest, path: at_rest[path][:cut]})
    _recover(case, whole, f"{path.name} cut at byte {cut} of {sizes[-1]}")


def _garbage(case: Case, states: list[Snapshot], path: Path) -> list[bytes]:
    """Zeros (an extent that was never written), half an entry again, and random bytes."""
    count = case.random.randrange(1, limits.GARBAGE_BYTES_MAX)
    last = states[-1][path][len(states[-2][path]) :]
    return [b"\0" * count, last[: len(last) // 2], case.random.randbytes(count)]


def _try_tail(case: Case, at_rest: Snapshot, path: Path, garbage: bytes) -> None:
    restore(case.folder, {**at_rest, path: at_rest[path] + garbage})
    _recover(
        case,
        limits.TORN_APPENDS_MAX,
        f"{path.name} followed by {len(garbage)} bytes {garbage[:12]!r}",
    )


def _recover(case: Case, whole: int, damage: str) -> None:
    """Open the damaged store, append, and load in another process."""
    ledger = case.ledger
    before = list(ledger.items.values())
    ledger.acked = {item.id for item in before[:whole]}
    try:
        process = case.open()
        ledger.check(process.ask("load"))
        case.append(process, ledger.entry("next"))
        case.close(process)
        case.check()
    except Refused as error:
        raise Broken("a damaged tail was not survived", f"{damage}: {error.detail}") from error
    except Broken as error:
        raise Broken(error.summary, f"{error.detail} ({damage})") from error
    finally:
        case.kill_all()
        for item in list(ledger.items.values())[len(before) :]:
            del ledger.items[item.id]


def full_disk(case: Case) -> str:
    """Appends until there is no room; then there is room again."""
    return fill_disk(case, lambda: case.ledger.entry("writer", limits.DISK_ENTRY_BYTES))


def fill_disk(case: Case, make: MakeItem) -> str:
    """Fill the disk for a writer that goes on afterwards, and for one that is killed by then."""
    goes_on = _fill_disk(case, make, goes_on=True)
    case.begin_session()
    refusal = _fill_disk(case, make, goes_on=False) or goes_on
    if refusal is None:
        raise NotObserved(f"{limits.DISK_APPENDS_MAX} appends fit into files that could not grow")
    return f"reported as {refusal.splitlines()[0][:60]}"


def _fill_disk(case: Case, make: MakeItem, *, goes_on: bool) -> str | None:
    """Append until the store refuses; then make room, append again and compare."""
    writer = case.open()
    case.append(writer, make())
    with case.full_disk(writer):
        refusal = _append_until_refused(case, writer, make)
    if goes_on:
        # This handle met the full disk, and may be of no further use.
        item = make()
        if writer.call(**item.call()).error is None:
            case.ledger.ack(item.id)
    case.kill_all()
    process = case.open()
    case.append(process, case.ledger.entry("next"))
    case.close(process)
    case.check()
    return refusal


def _append_until_refused(case: Case, writer: StoreProcess, make: MakeItem) -> str | None:
    for _ in range(limits.DISK_APPENDS_MAX):
        try:
            case.append(writer, make())
        except Refused as error:
            return error.detail
    return None
