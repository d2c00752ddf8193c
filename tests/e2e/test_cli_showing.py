"""`steno show`: the pager, --since and times."""

import io
import json
import os
import re
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from steno import connect_sync
from steno_cli.records import since
from steno_cli.render.output import Output
from steno_cli.render.pager import paged
from steno_protocol.errors import NotFound
from steno_protocol.installation import extra_command
from support.command import Steno
from support.messages import message

pytestmark = pytest.mark.served

HOUR_S = 3600


def key_of(at: float) -> str:
    """A uuid7 of that time, as a client makes it."""
    digits = f"{int(at * 1000):012x}"
    return f"{digits[:8]}-{digits[8:]}-7000-8000-000000000000"


def _told_over_hours(root: Path, now: float | None = None) -> Steno:
    """A session with a record of three hours ago, one of an hour ago, and one of no known time."""
    now = time.time() if now is None else now
    keys = {text: key_of(now - hours * HOUR_S) for hours, text in ((3, "early"), (1, "late"))}
    with connect_sync(root) as client:
        session = client.open("demo", follow=False)
        for text, key in {**keys, "timeless": "step-1"}.items():
            session.append_message({"role": "user", "content": text}, key=key)
    return Steno(root)


def test_since_begins_with_the_first_record_known_to_be_new_enough(root: Path) -> None:
    steno = _told_over_hours(root)
    shown = steno("show", "demo", "--since", "2h").out
    assert "early" not in shown
    assert "late" in shown
    assert "timeless" in shown
    none = steno("show", "demo", "--since", "30min")
    assert (none.out, none.err) == ("", "steno: demo has no record there\n")
    lines = steno("read", "demo", "--since", "2h", "--json").documents
    assert [line["record"]["content"] for line in lines] == ["late", "timeless"]


@pytest.mark.served(False)
def test_a_time_beyond_the_calendar_is_shown_as_a_number(root: Path, steno: Steno) -> None:
    with connect_sync(root) as client:
        session = client.open("demo", follow=False)
        session.append_message(
            {"role": "user", "content": "late"}, key="ffffffff-ffff-7fff-8fff-ffffffffffff"
        )
        client.drain()
    (root / "config.toml").write_text("[disk]\ntrash_days = 4_000_000\n")
    shown = steno("show", "demo")
    assert (shown.code, shown.err) == (0, "")
    assert "late" in shown.out
    deleted = steno("delete", "demo")
    assert deleted.code == 0
    assert re.search(r"demo is in the trash and expires \d+\.", deleted.err)


def test_since_and_json_do_not_go_together_in_show(root: Path) -> None:
    ran = _told_over_hours(root)("show", "demo", "--since", "2h", "--json")
    assert (ran.code, ran.out) == (2, "")
    assert "steno read --since" in ran.error["message"]


def test_since_takes_an_age_or_a_date_and_time() -> None:
    now = time.time()
    assert since("90s") == pytest.approx(now - 90, abs=5)
    assert since("1.5h") == pytest.approx(now - 1.5 * HOUR_S, abs=5)
    assert since("3d") == pytest.approx(now - 72 * HOUR_S, abs=5)
    assert now - 24 * HOUR_S - 5 <= since(time.strftime("%H:%M")) <= now + 5
    assert since("2026-11-21T15:04:00+00:00") == 1795273440


def test_the_time_of_a_message_is_shown_if_known_and_there_is_room(root: Path) -> None:
    now = time.time()
    steno = _told_over_hours(root, now)
    heads = [line for line in steno("show", "demo").out.splitlines() if line.startswith("user")]
    day = time.strftime("%Y-%m-%d ", time.localtime(now - HOUR_S))
    assert [day in head for head in heads[1:]] == [True, False]
    assert day not in steno.on_terminal(40, "show", "demo")


def _ended_by_control_records(root: Path) -> Steno:
    with connect_sync(root) as client:
        session = client.open("demo", follow=False)
        for text in ("one", "two", "three"):
            session.append_message(message(text))
            for _ in range(6):
                session.update_token_count(7)
    return Steno(root)


def _contents(shown: str) -> list[str]:
    return [line.strip() for line in shown.splitlines() if line.startswith("  ")]


def test_the_last_messages_are_counted_without_control_records(root: Path) -> None:
    steno = _ended_by_control_records(root)
    for last, texts in (
        ("0", []), ("1", ["three"]), ("2", ["two", "three"]), ("9", ["one", "two", "three"]),
    ):  # fmt: skip
        assert _contents(steno("show", "demo", "-n", last).out) == texts
        assert _contents(steno("show", "demo", f"-{last}").out) == texts


def test_the_last_messages_of_a_past_state_end_there(root: Path) -> None:
    steno = _ended_by_control_records(root)
    assert _contents(steno("show", "demo", "-n", "1", "--at", "0:14").out) == ["two"]
    assert steno("clear", "demo").code == 0
    assert _contents(steno("show", "demo", "-n", "1", "--generation", "0").out) == ["three"]
    assert steno("show", "demo", "-n", "1", "--json").code == 2


