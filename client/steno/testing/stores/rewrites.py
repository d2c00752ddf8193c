"""Clauses about stale writers, retries after a lost answer, and batches."""

from contextlib import suppress
from typing import Any

from steno.testing.stores import limits
from steno.testing.stores.accidents import fill_disk, kill_at_calls, tear
from steno.testing.stores.ledger import Item
from steno.testing.stores.process import Died, StoreProcess
from steno.testing.stores.trial import Case
from steno.testing.stores.verdicts import Broken, NotObserved


def stale_writer(case: Case) -> str:
    """A clear or revert by one process while another one has the session open and appends."""
    kinds = sorted(case.offers & {"clear", "revert"})
    for _ in range(2 * case.rounds):
        for kind in kinds:
            _append_after(case, kind)
            _append_during(case, kind)
    return f"{4 * case.rounds} of each: {', '.join(kinds)}"


def _append_after(case: Case, kind: str) -> None:
    """The stale writer is idle during the rewrite."""
    stale, other, request, kept = _begin(case, kind)
    stale.ask("load")
    case.ledger.removed = case.ledger.acked - kept
    other.ask(**request)
    _append_unless_refused(case, stale)
    _end(case, stale, other)


def _append_during(case: Case, kind: str) -> None:
    """The stale writer appends all the time."""
    stale, other, request, kept = _begin(case, kind)
    ledger = case.ledger
    ledger.removed = ledger.acked - kept
    case.stream(stale, [ledger.entry("stale") for _ in range(limits.APPENDS_MAX)])
    replies = list(stale.acks(case.acks_before_kill()))
    rewrite = other.call(**request)
    if rewrite.error is not None:
        raise Broken(f"a {kind} beside a writer raised", rewrite.error)
    for reply in (*replies, *stale.acks()):
        if reply.error is None:
            ledger.ack(reply.id)
            if reply.ended_ns < rewrite.began_ns:
                ledger.removed.add(reply.id)
            elif reply.began_ns < rewrite.ended_ns:
                ledger.optional.add(reply.id)
    _end(case, stale, other)


def _begin(
    case: Case, kind: str
) -> tuple[StoreProcess, StoreProcess, dict[str, Any], frozenset[str]]:
    """A new session with two writers; the request of the rewrite, and what it keeps."""
    case.begin_session()
    stale, other = case.open(), case.open()
    case.append(stale, case.ledger.entry("stale"))
    case.append(other, case.ledger.entry("other"))
    request: dict[str, Any] = {"do": "clear"}
    kept: frozenset[str] = frozenset()
    if kind == "revert":
        kept = frozenset(case.ledger.acked)
        request = {"do": "revert", "mark": other.ask("checkpoint")}
    case.append(stale, case.ledger.entry("stale"))
    return stale, other, request, kept


def _end(case: Case, stale: StoreProcess, other: StoreProcess) -> None:
    case.append(other, case.ledger.entry("other"))
    _append_unless_refused(case, stale)
    case.check()
    case.close(stale)
    case.close(other)


def _append_unless_refused(case: Case, process: StoreProcess) -> None:
    """A conflict is as good as an entry in its place."""
    item = case.ledger.entry("stale")
    if process.call(**item.call()).error is None:
        case.ledger.ack(item.id)


def retry_after_lost_answer(case: Case) -> str:
    """Appends whose writers die between commit and answer, and are repeated under their keys."""
    survivor = case.open()
    repeats = 3 * case.rounds
    for number in range(repeats):
        victim = case.open()
        item = case.ledger.entry(f"victim{number}")
        with suppress(Died):
            victim.ask("append_and_die", entry=item.entries[0], key=item.key)
        _repeat(case, survivor, item)
    for number in range(repeats):
        victim = case.open()
        items = [case.ledger.entry(f"killed{number}") for _ in range(limits.KILLED_APPENDS_MAX)]
        case.stream(victim, items)
        case.kill_within_stream(victim, case.acks_before_kill())
        # Its fate is unknown, and that of the others is not: they were never begun. A quick writer
        # may have got an ack for each.
        item = next((each for each in items if each.id not in case.ledger.acked), items[-1])
        _repeat(case, survivor, item)
    _repeat(case, survivor, case.ledger.entry("survivor"))
    return f"{2 * repeats} writers killed, their appends repeated by two processes"


def _repeat(case: Case, survivor: StoreProcess, item: Item) -> None:
    """Repeat an append twice, with an append of another writer in between."""
    case.append(survivor, item)
    case.append(survivor, case.ledger.entry("survivor"))
    process = case.open()
    case.append(process, item)
    case.close(process)
    case.check()


def whole_batches(case: Case) -> str:
    """Batches in a torn file, on a full disk, and of a killed writer; loads in between."""
    tried: list[str] = []
    # The torn files come first: in a folder that has a history, a log may not grow at its end.
    for name, accident in (("torn files", tear), ("a full disk", fill_disk)):
        with suppress(NotObserved):
            accident(case, lambda: _batch(case, "writer"))
            tried.append(name)
        case.begin_session()
    reader = case.open()
    _kill_within_batches(case, reader)
    tried.append(f"{2 * case.rounds} writers killed")
    with suppress(NotObserved):
        calls = kill_at_calls(case, reader, lambda it: [it.pid], lambda: _batch(case, "writer"))
        tried.append(f"at {calls} calls of a batch")
    case.check()
    return ", ".join(tried)


def _kill_within_batches(case: Case, reader: StoreProcess) -> None:
    for number in range(2 * case.rounds):
        victim = case.open()
        case.stream(
            victim, [_batch(case, f"victim{number}") for _ in range(limits.KILLED_APPENDS_MAX)]
        )
        for reply in victim.acks(case.acks_before_kill()):
            if reply.error is None:
                case.ledger.ack(reply.id)
            # Other batches may be half written just now; none may be half visible.
            case.ledger.check_whole(reader.ask("load"))
        case.kill_within_stream(victim, 1)
        case.append(reader, _batch(case, "survivor"))
        case.check()


def _batch(case: Case, writer: str) -> Item:
    return case.ledger.batch(writer, limits.BATCH_ENTRIES_MAX, limits.DISK_ENTRY_BYTES)
