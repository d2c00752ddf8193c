"""Markdown and code on a terminal, with hostile texts."""

import gc
import re
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steno_cli.command_limits import CODE_CHARS_MAX, MARKDOWN_CHARS_MAX
from steno_cli.render import rich_markup
from steno_cli.render.rich_markup import RichMarkup, TimeIsUp, time_limit

STYLE = re.compile(r"\x1b\[[0-9;]*m")
PLAIN = RichMarkup(has_colours=False)
COLOURED = RichMarkup(has_colours=True)
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@pytest.fixture(autouse=True)
def _new_record() -> None:
    for each in (PLAIN, COLOURED):
        each.begin_record()


@pytest.fixture
def _no_collection() -> Generator[None]:
    """hypothesis has a callback in the collector, and an exception there fails a test."""
    gc.disable()
    yield
    gc.enable()


def shown(text: str, columns: int = 60) -> str:
    lines = PLAIN.markdown(text, columns)
    assert lines is not None
    return "\n".join(lines)


def test_each_form_of_markdown_is_laid_out() -> None:
    text = "# One\nsome *text*\nand `more`\n\n1. a\n2. b\n   - c\n\n> said\n\n```py\nx = 1\n```\n"
    assert shown(text) == (
        "# One\n\nsome text\nand more\n\n1. a\n2. b\n    • c\n\n▌ said\n\n  x = 1"
    )


def test_table_has_columns_whose_cells_wrap_without_losing_a_character() -> None:
    words = "word" * 20
    table = shown(f"| a | b |\n|---|--:|\n| 1 | 2 |\n| {words} | 3 |", 40)
    assert table.splitlines()[0].split() == ["a", "b"]
    assert all(len(line) <= 40 for line in table.splitlines())
    assert "".join(re.findall(r"[word]+", table)) == words


def test_code_and_json_are_coloured_and_the_text_stays_as_it_is() -> None:
    code = 'def f(x):\n    return "é"  # why'
    lines = COLOURED.markdown(f"```python\n{code}\n```", 60)
    assert lines is not None
    assert "\x1b[94mdef\x1b[0m" in lines[0]
    assert STYLE.sub("", "\n".join(lines)) == "\n".join(f"  {line}" for line in code.split("\n"))
    json_lines = COLOURED.code('{"a": [1, true]}', "json", 60)
    assert json_lines is not None
    assert STYLE.sub("", json_lines[0]) == '{"a": [1, true]}'
    assert '\x1b[94m"a"\x1b[0m' in json_lines[0]


def test_no_style_is_written_without_colours() -> None:
    lines = PLAIN.markdown("# a **b** [c](http://d)\n\n```python\nimport os\n```", 60)
    assert lines is not None
    assert "\x1b" not in "".join(lines)


def test_markup_of_rich_html_and_names_of_emoji_are_text() -> None:
    text = "[bold]x[/bold] [link=http://evil]y[/link] <b>z</b> :smile: <script>w</script>"
    assert shown(text, 100) == text
    block = "<div>\n\nhidden\n\n</div>"
    assert "<div>" in shown(block)


def test_target_of_a_link_is_shown_beside_its_text_and_no_link_is_sent() -> None:
    text = "[safe.org](https://evil.org/?a=%1b) <https://a.org> ![pic](http://i.org/x.png)"
    lines = COLOURED.markdown(text, 120)
    assert lines is not None
    assert "\x1b]8" not in lines[0]
    assert STYLE.sub("", lines[0]) == (
        "safe.org <https://evil.org/?a=%1b> https://a.org [image: pic] <http://i.org/x.png>"
    )
    assert shown("[a](javascript:alert(1))") == "[a](javascript:alert(1))"


@pytest.mark.parametrize("code", [0x1B, 0x9B, 0x07, 0x08, 0x202E, 0x2066, 0x2028])
def test_character_references_cannot_control_the_terminal(code: int) -> None:
    for text in (f"a&#{code};b", f"`x` &#x{code:x};", f"[a](http://b/&#{code};)", f"# &#{code};"):
        lines = COLOURED.markdown(text, 60)
        assert lines is not None
        assert CONTROLS.search(STYLE.sub("", "".join(lines))) is None