def test_following_begins_with_the_last_messages(root: Path) -> None:
    steno = _ended_by_control_records(root)
    with steno.begin("show", "demo", "-f", "-n", "1") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("user")
        assert process.stdout.readline() == "  three\n"
        assert steno("append", "demo", "four").code == 0
        while process.stdout.readline() != "  four\n":
            assert process.poll() is None
        process.terminate()


def test_tail_is_readable_on_a_terminal_and_json_in_a_pipe(root: Path) -> None:
    steno = Steno(root, NO_COLOR="1")
    assert steno("append", "demo", "hello").code == 0
    assert steno("emit", "demo", "Noted", '{"a":1}').code == 0
    assert json.loads(steno("tail", "demo").out)["content"] == "hello"
    shown = steno.on_terminal(80, "tail", "demo").splitlines()
    assert shown[0].startswith("user")
    assert shown[1] == "  hello"
    assert '"cursor":"0:0"' in steno.on_terminal(80, "tail", "demo", "--json")
    [event] = steno.on_terminal(80, "tail", "demo", "--wire").splitlines()
    assert event.startswith("0:1  ")
    assert json.loads(steno("tail", "demo", "--wire").out.splitlines()[-1])["message"]


@pytest.mark.parametrize("columns", [None, 60, 200])
def test_a_long_result_on_one_line_is_folded(root: Path, columns: int | None) -> None:
    steno = Steno(root, NO_COLOR="1")
    record = {"role": "tool", "tool_call_id": "t", "content": "x" * 5000}
    assert steno("append", "demo", stdin=json.dumps(record)).code == 0

    def shown(*options: str) -> str:
        words = ("show", "demo", *options)
        return steno(*words).out if columns is None else steno.on_terminal(columns, *words)

    assert 500 < shown().count("x") <= 802
    assert "shown with --full" in shown()
    assert shown("--full").count("x") == 5000


def _long_session(root: Path, **environment: str) -> Steno:
    with connect_sync(root) as client:
        messages = [{"role": "user", "content": f"message {n}"} for n in range(30)]
        client.open("demo", follow=False).append_message(messages)
    return Steno(root, NO_COLOR="1", **environment)


def test_a_position_beyond_the_end_is_not_found_and_shows_nothing(root: Path) -> None:
    steno = _long_session(root)
    there = steno("show", "demo", "--at", "0:30")
    assert "message 29" in there.out
    for form in ([], ["--json"]):
        behind = steno("show", "demo", "--at", "0:31", *form)
        assert (behind.code, behind.out) == (4, "")
        assert "no position 0:31: generation 0 ends at 0:30" in behind.err


def test_output_longer_than_the_terminal_is_paged(root: Path) -> None:
    steno = _long_session(root, PAGER="sed s/^/PAGED:/")
    shown = steno.on_terminal(80, "show", "demo", typed="")
    assert shown.startswith("PAGED:user")
    assert "PAGED:  message 29\n" in shown
    whole = steno.on_terminal(80, "show", "demo", "--no-pager", typed="")
    assert "PAGED" not in whole
    assert "message 29" in whole


def test_output_that_fits_or_has_no_terminal_is_not_paged(root: Path) -> None:
    steno = _long_session(root, PAGER="sed s/^/PAGED:/")
    assert "PAGED" not in steno.on_terminal(80, "show", "demo", "--at", "0:5", typed="")
    assert "PAGED" not in steno.on_terminal(80, "show", "demo")
    assert "PAGED" not in steno("show", "demo").out


def test_leaving_the_pager_early_is_no_error(root: Path) -> None:
    steno = _long_session(root, PAGER="head -n 1")
    assert steno.on_terminal(80, "show", "demo", typed="").count("\n") == 1


def test_leaving_the_pager_during_the_output_is_no_error(root: Path) -> None:
    steno = _long_session(root, PAGER="head -n 1")
    with connect_sync(root) as client:
        # More than a pipe holds, so that the rest is written to a closed pipe.
        client.open("demo").append_message({"role": "user", "content": "word " * 100_000})
    assert steno.on_terminal(80, "show", "demo", "--full", typed="").count("\n") == 1


def test_a_missing_pager_is_reported_and_skipped(root: Path) -> None:
    steno = _long_session(root, PAGER="no-such-pager")
    shown = steno.on_terminal(80, "show", "demo", typed="")
    assert "steno: the pager no-such-pager cannot be run" in shown
    assert "message 29" in shown


LAID_OUT = "\x1b[2m# \x1b[0m\x1b[1mTitle\x1b[0m"


def _markdown_session(root: Path, **environment: str) -> Steno:
    call = {"id": "1", "function": {"name": "Shell", "arguments": '{"command": "ls"}'}}
    text = "# Title\n\n```python\nimport os\n```\n\x1b]0;owned\x07 \u202e [red]x[/red]"
    with connect_sync(root) as client:
        client.open("demo", follow=False).append_message(
            {"role": "assistant", "content": text, "tool_calls": [call]}
        )
    return Steno(root, **environment)


