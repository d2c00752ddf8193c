"""No text that a pattern matches is passed over because of its bytes."""

import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from steno_present.messages import texts_of
from steno_search.prefilter import Prefilter, needed_word, prefilter_of

WORDS = [
    "disk",
    "full",
    "Kernel",
    "SİSKİN",
    "ſtraße",
    "null",
    "None",
    "DİSK",
    "diſk",
    "ab",
    "path",
    "value",
]
texts = st.lists(st.sampled_from([*WORDS, " ", "\n", '"', "\\", "\u212a", "1", "é", "x"])).map(
    "".join
)
values = st.recursive(
    texts | st.integers() | st.floats() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
patterns = st.lists(
    st.sampled_from([*WORDS, ".", ".*", "a?", "l+", "k*", "^", "$", " ", "(a|b)", "[dk]", r"\w"]),
    min_size=1,
).map("".join)


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    arguments = draw(values.map(json.dumps) | texts | values)
    function = {"name": draw(texts | st.none()), "arguments": arguments}
    content = draw(texts | st.lists(st.fixed_dictionaries({"text": texts, "think": texts})))
    return {"role": "assistant", "content": content, "tool_calls": [{"function": function}]}


@given(records(), patterns, st.booleans(), st.booleans(), st.booleans())
@example({"content": "diſk"}, "disk", False, True, False)
@example(
    {"content": "", "tool_calls": [{"function": {"name": None, "arguments": float("inf")}}]},
    "Infinity", False, False, False,
)  # fmt: skip
def test_what_matches_is_never_passed_over(
    record: dict[str, Any], pattern: str, is_text: bool, ignore_case: bool, is_ascii: bool
) -> None:
    prefilter = prefilter_of(pattern, is_text=is_text, ignore_case=ignore_case)
    source = re.escape(pattern) if is_text else pattern
    try:
        expression = re.compile(source, re.MULTILINE | (re.IGNORECASE if ignore_case else 0))
    except re.error:
        return
    line = json.dumps(record, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    found = any(expression.search(text) for text in texts_of(json.loads(line)))
    assert prefilter is None or prefilter.may_match(line) or not found


@pytest.mark.parametrize(
    ("pattern", "is_text", "ignore_case", "word"),
    [
        ("disk full", True, False, b"disk"),
        ("no space left", False, True, b"pace"),
        ("colou?r", False, False, b"colo"),
        ("to*do", False, False, None),
        ("(disk)", False, False, None),
        ("(disk)", True, False, b"disk"),
        ("kiss", False, True, None),
        ("one", True, True, None),
        ("12345", True, False, None),
    ],
)
def test_the_needed_word(
    pattern: str, is_text: bool, ignore_case: bool, word: bytes | None
) -> None:
    assert needed_word(pattern, is_text=is_text, ignore_case=ignore_case) == word


def test_letters_that_a_writer_escaped_may_match() -> None:
    prefilter = Prefilter(b"disk", ignore_case=False)
    assert prefilter.may_match(rb'{"content":"\u0064isk"}')
    assert not prefilter.may_match(rb'{"content":"\u001b[1md\u00e9sk"}')


@pytest.mark.parametrize("size", range(1, 12))
def test_a_word_on_the_border_of_blocks_is_found(size: int) -> None:
    for data, may_match in ((b"..the disk is full..", True), (rb"..\u0064isk.......", True),
                            (b"..the di-sk is full..", False)):  # fmt: skip
        blocks = [data[begin : begin + size] for begin in range(0, len(data), size)]
        assert Prefilter(b"disk", ignore_case=False).may_match_any(blocks) == may_match
