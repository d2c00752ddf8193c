"""The ledger of the conformance suite, and the calls that strace logged."""

from collections.abc import Callable
from pathlib import Path

import pytest

from steno.testing.stores.clauses import CLAUSES
from steno.testing.stores.driver import CAPABILITIES, Entry
from steno.testing.stores.durability import acks_synced
from steno.testing.stores.ledger import Ledger
from steno.testing.stores.verdicts import Broken
from support.documents import table_rows
from support.project import PROJECT

GUIDE = PROJECT / "client" / "guide" / "store-conformance.md"


def filled() -> tuple[Ledger, list[Entry]]:
    """A ledger with two writers and a batch, all acknowledged, and what a good store loads."""
    ledger = Ledger(session="demo")
    items = [ledger.entry("one"), ledger.entry("two"), ledger.entry("one"), ledger.batch("two", 3)]
    ledger.ack(*(item.id for item in items))
    return ledger, [entry for item in items for entry in item.entries]


def damaged(loaded: list[Entry]) -> list[Entry]:
    return [{**loaded[0], "text": "other"}, *loaded[1:]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda loaded: loaded[1:], "1 of 6 acknowledged entries lost: one-1"),
        (lambda loaded: loaded[:3], "3 of 6 acknowledged entries lost: two-2, two-3, two-4"),
        (lambda loaded: [*loaded, loaded[2]], "1 of 7 entries stored twice: one-2"),
        (lambda loaded: loaded[:4], "1 of 3 entries of a batch are there: batch two-2..4"),
        (damaged, "1 of 6 damaged entries: {'id': 'one-1'"),
        (lambda loaded: [*loaded, "text"], "1 of 7 damaged entries: 'text'"),
        (
            lambda loaded: [loaded[2], loaded[1], loaded[0], *loaded[3:]],
            "1 of 6 entries out of their writer's order: one-1",
        ),
    ],
)
def test_ledger_notices(change: Callable[[list[Entry]], list[Entry]], message: str) -> None:
    ledger, loaded = filled()
    with pytest.raises(Broken) as broken:
        ledger.check(change(loaded))
    assert str(broken.value).startswith(message)


def test_order_across_writers_is_checked_where_appends_followed_each_other() -> None:
    ledger, loaded = filled()
    swapped = [loaded[1], loaded[0], *loaded[2:]]
    ledger.check(swapped)
    with pytest.raises(Broken, match="2 of 6 entries out of the order of their acks"):
        ledger.check_order(swapped)


def test_removed_entries_must_not_come_back_and_refused_ones_not_be_stored() -> None:
    ledger, loaded = filled()
    ledger.removed.add("one-1")
    ledger.check(loaded[1:])
    with pytest.raises(Broken, match="removed entries came back: one-1"):
        ledger.check(loaded)
    ledger.removed.clear()
    ledger.refused.add("two-1")
    with pytest.raises(Broken, match="refused entries are stored: two-1"):
        ledger.check(loaded)


def test_long_list_of_lost_entries_is_cut() -> None:
    ledger = Ledger(session="demo")
    ledger.ack(*(ledger.entry("one").id for _ in range(20)))
    with pytest.raises(Broken, match=r"^20 of 20 .* one-8 and 12 more$"):
        ledger.check([])


@pytest.mark.parametrize(
    ("calls", "synced"),
    [
        ('write(4</s/a>, "x", 1) = 1\nfsync(4</s/a>) = 0\nACK', [True]),
        ('write(4</s/a>, "x", 1) = 1\nACK', [False]),
        ('fsync(4</s/a>) = 0\nwrite(4</s/a>, "x", 1) = 1\nACK', [False]),
        ('write(4</s/a>, "x", 1) = 1\nfsync(4</s/b>) = 0\nACK', [False]),
        ('write(4</s/a>, "x", 1) = 1\nfsync(4</s/a>) = -1 EIO (Input/output error)\nACK', [False]),
        ('write(4</t/a>, "x", 1) = 1\nfsync(4</t/a>) = 0\nACK', [False]),
        ("ACK", [False]),
        ("msync(0x7f00, 4096, MS_SYNC) = 0\nACK", [True]),
        ('openat(3</s>, "a", O_WRONLY|O_DSYNC) = 4</s/a>\nwrite(4</s/a>, "x", 1) = 1\nACK', [True]),
        (
            'write(4</s/a>, "x", 1) = 1\nfsync(4</s/a> <unfinished ...>\nRESUMED\nACK\nACK',
            [True, False],
        ),
        (
            'write(4</s/a>, "x", 1) = 1\nfsync(4</s/a> <unfinished ...>\nACK\nRESUMED\nACK',
            [False, False],
        ),
    ],
)
def test_ack_is_synced_only_behind_the_sync_of_its_last_write(
    calls: str, synced: list[bool]
) -> None:
    short = {
        "ACK": '1 write(3<pipe:[5]>, "{\\"ok\\": null, \\"a"..., 40) = 40',
        "RESUMED": "2 <... fsync resumed>) = 0",
    }
    lines = [short.get(line, f"2 {line}") for line in calls.splitlines()]
    assert acks_synced(lines, Path("/s"), 1) == synced


def test_guide_lists_every_clause_and_capability() -> None:
    clauses = table_rows(GUIDE, "The clauses")
    assert [row[0] for row in clauses] == [clause.name for clause in CLAUSES]
    assert [row[1] for row in clauses] == [clause.promise for clause in CLAUSES]
    assert {row[0] for row in table_rows(GUIDE, "Capabilities")} == CAPABILITIES.keys()
