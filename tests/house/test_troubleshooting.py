"""The pages of troubleshooting against the errors of the program."""

import re
from pathlib import Path

from house.error_texts import HOLE, ErrorText, all_texts, doctor_findings, raised_texts
from house.test_documents import GUIDE_FOLDER
from steno_cli.exits import Exit, exit_of
from steno_protocol.errors import REFUSALS, ErrorCode, OutcomeUnknown, Unreachable
from support.documents import table_rows
from support.project import PROJECT

PAGE = GUIDE_FOLDER / "troubleshooting.md"
PAGES = [PAGE, *sorted((GUIDE_FOLDER / "troubleshooting").glob("*.md"))]
DOCTOR = GUIDE_FOLDER / "troubleshooting" / "doctor.md"
LETTERS_MIN = 4
"""A text with fewer letters is made of other texts, which have their own entries."""


def _entries(page: Path) -> list[str]:
    """The texts in the first column of the page's tables, except those of the codes."""
    rows = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    cells = [row.split(" | ")[0].removeprefix("| ") for row in rows]
    texts = [text for cell in cells for text in re.findall(r"`([^`]+)`", cell)]
    return [text for text in texts if text not in set(ErrorCode)]


def _matches(entry: str, text: str) -> bool:
    """Whether the text contains the parts of the entry in their order."""
    end = 0
    for part in entry.split(HOLE):
        begin = text.find(part, end)
        if begin < 0:
            return False
        end = begin + len(part)
    return True


def _is_in(texts: set[str], entry: str) -> bool:
    """Whether one of the texts matches; most lack the longest part, which a search finds out."""
    longest = max(entry.split(HOLE), key=len)
    return any(_matches(entry, text) for text in texts if longest in text)


def _without_entry(texts: list[ErrorText], pages: list[Path]) -> list[str]:
    entries = [entry for page in pages for entry in _entries(page)]
    return [
        f"{each.place}: {each.text}"
        for each in texts
        if len(re.findall(r"[A-Za-z]", each.text)) >= LETTERS_MIN
        and not any(_matches(entry, each.text) for entry in entries)
    ]


def test_every_error_code_has_its_entry_with_its_class_and_exit_code() -> None:
    rows = {row[0]: row for row in table_rows(PAGE, "The codes")}
    assert rows.keys() == {*ErrorCode, "none", "any"}
    for code, kind in REFUSALS.items():
        assert rows[code][1] == kind.__name__
        assert int(rows[code][2].split(",")[0]) == exit_of(kind(""))
    assert int(rows["none"][2]) == exit_of(Unreachable("")) == Exit.UNREACHABLE
    assert int(rows["any"][2]) == exit_of(OutcomeUnknown("")) == Exit.UNKNOWN


def test_every_text_of_an_error_has_its_entry() -> None:
    texts = raised_texts()
    assert len(texts) > 300
    assert _without_entry(texts, PAGES) == []


def test_every_finding_of_the_doctor_has_its_entry() -> None:
    findings = doctor_findings()
    assert len(findings) > 30
    assert _without_entry(findings, [DOCTOR]) == []
    # One that is made without `warning` and `problem` is not among these.
    modules = (PROJECT / "client" / "steno_cli" / "doctor").glob("[!_]*.py")
    assert [each.name for each in modules if "Finding(" in each.read_text()] == []


def test_every_entry_is_a_text_of_the_program() -> None:
    texts = all_texts()
    for page in PAGES:
        stale = [entry for entry in _entries(page) if not _is_in(texts, entry)]
        assert stale == [], page.name


def test_no_entry_is_so_short_that_it_matches_any_text() -> None:
    entries = [entry for page in PAGES for entry in _entries(page)]
    assert [entry for entry in entries if len(re.findall(r"[A-Za-z]", entry)) < 6] == []
