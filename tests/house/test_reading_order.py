"""The reading order of the sources against the sources."""

import re

import pytest

from support.documents import table_rows
from support.project import PROJECT

PAGE = PROJECT / "daemon" / "reading-order.md"
FILES = table_rows(PAGE, "The reading order")
ROWS = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "`" in line]
LINES_OFF_MAX = 0.1
"""A page is not wrong because a function got a line."""


@pytest.mark.parametrize("row", FILES, ids=lambda row: row[0].rpartition("/")[2])
def test_a_file_of_the_reading_order_has_the_lines_that_it_says(row: list[str]) -> None:
    lines = len((PROJECT / row[0]).read_text().splitlines())
    assert abs(lines - int(row[1])) <= LINES_OFF_MAX * lines


def test_the_lines_to_read_are_as_many_as_the_page_says() -> None:
    parts = [re.search(r"(\d+) lines", row[2]) for row in FILES]
    read = sum(int(part[1] if part else row[1]) for part, row in zip(parts, FILES, strict=True))
    assert f"about {round(read, -2):,} lines".replace(",", " ") in PAGE.read_text()


def test_every_path_of_the_page_exists() -> None:
    named = re.findall(r"`((?:client|daemon|protocol)/[^`<]+)`", PAGE.read_text())
    assert len(named) > len(FILES)
    assert [path for path in named if not (PROJECT / path).exists()] == []


@pytest.mark.parametrize("line", ROWS, ids=lambda line: line.split("|")[1].strip())
def test_a_name_stands_in_a_file_of_its_row(line: str) -> None:
    spans = re.findall(r"`([^`]+)`", line)
    paths = [PROJECT / span for span in spans if (PROJECT / span).exists()]
    text = "\n".join(path.read_text() for path in paths if path.suffix == ".py")
    names = re.findall(r"`([A-Za-z_.]+)`", line)
    parts = {part for name in names if not _is_file(name) for part in name.split(".")}
    assert {part for part in parts if not re.search(rf"\b{part}\b", text)} == set()


def _is_file(name: str) -> bool:
    return name.endswith(".py") or (PROJECT / name).exists()
