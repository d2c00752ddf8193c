"""What was written to a timeline, held to the table of what each kind tells."""

from collections.abc import Iterable

from steno_protocol.timeline_entries import FACTS, TimelineEntry


def check_facts(entries: Iterable[TimelineEntry]) -> None:
    """Every entry is of a kind that is known, and tells what its kind tells."""
    for entry in entries:
        facts = FACTS[entry.kind]
        known = facts.always | facts.perhaps
        assert facts.always <= entry.details.keys() <= known, f"other facts: {entry}"
