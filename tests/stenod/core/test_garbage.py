"""The generations that a collection may remove."""

from steno_protocol.replies import Mail
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core.garbage import Past, Retention, droppable

DAY = 86_400.0
NOW = 100 * DAY

PAST = [Past(number, 1000, NOW) for number in range(6)]
"""Six generations, their files all touched just now; the present one is 6."""

CLEARED = [
    TimelineEntry(kind="cleared", generation=number + 1, at=number * DAY, details={})
    for number in range(6)
]
"""Generation n was left behind on day n."""


def _wish(days: float | None = None, keep: int = 1, *, with_lineage: bool = False) -> Retention:
    return Retention(None if days is None else NOW - days * DAY, keep, with_lineage)


def _numbers(
    wish: Retention, entries: list[TimelineEntry] | None = None, mail: Mail | None = None
) -> list[int]:
    timeline = CLEARED if entries is None else entries
    return [each.generation for each in droppable(PAST, timeline, 6, mail, wish)]


def test_the_newest_generation_that_was_left_behind_always_stays() -> None:
    assert _numbers(_wish()) == [0, 1, 2, 3, 4]
    assert _numbers(_wish(0)) == [0, 1, 2, 3, 4]
    assert droppable(PAST[:1], CLEARED, 1, None, _wish()) == []
    assert droppable([], [], 0, None, _wish()) == []


def test_so_many_of_the_newest_stay() -> None:
    assert _numbers(_wish(keep=4)) == [0, 1]
    assert _numbers(_wish(keep=9)) == []


def test_age_is_counted_from_the_rewrite_that_left_it_behind() -> None:
    assert _numbers(_wish(days=97.5)) == [0, 1, 2]


def test_file_times_give_the_age_without_a_timeline() -> None:
    assert _numbers(_wish(days=1), []) == []
    assert [each.generation for each in droppable(
        [Past(0, 1, 5 * DAY), Past(1, 1, NOW), Past(2, 1, NOW)], [], 3, None, _wish(days=1)
    )] == [0]  # fmt: skip


def test_generation_of_a_compaction_stays_unless_requested() -> None:
    entries = [
        *CLEARED[:3],
        TimelineEntry(kind="compacted", generation=4, at=3 * DAY, details={"from": 3}),
        TimelineEntry(kind="reverted", generation=5, at=4 * DAY, details={"from": 4}),
        TimelineEntry(kind="compacted", generation=6, at=5 * DAY, details={"from": 5}),
    ]
    assert _numbers(_wish(), entries) == [0, 1, 2, 4]
    assert _numbers(_wish(with_lineage=True), entries) == [0, 1, 2, 3, 4]


def test_where_a_waiting_mail_goes_back_to_stays() -> None:
    mail = Mail(id="m", checkpoint_id=0, message="x", cursor="2:0")
    assert _numbers(_wish(), mail=mail) == [0, 1, 3, 4]


def test_a_waiting_mail_stays_deliverable_also_when_its_lineage_was_asked_for() -> None:
    entries = [
        *CLEARED[:2],
        TimelineEntry(
            kind="compacted", generation=3, at=2 * DAY, details={"from": 2, "checkpoint_id": 4}
        ),
        TimelineEntry(kind="prompted", generation=4, at=3 * DAY, details={}),
        TimelineEntry(
            kind="compacted", generation=5, at=4 * DAY, details={"from": 4, "checkpoint_id": 7}
        ),
        TimelineEntry(kind="prompted", generation=6, at=5 * DAY, details={}),
    ]
    early = Mail(id="m", checkpoint_id=0, message="x", cursor="2:0")
    assert _numbers(_wish(with_lineage=True), entries, early) == [0, 1, 3]
    # The mail was sent in generation 3, and its checkpoint has been in 4 since.
    late = Mail(id="m", checkpoint_id=5, message="x", cursor="3:0")
    assert _numbers(_wish(with_lineage=True), entries, late) == [0, 1, 2]
