"""Characters that control a terminal or mislead a reader."""

import json
import re
import time
import unicodedata
from io import BytesIO, TextIOWrapper

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_cli.render.output import Output
from steno_present.safe_text import coloured, printable, printable_json, without_ansi
from steno_protocol.errors import NotFound

NAMED = {
    "C0": "\x00\x07\x08\x0d\x0e\x1b\x1f",
    "DEL": "\x7f",
    "C1": "\x80\x85\x9b\x9d\x9f",
    "direction": "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
    "without width": "\xad\u180e\u200b\u200c\u200d\u2060\u2061\u2064\ufeff\ufff9\ufffb",
    "tags": "\U000e0001\U000e0020\U000e0041\U000e007f\U000e0100",
    "line ends": "\u2028\u2029",
}
ALL = "".join(NAMED.values())
HOSTILE = f"a\x1b[2Jb\x1b]0;owned\x07{ALL}z"


class Terminal(TextIOWrapper):
    """A stream that says that it is a terminal."""

    def __init__(self) -> None:
        self.bytes = BytesIO()
        super().__init__(self.bytes, encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> str:
        self.flush()
        return self.bytes.getvalue().decode()


@pytest.mark.parametrize("name", NAMED)
def test_each_such_character_has_an_escape(name: str) -> None:
    for character in NAMED[name]:
        for shown in (printable(character), coloured(character)):
            assert shown.isprintable()
            assert shown != character
        assert printable_json(character).isprintable()


@pytest.mark.parametrize("around", ["", "é"], ids=["alone", "beside a character beyond ASCII"])
def test_of_ascii_alone_the_controls_have_an_escape(around: str) -> None:
    for character in map(chr, range(128)):
        is_kept = character.isprintable() or character in "\t\n"
        assert (printable(character + around) == character + around) is is_kept
        assert (printable_json(character + around) == character + around) is is_kept


@given(st.text(max_size=200))
def test_what_is_shown_has_no_control_character(text: str) -> None:
    for shown in (printable(text), re.sub(r"\x1b\[[0-9;]*m", "", coloured(text))):
        kinds = {unicodedata.category(each) for each in shown if each not in "\n\t"}
        assert not kinds & {"Cc", "Zl", "Zp"}


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_json_keeps_its_meaning(text: str) -> None:
    document = json.dumps({text: [text, ALL]}, ensure_ascii=False)
    assert json.loads(printable_json(document)) == json.loads(document)


def test_everything_that_an_output_writes_to_a_terminal_is_neutral() -> None:
    for as_json in (False, True):
        data, messages = Terminal(), Terminal()
        output = Output(data, messages, as_json=as_json)
        output.write(HOSTILE)
        output.raw(HOSTILE.encode() + b"\x9b2J\n")
        output.json_line(json.dumps(HOSTILE, ensure_ascii=False).encode() + b"\r\n")
        output.document({"text": HOSTILE})
        data.write(output.encoded(HOSTILE).decode())
        output.say(HOSTILE)
        output.ask(HOSTILE)
        output.error(NotFound(HOSTILE, session=HOSTILE))
        output.failure(HOSTILE)
        for stream in (data, messages):
            assert not set(stream.shown) & set(ALL)
            assert len(stream.shown) > 100


def test_a_pipe_gets_every_byte_as_it_is() -> None:
    pipe = BytesIO()
    output = Output(TextIOWrapper(pipe, encoding="utf-8", write_through=True), Terminal())
    output.raw(b"\x9b\x1b[2J\xff")
    output.json_line(HOSTILE.encode())
    assert pipe.getvalue() == b"\x9b\x1b[2J\xff" + HOSTILE.encode()


def test_colours_of_the_command_stay() -> None:
    terminal = Terminal()
    Output(terminal, terminal).write("\x1b[1;32mok\x1b[0m \x1b[2J")
    assert terminal.shown == "\x1b[1;32mok\x1b[0m \\x1b[2J\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;32mok\x1b[0m", "ok"),
        ("\x9b31mred\x9bm", "red"),
        ("\x1b[38;2;1;2;3mtrue\x1b[K", "true"),
        ("\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x07", "link"),
        ("\x1b(Bplain\x1b7", "plain"),
        ("a\x1bPq#0\x1b\\b", "ab"),
        ("\x1b", "\x1b"),
        ("no colours [32m", "no colours [32m"),
    ],
)
def test_ansi_sequences_are_dropped(text: str, shown: str) -> None:
    assert without_ansi(text) == shown


@pytest.mark.parametrize("piece", ["\x1b[", "\x1b]", "\x1b[1;", "\x1b(", "\x9b", "\x1b]0;xxxxxxxx"])
def test_dropping_ansi_takes_linear_time(piece: str) -> None:
    begun = time.process_time()
    without_ansi(piece * (2_000_000 // len(piece)))
    assert time.process_time() - begun < 4
