"""The facts of timeline entries, compared with the table of their kinds."""

from collections.abc import Iterable

from steno_protocol.timeline_entries import FACTS, TimelineEntry


def check_facts(entries: Iterable[TimelineEntry]) -> None:
    """Check that each entry has a known kind and the facts of that kind."""
    for entry in entries:
        facts = FACTS[entry.kind]
        known = facts.always | facts.perhaps
        assert facts.always <= entry.details.keys() <= known, f"other facts: {entry}"
