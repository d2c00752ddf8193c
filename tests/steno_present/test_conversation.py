"""A conversation as lines: laid out, plain, and of any size."""

import json
import time
from typing import Any

import pytest

from steno._sansio.summaries import INTRODUCTION
from steno.values import Record
from steno_cli.render.rich_markup import RichMarkup
from steno_present.conversation import Conversation
from steno_protocol.positions import Position


def lines_of(record: dict[str, Any], *, width: int = 60, full: bool = False) -> list[str]:
    """The lines of a message below its heading, laid out without colours."""
    markup = RichMarkup(has_colours=False)
    conversation = Conversation(width, lambda text, *_: text, full=full, markup=markup)
    return conversation.record(Record(Position(0, 0), record, b""))


def call(name: str, **arguments: object) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": function}]}


def test_arguments_are_json_beside_the_name_or_below_it() -> None:
    assert lines_of(call("Shell", command="ls"))[1:] == ['  → Shell {"command": "ls"}', ""]
    lines = lines_of(call("Read", path="/a/path/that/does/not/fit/beside.txt", first=1))
    assert lines[1:] == [
        "  → Read", "    {", '      "path": "/a/path/that/does/not/fit/beside.txt",',
        '      "first": 1', "    }", "",
    ]  # fmt: skip


def test_arguments_of_several_lines_are_shown_as_text_and_folded() -> None:
    record = call("Write", path="a.py", text="\n".join(f"line {n}" for n in range(20)))
    lines = lines_of(record)
    assert lines[1:4] == ['  → Write {"path": "a.py"}', "    text:", "      line 0"]
    assert lines[-2] == "      … 9 more lines, shown with --full"
    assert "      line 19" in lines_of(record, full=True)


@pytest.mark.parametrize("arguments", ["json", "[1]", None, "[" * 5000, '{"a": 1'])
def test_arguments_that_are_no_object_are_shown_as_they_are(arguments: str | None) -> None:
    function = {"name": "\x1b[2JShell", "arguments": arguments}
    lines = lines_of({"role": "assistant", "tool_calls": [{"function": function}]})
    shown = "".join("".join(lines[1:]).split())
    assert shown.startswith("→Shell(" + (arguments or "")[:4])


def test_summary_has_its_own_heading_and_the_words_of_the_program_are_no_markdown() -> None:
    content = [{"type": "text", "text": INTRODUCTION}, {"type": "text", "text": "- a\n- b"}]
    lines = lines_of({"role": "user", "content": content}, width=80)
    assert lines[0].startswith("summary ")
    assert lines[1].startswith("  <system>The older part")
    assert lines[-3:] == ["   • a", "   • b", ""]


def test_words_of_the_program_before_a_text_leave_it_markdown() -> None:
    lines = lines_of({"role": "user", "content": "<system>x</system>\n\n- a"})
    assert lines[1:] == ["  <system>x</system>", "", "   • a", ""]
    lines = lines_of({"role": "user", "content": "<system>- x\n- y</system>"})
    assert lines[1:] == ["  <system>- x", "  - y</system>", ""]


def test_thought_is_folded_or_shown_with_its_name() -> None:
    record = {"role": "assistant", "content": [{"type": "think", "think": "hm\nwell"}]}
    assert lines_of(record)[1] == "  ▸ thought, 7 characters: hm well"
    assert lines_of(record, full=True)[1:4] == ["  ▸ thought", "  hm", "  well"]


def test_line_ends_of_other_systems_are_line_ends() -> None:
    assert lines_of({"role": "tool", "content": "a\r\nb\rc"})[1:3] == ["  a", "  b\\x0dc"]


@pytest.mark.parametrize("piece", ["a", "word ", "漢", "> ", "[", "\t"])
def test_message_of_16_mib_is_shown_in_seconds(piece: str) -> None:
    text = piece * (16 * 1024 * 1024 // len(piece.encode()))
    began = time.process_time()
    lines = lines_of({"role": "assistant", "content": text}, width=80)
    assert time.process_time() - began < 20
    assert len(lines) > 50_000 or not text.strip()
