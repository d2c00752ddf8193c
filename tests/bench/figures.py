"""Measured figures: medians over rounds with spread, and ratios."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any


@dataclass(slots=True)
class Row:
    """One way of doing a thing; `rounds` has one value a round for each measure."""

    name: str
    rounds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, values: Mapping[str, float]) -> None:
        """Take in the values of one more round."""
        for measure, value in values.items():
            self.rounds.setdefault(measure, []).append(value)

    def middle(self, measure: str) -> float | None:
        """The median of a measure, None when it was not measured."""
        values = self.rounds.get(measure)
        return median(values) if values else None


@dataclass(slots=True)
class Comparison:
    """Several ways of doing one thing, measured in turn within one run.

    Attributes:
        title: what was done.
        measures: names of the columns, unit last.
        ratio_of: the measure with a reported ratio.
        beside: the rows that the others are compared with.
    """

    title: str
    measures: Sequence[str]
    ratio_of: str
    beside: Sequence[str]
    rows: dict[str, Row] = field(default_factory=dict)

    def add(self, name: str, values: Mapping[str, float]) -> None:
        """One more round of one row."""
        self.rows.setdefault(name, Row(name)).add(values)

    def ratio(self, name: str, beside: str) -> float | None:
        """The ratio of a row's figure to that of `beside`, None when one is missing."""
        if beside not in self.rows:
            return None
        mine = self.rows[name].middle(self.ratio_of)
        theirs = self.rows[beside].middle(self.ratio_of)
        return mine / theirs if mine is not None and theirs else None

    def as_json(self) -> dict[str, Any]:
        """Every value of every round, and the ratios of the medians."""
        ratios = {
            name: {other: self.ratio(name, other) for other in self.beside} for name in self.rows
        }
        return {**asdict(self), "rows": [asdict(row) for row in self.rows.values()],
                "ratios": ratios}  # fmt: skip


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of them lie; `values` are sorted."""
    return values[min(len(values) - 1, int(len(values) * share))]
