"""The reference of the Python API against the docstrings."""

import logging

import pytest

import steno
from support import docstrings, generate_documents, generate_reference
from support.generate_reference import FOLDER, PAGES, pages


def test_every_public_name_is_documented_with_its_sections_and_an_example() -> None:
    assert docstrings.gaps() == []


def test_a_name_without_its_sections_is_a_gap() -> None:
    found = docstrings.find("steno._async.session.Session._fork")
    assert [*docstrings.lacking("_fork", found, is_class=False)] == [
        "_fork: summary",
        "_fork: Example",
        "_fork: command in Args",
        "_fork: Returns",
        "_fork: Raises",
    ]


def test_a_value_without_a_description_of_its_fields_is_a_gap() -> None:
    found = docstrings.find("steno_protocol.replies.TimelineReport")
    lacking = [*docstrings.lacking("TimelineReport", found, is_class=True)]
    assert lacking == ["TimelineReport: Example", "TimelineReport: entries in Attributes"]


def test_the_docstrings_are_read_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    docstrings.forget()
    with caplog.at_level(logging.WARNING):
        pages()
    assert caplog.messages == []


def test_every_public_name_has_its_place_in_the_reference() -> None:
    assert docstrings.public_names() == steno.__all__
    named = [name for page in PAGES.values() for name in page.names]
    assert sorted(named) == sorted(steno.__all__)


@pytest.mark.parametrize("name", ["README.md", *PAGES])
def test_a_page_of_the_reference_is_generated_from_the_docstrings(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == pages()[name], f"run {generate_reference.COMMAND}"


def test_the_reference_has_no_further_page() -> None:
    assert {file.name for file in FOLDER.iterdir()} == {
        "README.md",
        generate_documents.PAGE.name,
        *PAGES,
    }


def test_the_page_of_the_documents_is_generated_from_the_values() -> None:
    written = generate_documents.PAGE.read_text(encoding="utf-8")
    assert written == generate_documents.page(), f"run {generate_documents.COMMAND}"
