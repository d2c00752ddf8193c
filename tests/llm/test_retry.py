"""Retries of requests, without network and clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.llm._retry import asked_pause, is_worth_repeating, pause_s
from steno.llm.limits import MODEL_RETRY_S, MODEL_RETRY_S_MAX

NOON = 1_793_275_200.0
"""Thursday, 29 October 2026, 12:00:00 GMT."""


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 529])
def test_a_server_that_is_busy_or_broken_is_asked_again(status: int) -> None:
    assert is_worth_repeating(status)


@pytest.mark.parametrize("status", [201, 301, 400, 401, 403, 404, 413, 422, 501, 505, 600])
def test_permanent_error_is_not_retried(status: int) -> None:
    assert not is_worth_repeating(status)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"retry-after": "Thu, 29 Oct 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Thu, 29 Oct 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "1"}, 1.0),
    ],
)
def test_the_pause_that_a_server_asks_for_is_understood(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert asked_pause(headers, NOON) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1", "nan", "inf", "1_0", "1e3", "٣", "1.2.3"])
def test_a_senseless_retry_after_is_ignored(text: str) -> None:
    assert asked_pause({"retry-after": text}, NOON) is None


@given(st.text(), st.floats(allow_nan=False, allow_infinity=False))
def test_no_header_makes_the_policy_fail(text: str, now: float) -> None:
    pause = asked_pause({"retry-after": text}, now)
    assert pause is None or pause >= 0


@given(st.integers(1, 100), st.floats(0, 1, exclude_max=True))
def test_a_pause_grows_with_each_attempt_up_to_its_bound(attempt: int, draw: float) -> None:
    pause = pause_s(attempt, None, draw)
    assert MODEL_RETRY_S / 2 <= pause <= MODEL_RETRY_S_MAX
    assert pause_s(attempt + 1, None, draw) >= pause


@given(st.floats(0, 1e6), st.floats(0, 1, exclude_max=True))
def test_retry_waits_at_least_the_requested_time_and_little_longer(
    requested: float, draw: float
) -> None:
    assert requested <= pause_s(1, requested, draw) <= requested + MODEL_RETRY_S
