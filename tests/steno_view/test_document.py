"""A session as one HTML file: complete, harmless and alone."""

from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.values import Record
from steno_protocol.positions import Position
from steno_protocol.replies import SessionStat
from steno_view.document import Document

KEY = "0199f1c2-5b1e-7a90-8000-3d1c5e9b7a11"
PICTURE = "data:image/png;base64,iVBORw0KGgo="


def no_time() -> float:
    return 0.0


def stat(title: str = "", labels: tuple[str, ...] = ()) -> SessionStat:
    return SessionStat(session="talk", head="0:1", bytes=0, generation=0, token_count=0,
        token_count_with_pending=0, n_checkpoints=0, has_system_prompt=False, created=False,
        title=title, labels=labels)  # fmt: skip


def page(*values: dict[str, Any], title: str = "", labels: tuple[str, ...] = ()) -> str:
    document = Document(stat(title, labels), no_time)
    records = [Record(Position(0, line), value, b"") for line, value in enumerate(values)]
    return "".join([document.head(), *map(document.record, records), document.foot(0)])


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in {"meta", "br", "hr", "img"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_record_has_its_role_author_time_and_a_place_to_link_to() -> None:
    shown = page({"role": "user", "content": "hello", "_by": "planner", "_id": KEY})
    elements = Elements(shown)
    assert ("article", {"id": "0:0"}) in elements.found
    assert ("a", {"class": "place", "href": "#0:0"}) in elements.found
    assert "userplanner2025-10-17 10:41:10 UTC0:0hello" in elements.text
    assert elements.open == []


def test_thoughts_calls_and_long_results_are_folded() -> None:
    call = {"id": "c", "function": {"name": "Shell", "arguments": '{"command":"ls"}'}}
    think = [{"type": "think", "think": "hmm"}]
    elements = Elements(page(
        {"role": "assistant", "content": think, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "\n".join(map(str, range(30)))},
    ))  # fmt: skip
    kinds = [each.get("class") for tag, each in elements.found if tag == "details"]
    assert kinds == ["fold thought", "fold call", "fold result"]
    assert "tool · Shell" in elements.text
    assert "22 more lines" in elements.text
    output = elements.text.partition("Shell")[2].replace("22 more lines", "\n")
    assert "\n".join(map(str, range(1, 30))) in output


def test_checkpoints_usages_and_images_are_shown() -> None:
    image = {"type": "image_url", "image_url": {"url": PICTURE}}
    shown = page(
        {"role": "_checkpoint", "id": 3}, {"role": "_usage", "token_count": 12345},
        {"role": "user", "content": [image]},
    )  # fmt: skip
    assert "checkpoint 3" in shown
    assert "12 345 tokens" in Elements(shown).text
    assert f'src="{PICTURE}"' in shown


def test_a_masked_record_keeps_its_image() -> None:
    image = {"type": "image_url", "image_url": {"url": PICTURE}}
    document = Document(stat(), no_time)
    exact = Record(Position(0, 0), {"role": "user", "content": [image]}, b"")
    masked = Record(Position(0, 0), {"role": "user", "content": [dict(image)]}, b"")
    assert PICTURE in document.record(masked, exact)


def test_the_policy_of_the_file_allows_its_own_styles_and_no_request() -> None:
    elements = Elements(page({"role": "user", "content": "x"}))
    policy = next(
        each["content"] for tag, each in elements.found if each.get("http-equiv") is not None
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "unsafe" not in policy
    assert {tag for tag, _ in elements.found} & {"script", "link", "iframe", "form"} == set()


ALLOWED = {
    "html", "head", "meta", "title", "style", "body", "main", "h1", "p", "code", "span", "article",
    "div", "header", "a", "time", "details", "summary", "pre", "figure", "img", "figcaption",
    "ul", "ol", "li", "blockquote", "em", "strong", "s", "table", "thead", "tbody", "tr", "th",
    "td", "h4", "h5", "h6", "br", "hr",
}  # fmt: skip
HOSTILE = st.text(
    alphabet=st.sampled_from("<>\"'&=/!-`*_[]()#|\n ax:"), max_size=60
) | st.sampled_from(
    ["<script>x</script>", '"><img src=x onerror=x>', "</style></title><script>", "&lt;b&gt;",
     "[x](javascript:x)", "![x](https://evil.example/x.png)", "<!--", "]]>", "\ud800"]
)  # fmt: skip


@given(HOSTILE, HOSTILE, HOSTILE)
def test_no_text_becomes_an_element_or_a_request(one: str, two: str, three: str) -> None:
    call = {"id": one, "function": {"name": two, "arguments": three}}
    parts = [{"type": "text", "text": one}, {"type": "think", "think": two}, {"type": three}]
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{one}"}}
    elements = Elements(page(
        {"role": one, "content": two, "_by": three},
        {"role": "assistant", "content": [*parts, image], "tool_calls": [call, two]},
        {"role": "tool", "tool_call_id": one, "content": "\n".join([three] * 20)},
        {"role": "_checkpoint", "id": one, "_by": two}, {"role": "_usage", "token_count": three},
        title=one, labels=(two, three),
    ))  # fmt: skip
    assert elements.open == []
    for tag, attributes in elements.found:
        assert tag in ALLOWED
        assert not any(name.startswith("on") or name == "style" for name in attributes)
        if tag == "img":
            assert (attributes["src"] or "").startswith("data:image/")
        if tag == "a":
            assert (attributes["href"] or "").startswith(("#", "http:", "https:", "mailto:"))


@pytest.mark.parametrize("damaged", [1, 2])
def test_lines_that_are_no_records_are_counted(damaged: int) -> None:
    assert f"{damaged} damaged line" in Document(stat(), no_time).foot(damaged)