PIECES = st.sampled_from(
    ["*", "_", "`", "```", "~~", "[", "](", ")", "<", ">", "> ", "- ", "1. ", "|", "\n", "|-|\n",
     "# ", "&#27;", "&lt;", "\\", "![", "    ", "a", "word ", "é", "漢", "👩‍👩‍👧", "\t", "https://x.y",
     "\x1b[31m", "\x00", "\u202e", "[/bold]", "999999999. ", "\n\n", "---\n", "\ud800"]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(text=st.lists(PIECES, max_size=60).map("".join), columns=st.integers(16, 100))
def test_no_text_raises_or_controls_the_terminal(text: str, columns: int) -> None:
    for lines in (COLOURED.markdown(text, columns), COLOURED.code(text, "python", columns)):
        for line in lines or []:
            assert CONTROLS.search(STYLE.sub("", line)) is None


@pytest.mark.parametrize("mark", ["> ", "- ", "1. ", "* > "])
def test_deep_nesting_is_left_to_plain_text(mark: str) -> None:
    assert PLAIN.markdown(mark * 3 + "a", 60) is not None
    assert PLAIN.markdown(mark * 5000 + "a", 60) is None
    nested = "".join("  " * depth + "- a\n" for depth in range(200))
    assert PLAIN.markdown(nested, 60) is None


def test_long_texts_and_wide_tables_are_left_to_plain_text() -> None:
    assert PLAIN.markdown("a" * MARKDOWN_CHARS_MAX, 60) is not None
    assert PLAIN.markdown("a" * (MARKDOWN_CHARS_MAX + 1), 60) is None
    assert PLAIN.code("a" * (CODE_CHARS_MAX + 1), "python", 60) is None
    assert PLAIN.markdown("|a" * 50 + "\n" + "|-" * 50, 60) is None


@pytest.mark.usefixtures("_no_collection")
def test_text_that_takes_too_long_is_left_to_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    # A search that takes longer than the age of the universe.
    monkeypatch.setattr(
        rich_markup, "highlighted", lambda text, language: re.search(r"(a|a)*b", "a" * 200)
    )
    timer = signal.getitimer(signal.ITIMER_REAL)
    markup = RichMarkup(has_colours=True, limit=lambda: time_limit(0.01))
    assert markup.code("x", "python", 60) is None
    # pytest's own timer runs on.
    assert (signal.getitimer(signal.ITIMER_REAL)[0] > 0) == (timer[0] > 0)


def test_work_within_its_time_is_left_alone() -> None:
    handler = signal.getsignal(signal.SIGALRM)
    with time_limit(60):
        assert signal.getsignal(signal.SIGALRM) is not handler
    assert signal.getsignal(signal.SIGALRM) is handler
    with pytest.raises(TimeIsUp), time_limit(0.001):
        signal.pause()


def test_failure_of_a_library_is_left_to_plain_text() -> None:
    @contextmanager
    def failing() -> Generator[None]:
        yield
        raise RecursionError

    assert RichMarkup(has_colours=True, limit=failing).markdown("a", 60) is None


def test_wide_characters_fill_two_columns() -> None:
    assert PLAIN.wrapped("漢字漢字漢字", 8) == ["漢字漢字", "漢字"]


@pytest.mark.usefixtures("_no_collection")
def test_pathological_texts_end_soon() -> None:
    markup = RichMarkup(has_colours=True, limit=lambda: time_limit(0.1))
    began = time.process_time()
    for piece in ("[", "![", "*a_", "`", "<", "> ", "|a|\n|-|\n", "# a\n", "```\n"):
        markup.markdown(piece * (MARKDOWN_CHARS_MAX // len(piece)), 60)
    for language, piece in (("c", "\n"), ("js", '"\\'), ("make", "("), ("java", "//")):
        markup.code(piece * (CODE_CHARS_MAX // len(piece)), language, 60)
    # Thirteen limits and the time to begin; without limits it takes minutes.
    assert time.process_time() - began < 20
