"""Markdown and code as trees of harmless elements."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.viewer import markup
from steno.viewer.limits import CODE_CHARS_MAX, COLOURING_S_MAX, MARKDOWN_CHARS_MAX
from steno.viewer.markup import Tree, code

HARMLESS = {
    "p", "ul", "ol", "li", "blockquote", "em", "strong", "s", "table", "thead", "tbody", "tr",
    "th", "td", "h4", "h5", "h6", "span", "br", "hr", "code", "pre", "a",
}  # fmt: skip


def no_time() -> float:
    return 0.0


def markdown(text: str) -> list[Tree]:
    return markup.markdown(text, no_time)


def elements(trees: list[Tree]) -> Iterator[list[Any]]:
    for tree in trees:
        if not isinstance(tree, str):
            yield tree
            yield from elements(tree[2:])


def text_of(trees: list[Tree]) -> str:
    return "".join(tree if isinstance(tree, str) else text_of(tree[2:]) for tree in trees)


def test_markdown_becomes_elements() -> None:
    assert markdown("# One\n\nRun `ls` **now**.") == [
        ["h4", {}, "One"],
        ["p", {}, "Run ", ["code", {}, "ls"], " ", ["strong", {}, "now"], "."],
    ]


def test_tables_lists_and_strikes_are_understood() -> None:
    found = {each[0] for each in elements(markdown("| a |\n|---|\n| ~~b~~ |\n\n3. c\n\n> d"))}
    assert {"table", "td", "s", "ol", "li", "blockquote"} <= found
    assert ["ol", {"start": 3}] in [each[:2] for each in elements(markdown("3. c"))]


def test_code_has_the_classes_of_its_language() -> None:
    ((_, _, inner),) = markdown("```python\ndef x(): pass\n```")
    assert ["span", {"class": "k"}, "def"] in inner
    assert text_of(markdown("```python\ndef x(): pass\n```")) == "def x(): pass\n"


def test_unknown_languages_and_long_code_are_plain() -> None:
    assert code("x = 1", "no-such-language", no_time) == ["x = 1"]
    assert code("x" * (CODE_CHARS_MAX + 1), "python", no_time) == ["x" * (CODE_CHARS_MAX + 1)]


def test_code_that_takes_too_long_is_plain_from_there_on() -> None:
    program = "\ufeffx = 1\r\n" * 20
    seconds = count(step=COLOURING_S_MAX / 10)
    trees = code(program, "python", lambda: next(seconds))
    assert text_of(trees) == "x = 1\n" + "\ufeffx = 1\n" * 19
    assert sum(not isinstance(tree, str) for tree in trees) < 12
    assert trees[-1].count("\n") > 15


def test_a_very_long_text_is_shown_as_it_is() -> None:
    text = "*x* " * MARKDOWN_CHARS_MAX
    assert markdown(text) == [["pre", {}, text]]


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "text <b onmouseover=alert(1)>bold</b>",
        "<!-- comment --> <![CDATA[x]]> <?php x ?>",
    ],
)
def test_tags_in_a_text_are_text(text: str) -> None:
    assert text_of(markdown(text)) == text


@pytest.mark.parametrize(
    "target",
    ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,x", "vbscript:x", "file:///x",
     "/api/hello", "//evil.example"],
)  # fmt: skip
def test_only_web_and_mail_links_are_links(target: str) -> None:
    for text in (f"[x]({target})", f"![x]({target})", f"<{target}>"):
        assert [each for each in elements(markdown(text)) if each[0] == "a"] == []


def test_an_image_of_a_text_is_a_link_and_no_request() -> None:
    ((_, _, link),) = markdown("![plan](https://example.org/x.png)")
    assert link == ["a", {"href": "https://example.org/x.png"}, "[image: plan]"]


@given(st.text(alphabet=st.sampled_from("*_`<>[]()!#-|~\\\n\t &;:ax1.\"'=/"), max_size=200))
def test_any_text_becomes_harmless_elements(text: str) -> None:
    for tag, attributes, *_ in elements(markdown(text)):
        assert tag in HARMLESS
        assert attributes.keys() <= {"href", "class", "start"}
        if "href" in attributes:
            assert attributes["href"].lower().startswith(("http:", "https:", "mailto:"))
