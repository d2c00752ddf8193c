"""The rules of retention."""

import msgspec
import pytest

from steno_protocol.settings import Settings, read_settings
from stenod.core.retention import Rules, is_configured, rules_of

DAY = 86_400.0


class Thing(msgspec.Struct, frozen=True):
    """A thing of some age."""

    at: float
    size: int = 100


NEWEST_FIRST = [Thing(day * DAY) for day in (9, 7, 5, 3, 1)]


def _days(rules: Rules) -> list[tuple[float, str]]:
    return [(thing.at / DAY, rule) for thing, rule in rules.excess(NEWEST_FIRST, 10 * DAY)]


def test_without_a_rule_nothing_is_named() -> None:
    rules = Rules("trash")
    assert not rules.are_set
    assert _days(rules) == []
    assert not is_configured(Settings())


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        (Rules("trash", days=6), {1, 3}),
        (Rules("trash", number=4), {1}),
        (Rules("trash", size=299), {1, 3, 5}),
        (Rules("trash", size=300), {1, 3}),
        (Rules("trash", number=9, size=9999), set[int]()),
    ],
)
def test_the_oldest_things_beyond_a_bound_are_named(rules: Rules, named: set[int]) -> None:
    found = _days(rules)
    assert {day for day, _ in found} == named
    assert [day for day, _ in found] == sorted(named)


def test_each_rule_stands_alone_and_is_shown_with_its_value() -> None:
    assert _days(Rules("generations", days=8, number=3, size=450)) == [
        (1, "retention.generations_days = 8"),
        (3, "retention.generations_number = 3"),
    ]
    assert _days(Rules("sessions", size=450)) == [(1, "retention.sessions_bytes = 450")]


def test_rules_come_from_the_configuration() -> None:
    text = '[retention]\nsessions_days = 90\nsessions_bytes = "1 GiB"\ntrash_number = 5\n'
    settings = read_settings(text, "config.toml", {})
    assert rules_of("sessions", settings) == Rules("sessions", 90.0, 0, 2**30)
    assert rules_of("trash", settings) == Rules("trash", 0.0, 5, 0)
    assert not rules_of("generations", settings).are_set
    assert is_configured(settings)
