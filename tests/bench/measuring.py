"""Measuring: rounds with their medians, ratios, tables and JSON."""

import time
from collections.abc import Callable, Mapping, Sequence
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


def latencies_us(count: int, call: Callable[[], object]) -> list[float]:
    """Call so often, one call after the other; how long each took."""
    latencies: list[float] = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        latencies.append((time.perf_counter() - start) * 1e6)
    return latencies


def table_of(comparison: Comparison) -> str:
    """The table of one comparison."""
    heads = ["", *comparison.measures]
    heads += [f"{comparison.ratio_of} / {name}" for name in comparison.beside]
    lines = [heads, *(_line(comparison, row) for row in comparison.rows.values())]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    body = ["  ".join(_pad(line, widths)).rstrip() for line in lines]
    return "\n".join([comparison.title, *("  " + text for text in body), ""])


def _line(comparison: Comparison, row: Row) -> list[str]:
    cells = [row.name, *(_cell(row.rounds.get(measure)) for measure in comparison.measures)]
    for name in comparison.beside:
        ratio = comparison.ratio(row.name, name)
        cells.append("-" if ratio is None else f"{ratio:.2f}")
    return cells


def _cell(values: list[float] | None) -> str:
    if not values:
        return "-"
    if len(values) == 1:
        return _number(values[0])
    return f"{_number(median(values))} ({_number(min(values))}-{_number(max(values))})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _pad(line: list[str], widths: list[int]) -> list[str]:
    first, *rest = (
        text.ljust(width) if column == 0 else text.rjust(width)
        for column, (text, width) in enumerate(zip(line, widths, strict=True))
    )
    return [first, *rest]
