"""Comparisons as a text table."""

from statistics import median

from bench.figures import Comparison, Row


def draw(comparison: Comparison) -> str:
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
