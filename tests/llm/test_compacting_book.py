"""The sessions that a worker looks at, without daemon and clock."""

from steno_cli.command_limits import WATCH_BACKOFF_S, WATCH_BACKOFF_S_MAX
from steno_cli.compact.schedule import Book
from steno_protocol.replies import SessionEntry


def entry(session: str, size: int = 1) -> SessionEntry:
    return SessionEntry(session=session, bytes=size, modified_at=float(size), generations=0)


def wanted(book: Book, entries: list[SessionEntry], now: float = 0.0) -> list[str]:
    return [each.session for each in book.to_examine(entries, now)]


def test_a_session_is_looked_at_once_for_each_change() -> None:
    book = Book()
    assert wanted(book, [entry("a"), entry("b")]) == ["a", "b"]
    book.examined(entry("a"))
    assert wanted(book, [entry("a"), entry("b")]) == ["b"]
    assert wanted(book, [entry("a", 2)]) == ["a"]


def test_a_session_is_left_alone_while_it_is_compacted() -> None:
    book = Book()
    book.examined(entry("a"))
    book.begun("a")
    assert wanted(book, [entry("a", 2)]) == []
    assert wanted(book, []) == []
    book.ended("a")
    assert wanted(book, [entry("a")]) == []
    assert wanted(book, [entry("a", 2)]) == ["a"]


def test_failed_session_is_retried_at_growing_intervals() -> None:
    book = Book()
    now = 0.0
    pauses = []
    for _ in range(9):
        book.examined(entry("a"))
        book.begun("a")
        pauses.append(book.failed("a", now))
        assert wanted(book, [entry("a", 2)], now + pauses[-1] - 1) == []
        now += pauses[-1]
        assert wanted(book, [entry("a")], now) == ["a"]
    assert pauses[:3] == [WATCH_BACKOFF_S * factor for factor in (1, 2, 4)]
    assert pauses[-1] == WATCH_BACKOFF_S_MAX


def test_a_session_that_fails_for_months_is_still_tried_again() -> None:
    book = Book()
    pauses = {book.failed("a", 0.0) for _ in range(5000)}
    assert max(pauses) == WATCH_BACKOFF_S_MAX


def test_one_success_makes_good_for_all_failures() -> None:
    book = Book()
    book.failed("a", 0.0)
    book.failed("a", 0.0)
    book.ended("a")
    assert book.failed("a", 0.0) == WATCH_BACKOFF_S


def test_a_session_that_is_gone_is_forgotten() -> None:
    book = Book()
    book.failed("a", 0.0)
    assert wanted(book, []) == []
    assert wanted(book, [entry("a")]) == ["a"]
