"""The commands that print sessions and records."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from steno import connect_sync
from steno_protocol import paths
from support.command import Ran, Steno, lines_of
from support.lines import foreign
from support.session_files import records_in

pytestmark = pytest.mark.served


def contents_of(ran: Ran) -> list[str]:
    assert ran.code == 0, ran
    return [json.loads(line)["content"] for line in ran.out.splitlines()]


def test_sessions_are_listed_by_prefix_with_their_sizes(steno: Steno) -> None:
    for session in ("team/a", "team/b", "other"):
        steno("append", session, "hi")
    listed = steno("sessions", "--json", "--sort", "id", "team/").document
    assert [entry["session"] for entry in listed["sessions"]] == ["team/a", "team/b"]
    assert set(listed["sessions"][0]) == {
        "session", "bytes", "modified_at", "generations", "title", "labels", "archived",
        "forked_from", "work_dir", "last_in_work_dir", "live", "records",
    }  # fmt: skip
    ran = steno("sessions")
    assert [line.split()[0] for line in ran.out.splitlines()] == ["other", "team/b", "team/a"]
    empty = steno("sessions", "none")
    assert (empty.code, empty.out) == (0, "")
    assert "no session that begins with 'none'" in empty.err


def test_a_unique_prefix_names_the_session(steno: Steno) -> None:
    for session in ("demo", "team/a", "team/b"):
        steno("append", session, f"in {session}")
    ran = steno("read", "de")
    assert contents_of(ran) == ["in demo"]
    assert ran.err == "steno: there is no session de; only demo begins with it\n"
    several = steno("read", "te", "--json")
    assert (several.code, several.out) == (4, "")
    assert "team/a, team/b" in several.error["message"]
    assert steno("read", "none").code == 4
    # A position missing in an existing session is not searched for in another one.
    for _ in range(2):
        missing = steno("revert", "demo", "7")
        assert missing.code == 4
        assert missing.err.startswith("steno: checkpoint 7 does not exist")
        steno("append", "demo-2", "x")
    # A command that creates a session takes no prefix.
    steno("append", "tea", "x")
    assert contents_of(steno("read", "tea")) == ["x"]


def test_prefix_of_a_session_and_its_subagents_names_the_session(steno: Steno) -> None:
    for session in ("ab/12", "ab/12-b/34", "ab/12/subagents/x", "ab/12/subagents/y", "cd/5/sub/z"):
        steno("append", session, f"in {session}")
    assert contents_of(steno("read", "ab/12/subagents/x")) == ["in ab/12/subagents/x"]
    assert contents_of(steno("read", "cd")) == ["in cd/5/sub/z"]
    several = steno("read", "ab/1", "--json")
    assert several.code == 4
    assert "ab/12, ab/12-b/34" in several.error["message"]
    steno("delete", "ab/12-b/34", "--yes")
    assert contents_of(steno("read", "ab/1")) == ["in ab/12"]


def test_read_prints_the_lines_of_the_file_byte_for_byte(root: Path, steno: Steno) -> None:
    steno("append", "demo", stdin=lines_of("a", "b", "ü", "d"))
    path = root / "sessions" / "demo" / "context.jsonl"
    assert steno("read", "demo").out.encode() == path.read_bytes()
    assert contents_of(steno("read", "demo", "--after", "0:1", "--until", "0:3")) == ["b", "ü"]
    assert contents_of(steno("read", "demo", "--until", "0:1")) == ["a"]
    documents = steno("read", "demo", "--after", "0:3", "--json").documents
    assert documents == [{"cursor": "0:3", "record": records_in(root, "demo")[3]}]


def test_a_past_generation_is_read_unchanged(steno: Steno) -> None:
    steno("append", "demo", stdin=lines_of("a", "b"))
    steno("clear", "demo")
    steno("append", "demo", "c")
    assert contents_of(steno("read", "demo", "--generation", "0")) == ["a", "b"]
    assert contents_of(steno("read", "demo", "--until", "0:1")) == ["a"]
    assert contents_of(steno("read", "demo")) == ["c"]
    ran = steno("read", "demo", "--generation", "7")
    assert (ran.code, ran.out) == (4, "")


def test_damaged_lines_are_counted_or_stop_a_strict_reader(root: Path, steno: Steno) -> None:
    folder = root / "sessions" / "demo"
    folder.mkdir(parents=True)
    (folder / "context.jsonl").write_text(lines_of("a") + "not json\n[1]\n" + lines_of("b"))
    ran = steno("read", "demo")
    assert (ran.code, contents_of(ran)) == (0, ["a", "b"])
    assert ran.err.startswith("steno: 2 lines were no records")
    strict = steno("read", "demo", "--strict", "--json")
    assert strict.code == 1
    assert len(strict.documents) == 1
    assert strict.error["code"] == "corrupt"
    assert "0:1" in strict.error["message"]


def test_tail_prints_the_last_records(steno: Steno) -> None:
    steno("append", "demo", "--batch", stdin=lines_of(*map(str, range(12))))
    assert contents_of(steno("tail", "demo")) == [str(n) for n in range(2, 12)]
    assert contents_of(steno("tail", "demo", "-n", "1")) == ["11"]
    assert contents_of(steno("tail", "demo", "--after", "0:10")) == ["10", "11"]
    assert steno("tail", "demo", "-n", "0").out == ""


@pytest.mark.parametrize(
    "words",
    [
        "read --after", "read --until", "tail --after", "tail -f --after",
        "wire --after", "wire --until", "replay --after", "tail --wire --after",
    ],
)  # fmt: skip
def test_a_position_beyond_the_end_is_not_found_and_prints_nothing(
    steno: Steno, words: str
) -> None:
    steno("append", "demo", "--batch", stdin=lines_of("a", "b"))
    steno("emit", "demo", "TurnBegin")
    command, *options = words.split()
    # Two lines in either file: the header of the wire file is one.
    end = steno(command, "demo", *(each for each in options if each != "-f"), "0:2")
    assert end.code == 0
    behind = steno(command, "demo", *options, "0:3")
    assert (behind.code, behind.out) == (4, "")
    assert "no position 0:3: generation 0 ends at 0:2" in behind.err


@pytest.mark.parametrize("command", ["read", "wire", "replay"])
def test_a_span_that_ends_before_it_begins_is_wrong_usage(steno: Steno, command: str) -> None:
    steno("append", "demo", "--batch", stdin=lines_of("a", "b"))
    steno("emit", "demo", "TurnBegin")
    assert steno(command, "demo", "--after", "0:1", "--until", "0:1").code == 0
    ran = steno(command, "demo", "--after", "0:2", "--until", "0:1")
    assert (ran.code, ran.out) == (2, "")
    assert "0:1 is before 0:2" in ran.err


@pytest.mark.served(False)
def test_tail_follows_across_a_rewrite_and_a_restart_of_the_daemon(steno: Steno) -> None:
    steno("append", "demo", "one")
    with steno.begin("tail", "-f", "demo", "--json") as follower:
        assert follower.stdout is not None
        try:
            assert json.loads(follower.stdout.readline())["record"]["content"] == "one"
            steno("checkpoint", "demo")
            assert json.loads(follower.stdout.readline())["cursor"] == "0:1"
            assert steno("restart").code == 0
            steno("append", "demo", "two")
            assert json.loads(follower.stdout.readline())["cursor"] == "0:2"
            steno("revert", "demo", "0")
            assert json.loads(follower.stdout.readline()) == {
                "reset": {"generation": 1, "kept": 1, "why": "reverted"}
            }
            steno("append", "demo", "three")
            line = json.loads(follower.stdout.readline())
            assert (line["cursor"], line["record"]["content"]) == ("1:1", "three")
        finally:
            follower.kill()


def test_a_closed_pipe_is_no_failure(steno: Steno) -> None:
    steno("append", "demo", "--batch", stdin=lines_of(*("x" * 1000 for _ in range(1000))))
    with steno.begin("read", "demo", stderr=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        reader.stdout.readline()
        reader.stdout.close()
        assert reader.stderr.read() == ""
    assert reader.returncode == 0


@pytest.mark.served(False)
@pytest.mark.parametrize("words", [["tail", "demo"], ["show", "demo"], ["logs"]])
def test_a_follower_of_an_idle_session_ends_when_its_reader_has_gone(
    steno: Steno, words: list[str]
) -> None:
    steno("append", "demo", "hi")
    with steno.begin(*words, "-f", stderr=subprocess.PIPE) as follower:
        assert follower.stdout is not None
        assert follower.stderr is not None
        follower.stdout.readline()
        follower.stdout.close()
        assert follower.wait(timeout=60) == 0
        assert follower.stderr.read() == ""


def test_a_wait_for_a_session_ends_when_its_reader_has_gone(root: Path) -> None:
    with Steno(root).begin("tail", "-f", "demo", "--wait", stderr=subprocess.PIPE) as follower:
        assert follower.stdout is not None
        assert follower.stderr is not None
        assert "waiting for it" in follower.stderr.readline()
        follower.stdout.close()
        assert follower.wait(timeout=60) == 0


CONVERSATION = [
    {"role": "user", "content": [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4000}},
    ]},
    {"role": "assistant", "content": [
        {"type": "think", "think": "It could be a file. " * 20, "encrypted": None},
        {"type": "text", "text": "Let me look."},
        {"type": "hologram", "depth": 3},
    ], "tool_calls": [{"type": "function", "id": "c1",
                       "function": {"name": "Shell", "arguments": '{"command": "ls"}'}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "\n".join(f"file {n}" for n in range(30))},
    {"role": "assistant", "content": None},
    {"role": "user", "content": "\x1b[2Jclear"},
]  # fmt: skip


def _conversation(root: Path) -> Steno:
    with connect_sync(root) as client:
        session = client.open("demo", follow=False)
        session.write_system_prompt("be kind")
        session.checkpoint()
        for message in CONVERSATION:
            session.append_message(message)
        session.update_token_count(1472)
    return Steno(root)


def test_show_prints_the_whole_conversation(root: Path) -> None:
    steno = _conversation(root)
    shown = steno("show", "demo").out
    for expected in (
        "be kind",
        "── checkpoint 0 ──",
        "What is this?",
        "[image/png, 3.0 kB]",
        "▸ thought, 400 characters: It could be a file.",
        "Let me look.",
        "[hologram, ",
        '→ Shell(command="ls")',
        "tool · Shell",
        "… 19 more lines, shown with --full",
        "── 1 472 tokens ──",
        "clear",
    ):
        assert expected in shown
    assert "\x1b" not in shown
    assert "file 29" not in shown
    full = steno("show", "demo", "--full").out
    assert "file 29" in full
    assert full.count("It could be a file.") == 20


def test_show_is_coloured_on_a_terminal_only_and_fits_into_it(root: Path) -> None:
    steno = _conversation(root)
    steno("append", "demo", "long " * 60)
    for columns in (40, 120):
        shown = steno.on_terminal(columns, "show", "demo")
        assert "\x1b[1;32muser" in shown
        plain = Steno(root, NO_COLOR="1").on_terminal(columns, "show", "demo")
        assert "\x1b" not in plain
        assert max(map(len, plain.splitlines())) <= columns


def test_a_record_cannot_control_the_terminal(root: Path, steno: Steno) -> None:
    hostile = "\u009b2J and \u202e and \x1b[2J and \u200b\U000e0041\x7f"
    steno("append", "demo", hostile)
    with (root / paths.LOG).open("a") as log:
        log.write(f"{hostile}\n")
    piped = steno("read", "demo").out
    assert "\u009b2J" in piped
    assert hostile in steno("logs").out
    for arguments in (
        ("read", "demo"), ("tail", "demo", "--json"), ("show", "demo"), ("show", "demo", "--json"),
        ("export", "demo"), ("export", "demo", "--format", "json"), ("logs",), ("logs", "--json"),
        ("export", "demo", "--format", "html"), ("read", hostile), ("--json", "read", hostile),
        ("grep", "and"), ("tail", "demo"), (hostile,),
    ):  # fmt: skip
        shown = steno.on_terminal(80, *arguments)
        assert "and" in shown
        assert not re.search("[\u007f-\u009f\u200b\u202e\U000e0041]|\x1b\\[2J", shown), arguments
    assert json.loads(steno.on_terminal(80, "read", "demo")) == json.loads(piped)


def test_show_as_json_is_the_state_that_a_model_receives(root: Path) -> None:
    state = _conversation(root)("show", "demo", "--json").document
    assert set(state) == {
        "session", "head", "generation", "system_prompt", "token_count",
        "token_count_with_pending", "n_checkpoints", "checkpoints", "messages", "damaged", "origin",
    }  # fmt: skip
    assert state["messages"] == CONVERSATION
    assert state["checkpoints"] == [{"id": 0, "cursor": "0:1"}]
    assert (state["system_prompt"], state["token_count"], state["head"]) == (
        "be kind", 1472, "0:8",
    )  # fmt: skip


def test_show_prints_past_states(steno: Steno) -> None:
    steno("append", "demo", stdin=lines_of("first", "second"))
    steno("clear", "demo")
    assert "second" in steno("show", "demo", "--generation", "0").out
    at = steno("show", "demo", "--at", "0:1").out
    assert "first" in at
    assert "second" not in at
    assert len(steno("show", "demo", "--at", "0:1", "--json").document["messages"]) == 1
    assert steno("show", "demo").out == ""


def test_show_follows_records_and_names_the_lines_that_a_rewrite_keeps(steno: Steno) -> None:
    steno("append", "demo", "one")
    steno("checkpoint", "demo")
    steno("append", "demo", "two")
    steno("checkpoint", "demo")
    with steno.begin("show", "demo", "-f") as follower:
        assert follower.stdout is not None
        try:
            lines = iter(follower.stdout.readline, "")
            assert next(line for line in lines if "checkpoint 1" in line)
            steno("append", "demo", "three")
            assert next(line for line in lines if "  three" in line)
            steno("revert", "demo", "1")
            shown = next(line for line in lines if "stay" in line)
            assert shown.startswith("── reverted: the first 3 lines stay ")
            steno("revert", "demo", "0")
            assert "the first line stays" in next(line for line in lines if "stay" in line)
            steno("clear", "demo")
            assert "cleared: no line stays" in next(line for line in lines if "stay" in line)
        finally:
            follower.kill()


def test_an_interrupted_follower_exits_with_130(steno: Steno) -> None:
    steno("append", "demo", "one")
    with steno.begin("tail", "-f", "demo", stderr=subprocess.PIPE) as follower:
        assert follower.stdout is not None
        assert follower.stderr is not None
        follower.stdout.readline()
        follower.send_signal(signal.SIGINT)
        assert follower.stderr.read() == ""
    assert follower.returncode == 130


@pytest.mark.served(False)
@pytest.mark.parametrize("session", ["demo", "tree:demo"])
@pytest.mark.slow
def test_tail_starts_a_killed_daemon_again_and_says_so(
    root: Path, steno: Steno, session: str
) -> None:
    (root / "config.toml").write_text(f'[mounts]\ntree = "{root}/tree"\n')
    steno("append", session, "one", "--create")
    with steno.begin("tail", "-f", session, stderr=subprocess.PIPE) as follower:
        assert follower.stdout is not None
        assert follower.stderr is not None
        try:
            assert "one" in follower.stdout.readline()
            os.kill(steno("status", "--json").document["pid"], signal.SIGKILL)
            printed = follower.stderr.readline()
            pid = steno("status", "--json").document["pid"]
            assert f"was killed and runs again, as pid {pid};" in printed
            folder = root / ("tree/demo" if ":" in session else "sessions/demo")
            with (folder / "context.jsonl").open("ab") as file:
                file.write(foreign("theirs"))
            if ":" not in session:
                # No daemon is running now: the next command notices.
                steno("append", session, "two")
            assert "theirs" in follower.stdout.readline()
        finally:
            follower.kill()
    assert steno("stop").code == 0