class OnDumbTerminal(Steno):
    """The command on a terminal that can only print."""

    def words(self, *arguments: str) -> list[str]:
        return ["env", "TERM=dumb", *super().words(*arguments)]


class WithoutRich(Steno):
    """The command where the extra is not installed."""

    def words(self, *arguments: str) -> list[str]:
        code = "import sys; sys.modules['rich'] = None\nfrom steno_cli.entry import main\n"
        code += "sys.exit(main())"
        return [sys.executable, "-c", code, *arguments]


@pytest.fixture(autouse=True)
def _colours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "LESS"):
        monkeypatch.delenv(name, raising=False)


def test_markdown_and_code_are_laid_out_on_a_terminal(root: Path) -> None:
    steno = _markdown_session(root)
    for columns in (80, 160):
        shown = steno.on_terminal(columns, "show", "demo")
        assert LAID_OUT in shown
        assert "\x1b[94mimport\x1b[0m" in shown
        assert '{\x1b[94m"command"\x1b[0m: \x1b[33m"ls"\x1b[0m}' in shown
        assert "\\u202e [red]x[/red]" in shown
        assert "owned" not in shown
        assert "\x1b]" not in shown
        assert "\u202e" not in shown


def test_pipe_and_terminal_without_colours_get_texts_as_they_are(root: Path) -> None:
    steno = _markdown_session(root)
    plain = steno("show", "demo").out
    assert "  # Title\n\n  ```python\n" in plain
    assert '  → Shell(command="ls")\n' in plain
    assert "\x1b" not in plain
    bare = Steno(root, NO_COLOR="1").on_terminal(80, "show", "demo")
    assert "  ```python\n" in bare
    assert "\x1b[" not in bare
    asked = steno.on_terminal(80, "show", "demo", "--format", "plain")
    assert "  ```python\n" in asked


def test_a_dumb_terminal_gets_texts_as_they_are(root: Path) -> None:
    _markdown_session(root)
    shown = OnDumbTerminal(root).on_terminal(80, "show", "demo")
    assert "  ```python\n" in shown
    assert "\x1b[" not in shown


def test_the_format_of_a_terminal_is_given_to_a_pipe_on_request(root: Path) -> None:
    steno = _markdown_session(root, COLUMNS="60", TERM="xterm")
    assert LAID_OUT in steno("show", "demo", "--format", "terminal").out
    colourless = Steno(root, NO_COLOR="1")("show", "demo", "--format", "terminal")
    assert "  # Title\n\n    import os\n" in colourless.out
    assert "\x1b" not in colourless.out


def test_without_the_extra_a_terminal_gets_plain_text_or_is_told_what_to_install(
    root: Path,
) -> None:
    _markdown_session(root)
    steno = WithoutRich(root)
    assert "  ```python\n" in steno.on_terminal(80, "show", "demo")
    ran = steno("show", "demo", "--format", "terminal")
    assert (ran.code, ran.out) == (1, "")
    remedy = extra_command("terminal")
    assert f"--format terminal needs rich: install it with `{remedy}`" in ran.err


def test_a_format_and_json_do_not_go_together(root: Path) -> None:
    ran = Steno(root)("show", "demo", "--format", "plain", "--json")
    assert (ran.code, ran.out) == (2, "")
    assert "--json is a format of its own" in ran.error["message"]


def test_colours_reach_the_pager_with_its_options(root: Path) -> None:
    _long_session(root)
    steno = Steno(root, PAGER="""sh -c 'printf "options %s " "$LESS"; cat'""")
    shown = steno.on_terminal(80, "show", "demo", typed="")
    assert shown.startswith("options FRX \x1b[1;32muser")


def test_the_pager_shows_the_first_lines_before_the_last_ones_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setenv("PAGER", f"sh -c 'cat > {pipe}'")
    monkeypatch.setenv("LINES", "10")
    with ExitStack() as reading:
        with paged(Output(io.StringIO(), io.StringIO())) as write:
            for number in range(10):
                write(f"line {number}")
            shown = reading.enter_context(pipe.open())
            assert shown.readline() == "line 0\n"
            write("line 10")
        assert shown.read() == "".join(f"line {number}\n" for number in range(1, 11))


def test_an_error_is_raised_after_the_lines_before_it_were_shown() -> None:
    data = io.StringIO()

    def fail() -> None:
        with paged(Output(data, io.StringIO())) as write:
            write("before")
            raise NotFound("gone")

    with pytest.raises(NotFound):
        fail()
    assert data.getvalue() == "before\n"


def test_ctrl_c_ends_the_reading_and_leaves_the_pager_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = tmp_path / "shown"
    monkeypatch.setenv("PAGER", f"sh -c 'cat > {shown}'")
    monkeypatch.setenv("LINES", "10")
    with paged(Output(io.StringIO(), io.StringIO())) as write:
        for number in range(20):
            write(f"line {number}")
        raise KeyboardInterrupt
    assert shown.read_text().endswith("line 19\n")
    with (
        pytest.raises(KeyboardInterrupt),
        paged(Output(io.StringIO(), io.StringIO())),
    ):
        raise KeyboardInterrupt
