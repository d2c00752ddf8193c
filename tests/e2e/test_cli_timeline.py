"""`steno timeline`: the drawing of the tree, and the command."""

import json
import re
from pathlib import Path

import pytest

from steno_present.tree import draw
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry
from support.command import Steno

pytestmark = pytest.mark.served


def rewrite(kind: str, generation: int, kept: int = 0, **details: object) -> TimelineEntry:
    return TimelineEntry(kind=kind, generation=generation, kept=kept, by="planner", details=details)


def plain(text: str, *_styles: str) -> str:
    return text


def drawn(entries: list[TimelineEntry], head: str, width: int | None = None) -> list[str]:
    return draw(entries, Position.parse(head), width, plain)


CREATED = TimelineEntry(kind="created", generation=0, by="planner")


def test_a_session_without_rewrites_is_one_generation() -> None:
    assert drawn([CREATED], "0:3") == [
        "● generation 0 · 3 lines · now",
        "    created by planner",
    ]


def test_a_revert_is_a_step_of_the_trunk_with_its_line_counts() -> None:
    entries = [CREATED, rewrite("reverted", 1, 2, checkpoint_id=0, old_lines=5)]
    assert drawn(entries, "1:4") == [
        "○ generation 0 · 5 lines · context_1.jsonl",
        "│   created by planner",
        "│",
        "● generation 1 · 4 lines · now",
        "    reverted to checkpoint 0 by planner",
        "    2 lines kept, 3 left behind",
    ]


def test_the_tree_shows_forks_mails_and_compactions() -> None:
    sent = {"checkpoint_id": 0, "message": "go\nback"}
    entries = [
        TimelineEntry(kind="forked", generation=0, details={"from": "other", "at": "0:3"}),
        TimelineEntry(kind="fork", generation=0, by="a", details={"to": "new", "at": "0:2"}),
        TimelineEntry(kind="sent", generation=0, by="a", details=sent),
        rewrite("delivered", 1, 2, checkpoint_id=0, old_lines=5),
        rewrite("compacted", 2, summarised=4),
        rewrite("reverted", 3, 1, checkpoint_id=0, old_lines=3, expired_mail="m1"),
        rewrite("mended", 4),
    ]
    lines = [line.strip("│ ") for line in drawn(entries, "4:1") if "generation" not in line]
    assert [line for line in lines if line] == [
        "forked from other at 0:3",
        "forked at 0:2 into new by a",
        "D-Mail to checkpoint 0 sent, “go back”, by a",
        "D-Mail delivered at checkpoint 0 by planner",
        "2 lines kept, 3 left behind",
        "compacted by planner",
        "4 lines in one summary, the rest kept",
        "reverted to checkpoint 0 by planner",
        "1 line kept, 2 left behind; the pending D-Mail expired",
        "damaged lines taken out by planner",
    ]


def test_generations_abandoned_by_a_restore_are_a_branch() -> None:
    entries = [
        CREATED,
        rewrite("reverted", 1, 2, checkpoint_id=0),
        rewrite("cleared", 2),
        rewrite("restored", 3, **{"from": 0}),
        rewrite("prompted", 4),
    ]
    assert drawn(entries, "4:6") == [
        "○ generation 0 · context_1.jsonl",
        "│   created by planner",
        "│",
        "├─○ generation 1 · context_2.jsonl",
        "│ │   reverted to checkpoint 0 by planner",
        "│ │   2 lines kept, the rest left behind",
        "│ │",
        "│ ○ generation 2 · context_3.jsonl",
        "│     cleared by planner",
        "│     everything left behind",
        "│",
        "○ generation 3 · context_4.jsonl",
        "│   generation 0 restored by planner",
        "│",
        "● generation 4 · 6 lines · now",
        "    system prompt set by planner",
    ]


def test_a_rotation_that_another_program_made_is_marked_as_inferred() -> None:
    entries = [
        TimelineEntry(kind="rotated", generation=1, inferred=True),
        TimelineEntry(kind="rotated", generation=2, inferred=True),
        TimelineEntry(kind="adopted", generation=2, by="planner"),
    ]
    lines = drawn(entries, "2:8")
    assert [line for line in lines if "generation" in line] == [
        "○ generation 0 · context_1.jsonl",
        "◌ generation 1 · context_2.jsonl",
        "● generation 2 · 8 lines · now",
    ]
    assert sum("inferred from the files" in line for line in lines) == 2


def test_a_long_history_of_reverts_stays_in_one_column() -> None:
    entries = [CREATED, *(rewrite("reverted", n, 1, checkpoint_id=0) for n in range(1, 200))]
    assert max(map(len, drawn(entries, "199:1"))) < 60


@pytest.mark.parametrize("width", [24, 40, 80])
def test_a_reason_is_wrapped_beside_the_tree(width: int) -> None:
    entries = [
        CREATED,
        TimelineEntry(kind="cleared", generation=1, why="it went wrong " * 10),
        rewrite("restored", 2, **{"from": 0}),
    ]
    lines = drawn(entries, "2:1", width)
    assert max(map(len, lines)) <= max(width, 40)
    assert sum("went" in line for line in lines) > 1


def test_the_tree_shows_unknown_entries() -> None:
    entries = [
        TimelineEntry(kind="translated", generation=5, details={"old": "?", "from": "?"}),
        rewrite("restored", 6, **{"from": 99}),
        rewrite("reverted", 7, checkpoint_id="\x1b[2J"),
    ]
    lines = drawn(entries, "7:0")
    assert any("translated" in line for line in lines)
    assert "\x1b" not in "".join(lines)


def test_timeline_prints_a_tree_and_json(steno: Steno) -> None:
    steno("append", "demo", "one", "--name", "planner")
    steno("checkpoint", "demo")
    steno("append", "demo", "two")
    steno("revert", "demo", "0", "--why", "wrong turn", "--name", "critic")
    steno("restore", "demo", "0")
    printed = steno("timeline", "demo", "--json").document
    assert set(printed) == {"session", "head", "entries"}
    assert printed["head"] == "2:3"
    assert [(entry["kind"], entry["generation"]) for entry in printed["entries"]] == [
        ("created", 0), ("reverted", 1), ("restored", 2),
    ]  # fmt: skip
    assert set(printed["entries"][1]) == {
        "kind", "generation", "kept", "at", "by", "claim", "why", "key", "details", "inferred",
    }  # fmt: skip
    assert (printed["entries"][1]["by"], printed["entries"][1]["why"]) == ("critic", "wrong turn")
    shown = steno("timeline", "demo").out
    assert re.search(r"├─○ generation 1 .*\n│ +\d.* reverted to checkpoint 0 by critic", shown)
    assert "● generation 2 · 3 lines · now" in shown
    assert "\x1b[1;32m● generation 2" in steno.on_terminal(80, "timeline", "demo")


def test_a_session_that_kimi_cli_reverted_has_a_timeline(root: Path) -> None:
    folder = root / "sessions" / "theirs"
    folder.mkdir(parents=True)
    line = json.dumps({"role": "user", "content": "hi"}) + "\n"
    (folder / "context_1.jsonl").write_text(line * 3)
    (folder / "context.jsonl").write_text(line)
    shown = Steno(root)("timeline", "theirs").out
    assert "● generation 1 · 1 line · now" in shown
    assert "begun by another program (inferred from the files)" in shown
