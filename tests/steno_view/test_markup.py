"""Markdown and code as trees of harmless elements."""

import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_view import markup
from steno_view.limits import (
    CODE_CHARS_MAX,
    COLOURING_S_MAX,
    MARKDOWN_CHARS_MAX,
    RECORD_MARKDOWN_CHARS_MAX,
)
from steno_view.markup import Budget, Tree, code

HARMLESS = {
    "p", "ul", "ol", "li", "blockquote", "em", "strong", "s", "table", "thead", "tbody", "tr",
    "th", "td", "h4", "h5", "h6", "span", "br", "hr", "code", "pre", "a",
}  # fmt: skip


def no_time() -> float:
    return 0.0


def markdown(text: str) -> list[Tree]:
    return markup.markdown(text, Budget(no_time))


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
    assert code("x = 1", "no-such-language", Budget(no_time)) == ["x = 1"]
    assert code("x" * (CODE_CHARS_MAX + 1), "python", Budget(no_time)) == [
        "x" * (CODE_CHARS_MAX + 1)
    ]


def test_code_that_takes_too_long_is_plain_from_there_on() -> None:
    program = "\ufeffx = 1\r\n" * 20
    seconds = count(step=COLOURING_S_MAX / 10)
    trees = code(program, "python", Budget(lambda: next(seconds)))
    assert text_of(trees) == "x = 1\n" + "\ufeffx = 1\n" * 19
    assert sum(not isinstance(tree, str) for tree in trees) < 12
    assert trees[-1].count("\n") > 15


def test_a_very_long_text_is_shown_as_it_is() -> None:
    text = "*x* " * MARKDOWN_CHARS_MAX
    assert markdown(text)[1:] == [["pre", {}, text]]


COSTLY = {
    "brackets": "[", "images": "![", "nested brackets": "[[]", "links": "[a](", "stars": "*_",
    "runs": "a***", "backquotes": "`a ", "setext": "a\n=\n", "fences": "```\n",
    "quotations": "> " * 90 + "a\n", "references": "[a]: /b\n", "entities": "&#1;",
}  # fmt: skip


def _is_as_it_is(trees: list[Tree], text: str) -> bool:
    return trees[1:] == [["pre", {}, text]]


@pytest.mark.parametrize("name", COSTLY)
def test_a_costly_text_takes_a_bounded_time(name: str) -> None:
    piece = COSTLY[name]
    text = piece * ((MARKDOWN_CHARS_MAX - 1000) // len(piece))
    begun = time.process_time()
    trees = markdown(text)
    # Half a second here at most; brackets took a second, and two on a slower machine.
    assert time.process_time() - begun < 2.5
    if name in {"brackets", "images", "nested brackets"}:
        assert _is_as_it_is(trees, text)


def test_few_characters_make_no_million_of_cells() -> None:
    wide = "|" + "a|" * 1000 + "\n|" + "-|" * 1000 + "\n"
    text = wide + "a\n" * 10_000
    assert _is_as_it_is(markdown(text), text)
    table = "| a | b | c |\n|---|---|---|\n" + "| 1 | 2 | 3 |\n" * 300
    assert [each[0] for each in elements(markdown(table))].count("td") == 900


def test_prose_of_the_greatest_length_is_laid_out() -> None:
    line = (
        "A *word*, a `name`, a [link](https://a.b/c), **two words** and a list:\n\n- one\n- two\n\n"
    )
    text = line * ((MARKDOWN_CHARS_MAX - 1) // len(line))
    assert len([each for each in elements(markdown(text)) if each[0] == "a"]) > 400


def test_one_record_has_one_budget_for_all_its_texts() -> None:
    text = "*x* " * 5000
    budget = Budget(no_time)
    shown = [markup.markdown(text, budget) for _ in range(10)]
    laid_out = [each for each in shown if not _is_as_it_is(each, text)]
    assert len(laid_out) * len(text) <= RECORD_MARKDOWN_CHARS_MAX
    assert _is_as_it_is(shown[-1], text)
    assert not _is_as_it_is(shown[0], text)


def test_one_record_has_one_time_for_the_colours_of_all_its_code() -> None:
    seconds = count(step=COLOURING_S_MAX / 40)
    budget = Budget(lambda: next(seconds))
    fence = "```python\nx = 1\n```\n"
    (trees,) = [markup.markdown(fence * 100, budget)]
    assert text_of(trees) == "x = 1\n" * 100
    coloured = [each for each in elements(trees) if each[0] == "span"]
    assert 0 < len(coloured) < 60


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
