"""The expected file after each kind of rewrite, computed from the file before it."""

from collections.abc import Sequence

from sim.files import Folder, Lines, checkpoints_in, record_of, role_of
from steno_protocol.commands import CompactCommit, DeliverDmail, Mutation
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry

Expected = Sequence[bytes | None]
"""The lines of a file; None stands for a line that the rewrite itself made and that was judged."""


def expected_lines(folder: Folder, entry: TimelineEntry, command: Mutation) -> Expected:
    """The lines that a rewrite had to make of the file before it.

    Raises:
        AssertionError: a line that it made is not what it should be.
    """
    before, after = folder.before(entry), folder.after(entry)
    match entry.kind:
        case "reverted":
            return _cut(folder, entry, before)
        case "cleared":
            return []
        case "prompted":
            assert role_of(after[0]) == "_system_prompt"
            return [None, *[line for line in before if role_of(line) != "_system_prompt"]]
        case "restored":
            lines = folder.generations[entry.details["from"]]
            return [line for line in lines if line.endswith(b"\n")]
        case "compacted":
            assert isinstance(command, CompactCommit)
            return _compacted(before, after, entry, command)
        case "delivered":
            assert isinstance(command, DeliverDmail)
            return _delivered(folder, entry, command, before, after)
        case _:
            raise AssertionError(f"a rewrite of an unknown kind: {entry.kind}")


def _cut(folder: Folder, entry: TimelineEntry, before: Lines) -> Lines:
    """The lines before the checkpoint of a revert or delivery."""
    wanted = entry.details["checkpoint_id"]
    place = folder.find_checkpoint(wanted, entry.generation - 1, before)
    assert place is not None, f"{entry.kind} to a missing checkpoint: {wanted}"
    assert entry.details["from"] == place.generation
    is_present = place.generation == entry.generation - 1
    assert entry.kept in ({place.line} if is_present else {0})
    return (before if is_present else folder.generations[place.generation])[: place.line]


def _compacted(
    before: Lines, after: Lines, entry: TimelineEntry, command: CompactCommit
) -> list[bytes | None]:
    cut, at = Position.parse(command.cut), Position.parse(command.at)
    assert cut.generation == at.generation == entry.generation - 1, "an overtaken compaction"
    first = entry.details["summarised"]
    assert first <= cut.line
    assert _orphans(before[first:]) <= _orphans(before), "a result lost its call"
    prompts = [line for line in before[: at.line] if role_of(line) == "_system_prompt"][-1:]
    controls = ("_system_prompt", "_checkpoint", "_usage")
    preserved = [line for line in before[first : at.line] if role_of(line) not in controls]
    own, summary = (record_of(line) for line in after[len(prompts) : len(prompts) + 2])
    assert own["role"] == "_checkpoint"
    assert own["id"] == entry.details["checkpoint_id"]
    assert all(number < own["id"] for number, _ in checkpoints_in(before[: at.line]))
    assert summary["content"].startswith("summary ")
    assert (summary["_id"], summary.get("_by")) == (f"{entry.key}.1/2", command.by)
    usage = record_of(after[-1])
    assert (usage["role"], usage["_id"]) == ("_usage", entry.key)
    kept = [*preserved, *before[at.line :]]
    assert usage["token_count"] == len(summary["content"]) // 4 + _chars(kept) // 4
    return [*prompts, None, None, *kept, None]


def _delivered(
    folder: Folder, entry: TimelineEntry, command: DeliverDmail, before: Lines, after: Lines
) -> list[bytes | None]:
    kept = _cut(folder, entry, before)
    made = [record_of(line) for line in after[len(kept) :]]
    own, *messages = made
    number = entry.details.get("new_checkpoint_id", entry.details["checkpoint_id"])
    assert (own["role"], own["id"]) == ("_checkpoint", number)
    assert [record["_id"] for record in made] == [
        f"{entry.key}.{number}/{len(made)}" for number in range(len(made))
    ]
    assert len(messages) == 1 + command.add_user_message
    assert "turn back" in messages[-1]["content"][0]["text"]
    assert entry.details["mail"] == command.mail_id
    return [*kept, *[None] * len(made)]


def _chars(lines: Lines) -> int:
    contents = (record_of(line, has_foreign=True).get("content") for line in lines)
    texts = [
        content if isinstance(content, str) else content[0]["text"]
        for content in contents
        if content
    ]
    return sum(map(len, texts))


def _orphans(lines: Lines) -> set[bytes]:
    """The tool results that follow no call of their id."""
    called, found = set[str](), set[bytes]()
    for line in lines:
        record = record_of(line, has_foreign=True)
        if record.get("role") == "tool" and record["tool_call_id"] not in called:
            found.add(line)
        called.update(call["id"] for call in record.get("tool_calls") or ())
    return found
