"""Slow connections: no request is resent while it may be in flight."""

import pytest

from steno_protocol import events, limits, replies
from steno_protocol.commands import Append, Command, Read, Subscribe
from support.driven_exchange import ACK, RECORD, Driver, only

LARGE = b'{"role":"user","content":"%s"}' % (b"x" * limits.MIB)
OF_LARGE_S = len(LARGE) / limits.SLOW_BYTES_S
READ = Read(session="demo", bytes_max=len(LARGE))
APPEND = Append(session="demo", key="k")


@pytest.mark.parametrize(("command", "records"), [(APPEND, [LARGE]), (READ, [])])
def test_large_request_on_a_slow_connection_is_resent_later(
    command: Command, records: list[bytes]
) -> None:
    driver = Driver()
    pending = driver.exchange.submit(command, records, lambda: None, driver.now, 60.0)
    only(driver.sent())
    driver.wait(OF_LARGE_S + limits.RESEND_S - 0.1)
    assert driver.sent() == []
    driver.wait(0.2)
    assert only(driver.sent())[0] == pending.id


def test_bytes_ahead_on_the_connection_count_too() -> None:
    driver = Driver()
    large = driver.exchange.submit(APPEND, [LARGE], lambda: None, driver.now, 60.0)
    small = driver.append("small", timeout_s=60.0)
    assert len(driver.sent()) == 2
    driver.wait(OF_LARGE_S + limits.RESEND_S - 0.1)
    assert driver.sent() == []
    driver.answer(large.id, ACK)
    driver.wait(0.2)
    assert only(driver.sent())[0] == small.id
    driver.answer(small.id, ACK)
    last = driver.append("last")
    driver.sent()
    driver.wait(limits.RESEND_S + 0.1)
    assert only(driver.sent())[0] == last.id


def test_a_subscription_is_not_asked_again_while_the_events_of_others_come() -> None:
    driver = Driver()
    driver.follow()
    first = only(driver.sent())[0]
    driver.answer(first, replies.Subscribed(head="0:9", incarnation="i"))
    driver.follow()
    second = only(driver.sent())[0]
    for line in range(4):
        driver.wait(limits.RESEND_S * 2)
        records = events.Records(first=f"0:{line}", next=f"0:{line + 1}")
        driver.answer(first, records, RECORD + b"\n")
    assert not any(isinstance(command, Subscribe) for _, command in driver.sent())
    # Nothing more comes, and so its answer was lost.
    driver.wait(limits.RESEND_S * 6)
    asked = [each for each, command in driver.sent() if isinstance(command, Subscribe)]
    assert len(asked) == 1
    assert asked != [second]


def test_subscription_without_its_reply_is_resent_despite_traffic() -> None:
    driver = Driver()
    driver.follow()
    first = only(driver.sent())[0]
    driver.answer(first, replies.Subscribed(head="0:999", incarnation="i"))
    other = driver.follow()
    other.deadline = driver.now + 1000
    driver.sent()
    for line in range(100):
        driver.wait(1.0)
        records = events.Records(first=f"0:{line}", next=f"0:{line + 1}")
        driver.answer(first, records, RECORD + b"\n")
    assert any(isinstance(command, Subscribe) for _, command in driver.sent())
