"""`steno grep`: text found in the messages of many sessions."""

import json
import time
from pathlib import Path

import pytest

from steno import BlockingClient, BlockingSession
from steno_cli import entry
from support.command import Steno

pytestmark = pytest.mark.served

DAY_S = 86_400

MESSAGES = {
    "team/a": [
        {"role": "user", "content": "Where is the Daemon?\nIt listens at a socket."},
        {"role": "assistant", "content": [
            {"type": "think", "think": "perhaps in stenod"},
            {"type": "text", "text": "I look."},
        ], "tool_calls": [{"type": "function", "id": "c1", "function": {
            "name": "Shell", "arguments": '{"command": "ls \\"the folder\\""}'}}]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a.b\naxb"}]},
    ],
    "team/b": [{"role": "user", "content": "the daemon again"}],
    "other": [{"role": "user", "content": "no daemon"}],
}  # fmt: skip


@pytest.fixture(scope="module")
def steno(shared_root: Path) -> Steno:
    steno = Steno(shared_root)
    for session, messages in MESSAGES.items():
        lines = "".join(json.dumps(each) + "\n" for each in messages)
        assert steno("append", session, "--batch", stdin=lines).code == 0
    return steno


def test_grep_prints_each_match_with_session_cursor_and_time(steno: Steno) -> None:
    ran = steno("grep", "socket|again")
    assert ran.code == 0
    rows = [line.split("  ") for line in ran.out.splitlines()]
    assert [(session, cursor, text) for session, cursor, _, text in rows] == [
        ("team/a", "0:0", "It listens at a socket."),
        ("team/b", "0:0", "the daemon again"),
    ]
    for row in rows:
        at = time.mktime(time.strptime(row[2][:10], "%Y-%m-%d"))
        assert at == pytest.approx(time.time(), abs=2 * DAY_S)


def test_a_session_without_the_word_is_not_asked_for(
    steno: Steno, shared_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    session = BlockingClient.session

    def noted(client: BlockingClient, name: str) -> BlockingSession:
        asked.append(name)
        return session(client, name)

    monkeypatch.setattr(BlockingClient, "session", noted)
    assert entry.main(["--root", str(shared_root), "grep", "-i", "AGAIN"]) == 0
    assert asked == ["team/b"]
    assert entry.main(["--root", str(shared_root), "grep", "socket|again"]) == 0
    # Nothing can be told of this pattern.
    assert sorted(asked[1:]) == sorted(MESSAGES)


def test_a_hit_as_json_has_its_session_cursor_and_time(steno: Steno) -> None:
    (hit,) = steno("grep", "socket", "--json").documents
    assert hit.pop("at") == pytest.approx(time.time(), abs=300)
    assert hit == {
        "session": "team/a", "cursor": "0:0", "role": "user", "line": "It listens at a socket.",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["daemon"], ["other", "team/b"]),
        (["-i", "DAEMON"], ["other", "team/a", "team/b"]),
        (["daemon", "team/"], ["team/b"]),
        (["--role", "tool", "a.b"], ["team/a", "team/a"]),
        (["-F", "a.b"], ["team/a"]),
        (["in stenod"], ["team/a"]),
        (['ls "the folder"'], ["team/a"]),
        (["^It .*socket[.]$"], ["team/a"]),
        (["Shell"], ["team/a"]),
    ],
)
def test_grep_searches_texts_thoughts_calls_and_results(
    steno: Steno, arguments: list[str], found: list[str]
) -> None:
    assert [hit["session"] for hit in steno("grep", "--json", *arguments).documents] == found


def test_grep_lists_each_matching_id_once(steno: Steno) -> None:
    assert steno("grep", "-l", "-i", "daemon").out == "other\nteam/a\nteam/b\n"
    assert steno("grep", "-l", "a.b", "--json").documents == [{"session": "team/a"}]


def test_a_search_without_a_hit_exits_with_4_and_prints_nothing(steno: Steno) -> None:
    ran = steno("grep", "nowhere")
    assert (ran.code, ran.out, ran.err) == (4, "", "")


def test_grep_without_sessions_says_so(steno: Steno) -> None:
    ran = steno("grep", "a.b", "teams/")
    assert (ran.code, ran.out, ran.err) == (4, "", "steno: no session begins with 'teams/'\n")


def test_an_invalid_regular_expression_is_wrong_usage(steno: Steno) -> None:
    ran = steno("grep", "(")
    assert (ran.code, ran.out) == (2, "")
    assert "-F searches for plain text" in ran.err
    assert steno("grep", "-F", "((").code == 4


@pytest.mark.parametrize("columns", [40, 60, 120])
def test_on_a_terminal_the_match_is_shown_however_long_its_line_is(
    root: Path, columns: int
) -> None:
    steno = Steno(root, NO_COLOR="1")
    steno("append", "demo", f"{'before ' * 60}needle{' after' * 60}")
    (line,) = steno.on_terminal(columns, "grep", "needle").splitlines()
    assert "needle" in line
    assert len(line) <= max(columns, 55)


def test_grep_counts_lines_that_are_not_records(root: Path) -> None:
    folder = root / "sessions" / "demo"
    folder.mkdir(parents=True)
    (folder / "context.jsonl").write_text(
        '{"role":"user","content":"here"}\nhere\n{"role":"user","content":"there"}\n'
    )
    ran = Steno(root)("grep", "^here", "--json")
    assert ran.documents == [
        {"session": "demo", "cursor": "0:0", "at": None, "role": "user", "line": "here"}
    ]
    assert json.loads(ran.err) == {"note": "1 line was no record and was skipped"}


@pytest.mark.served(False)
def test_an_unreadable_session_does_not_end_the_search(root: Path) -> None:
    steno = Steno(root)
    for name in ("a", "b", "c"):
        steno("append", name, "needle")
    steno("stop")
    context = root / "sessions" / "b" / "context.jsonl"
    context.unlink()
    context.mkdir()
    ran = steno("grep", "needle", "--json")
    assert [hit["session"] for hit in ran.documents] == ["a", "c"]
    assert (ran.code, ran.error["session"]) == (1, "b")
    nothing = steno("grep", "straw")
    assert (nothing.code, nothing.out) == (1, "")
    assert "[session b]" in nothing.err
    assert steno("grep", "needle", "c").code == 0
