"""Slow requests, of which a client sends a bounded number."""

import pytest

from steno._sansio.pending import Pending
from steno._sansio.requests import result_of
from steno_protocol import limits, replies
from steno_protocol.errors import ErrorCode, Unreachable
from support.driven_exchange import ACK, Driver

MANY = 3 * limits.CLIENT_LOOKUPS_MAX
ANSWER = replies.TimelineReport(entries=[])


def ids(driver: Driver) -> list[bytes]:
    """The requests that are in flight."""
    return [request_id for request_id, _ in driver.sent()]


def ids_of(pendings: list[Pending]) -> list[bytes]:
    """Their ids."""
    return [pending.id for pending in pendings]


def test_each_reply_releases_the_next_request_in_order() -> None:
    driver = Driver()
    pendings = [driver.stat() for _ in range(MANY)]
    sent = ids(driver)
    assert len(sent) == limits.CLIENT_LOOKUPS_MAX
    for pending in pendings:
        driver.answer(pending.id, ANSWER)
        sent += ids(driver)
    assert sent == ids_of(pendings)
    assert all(result_of(pending, replies.Reply) == (ANSWER, b"") for pending in pendings)


def test_mutation_does_not_wait_for_reads() -> None:
    driver = Driver()
    for _ in range(MANY):
        driver.stat()
    driver.sent()
    append = driver.append()
    assert ids(driver) == [append.id]
    driver.answer(append.id, ACK)
    assert result_of(append, replies.Reply) == (ACK, b"")


def test_abandoned_request_is_not_sent_and_takes_no_place() -> None:
    driver = Driver()
    pendings = [driver.stat() for _ in range(MANY)]
    first, second, third = (
        pendings[at : at + limits.CLIENT_LOOKUPS_MAX]
        for at in range(0, MANY, limits.CLIENT_LOOKUPS_MAX)
    )
    driver.sent()
    for pending in [*first, *second]:
        driver.exchange.forget(pending)
    driver.wait(0.0)
    assert ids(driver) == ids_of(third)


def test_refused_request_keeps_its_place_until_its_reply() -> None:
    driver = Driver()
    pendings = [driver.stat() for _ in range(limits.CLIENT_LOOKUPS_MAX + 1)]
    driver.sent()
    driver.refuse(pendings[0].id, ErrorCode.BUSY)
    assert ids(driver) == []
    driver.wait(1.0)
    assert pendings[0].id in ids(driver)


@pytest.mark.parametrize("refused", [False, True])
def test_on_a_new_connection_all_are_asked_for_anew(*, refused: bool) -> None:
    driver = Driver()
    pendings = [driver.stat() for _ in range(MANY)]
    driver.sent()
    if refused:
        driver.refuse(pendings[0].id, ErrorCode.BUSY)
    driver.exchange.disconnected("it went away")
    driver.connect()
    sent = ids(driver)
    assert len(sent) == limits.CLIENT_LOOKUPS_MAX
    for pending in pendings:
        driver.answer(pending.id, ANSWER)
        sent += ids(driver)
    assert sent == ids_of(pendings)


def test_waiting_request_fails_when_the_daemon_disappears() -> None:
    driver = Driver()
    pendings = [driver.stat() for _ in range(limits.CLIENT_LOOKUPS_MAX + 1)]
    driver.exchange.disconnected("it went away")
    driver.wait(31.0)
    for pending in pendings:
        with pytest.raises(Unreachable, match="it went away"):
            result_of(pending, replies.Reply)
