"""Writers beside programs that cut, replace or remove the file."""

import errno

import pytest

from steno_protocol import limits, paths
from steno_protocol.errors import Busy, StenoError
from steno_protocol.events import Reset
from steno_protocol.timeline_entries import TimelineEntry
from support.foreign_program import before_call
from support.lines import append, clear, foreign, user
from support.stored_session import fresh_key
from support.writing import PATH, Desk

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("commit_mode")]

FILE = f"{PATH}/{paths.CONTEXT}"


async def test_foreign_truncation_does_not_count_as_taken_back() -> None:
    async with Desk().open() as desk:
        await desk.do(append("k1"), user("one" * 40))
        desk.commits.before = lambda: desk.disk.foreign.truncate(FILE, 0)
        desk.disk.fail_next("fdatasync", errno.EIO, name=paths.CONTEXT)
        sent = desk.send(append("k2"), user("two"))
        await desk.wait_for(lambda: sent.answer is not None)
        desk.commits.before = lambda: None

        assert sent.error.outcome == "unknown"
        again = await desk.do(append("k2", repeat=True), user("two"))
        assert again.ack.first == "0:0"
        assert desk.durable().count(b'"_id":"k2"') == 1


@pytest.mark.parametrize("older", [False, True], ids=["no older generation", "an older generation"])
async def test_session_with_a_removed_file_continues_from_its_open_file(older: bool) -> None:
    async with Desk().open() as desk:
        if older:
            await desk.do(append("k0"), user("zero"))
            await desk.do(clear("c"))
        _, reader = desk.subscribe()
        await desk.do(append("k1"), user("one"))
        mine = desk.file()
        desk.disk.foreign.delete(FILE)

        for _ in range(2):
            refused = await desk.do(append("k2", repeat=True), user("two"))
            assert "try again in a moment" in refused.error.message
        desk.now_s += limits.FOREIGN_SETTLE_S
        sent = await desk.do(append("k2", repeat=True), user("two"))
        await desk.wait_for(lambda: b'"k2"' in reader.data)

        assert desk.file(f"context_{1 + older}.jsonl") == mine
        assert sent.ack.first == f"{1 + older}:0"
        resets = [event for event, _ in reader.events if isinstance(event, Reset)]
        assert (resets[-1].generation, resets[-1].kept) == (1 + older, 0)
        assert [entry.kind for entry in desk.stored.timeline()].count("foreign") == 1
        again = await desk.do(append("k1", repeat=True), user("one"))
        assert again.ack.first == f"{int(older)}:0"


async def test_file_that_returns_soon_is_adopted_and_not_replaced() -> None:
    async with Desk().open() as desk:
        await desk.do(append("k1"), user("one"))
        desk.disk.foreign.rename(FILE, "context_1.jsonl")

        refused = await desk.do(append(fresh_key()), user("two"))
        assert isinstance(refused.error, Busy)
        assert paths.CONTEXT not in desk.stored.names()

        desk.disk.foreign.replace(FILE, desk.file("context_1.jsonl"))
        sent = await desk.do(append(fresh_key()), user("two"))
        assert sent.ack.first == "1:1"


@pytest.mark.parametrize("new", [b'"7"', b'"seventy"', b'""'], ids=["same", "longer", "shorter"])
async def test_followers_start_over_when_another_program_edits_lines_that_they_have(
    new: bytes,
) -> None:
    async with Desk().open() as desk:
        await desk.do(append("k0"), user("0"))
        await desk.do(clear("c"))
        await desk.do(append("k1"), user("1"))
        _, reader = desk.subscribe()
        await desk.do(append("k2"), user("2"))
        await desk.wait_for(lambda: b'"k2"' in reader.data)
        edited = desk.file().replace(b'"1"', new)
        desk.disk.foreign.truncate(FILE, 0)
        desk.disk.foreign.append(FILE, edited + foreign("more"))

        await desk.do(append("k3"), user("3"))
        await desk.wait_for(lambda: b'"k3"' in reader.data)

        resets = [number for number, kind in enumerate(reader.kinds) if kind == "Reset"]
        assert len(resets) == 2
        event = reader.events[resets[-1]][0]
        assert isinstance(event, Reset)
        assert (event.generation, event.kept, event.why) == (1, 0, "foreign")
        assert b"".join(block or b"" for _, block in reader.events[resets[-1] :]) == desk.file()


async def test_files_closed_meanwhile_append_nothing_to_the_timeline() -> None:
    async with Desk().open() as desk:
        await desk.do(append("k1"), user("one"))
        refused: list[StenoError] = []
        entry = TimelineEntry(kind="fork", generation=0, details={"to": "other", "at": "0:0"})

        async def note() -> None:
            try:
                await desk.writer.note(entry)
            except StenoError as error:
                refused.append(error)
            desk.changed()

        async with desk.writer._files.timeline:
            desk.spawn(note)
            await desk.settle()
            desk.writer._files.abandon()
        await desk.wait_for(lambda: bool(refused))

        assert isinstance(refused[0], Busy)
        await desk.writer.note(entry)
        assert [entry.kind for entry in desk.stored.timeline()] == ["created", "fork"]


async def test_timeline_line_is_finished_in_the_folder_of_its_start() -> None:
    async with Desk().open() as desk:
        opened = desk.writer.opened
        assert opened is not None
        folder = opened.log._folder
        written: list[bool] = []

        def close() -> None:
            opened.log.close()
            written.append(desk.disk._handles[folder].name is not None)

        come = before_call(desk.disk, 0, close)
        opened.log.append_timeline(b"{}\n")
        assert come()

        assert written == [True]
        assert desk.file(paths.TIMELINE).endswith(b"\n{}\n")
        assert folder not in desk.disk._handles
        for late in (
            lambda: opened.log.append_timeline(b"{}\n"),
            opened.log.timeline,
            opened.log.generations,
        ):
            with pytest.raises(OSError, match="closed"):
                late()
        desk.writer._files.opened = None


async def test_next_command_does_not_trust_an_unchecked_file() -> None:
    async with Desk().open() as desk:
        _, reader = desk.subscribe()
        await desk.do(append("k1", durability="written"), user("one"))

        def interfere() -> None:
            desk.disk.foreign.append(FILE, foreign("theirs"))
            desk.disk.fail_next("stat_name", errno.EIO, name=paths.CONTEXT, skip=1)
            desk.now_s += 2 * limits.WRITTEN_SYNC_S

        come = before_call(desk.disk, 0, interfere)
        unknown = await desk.do(append("k2", durability="written"), user("two"))
        assert come()
        sent = await desk.do(append("k3"), user("three"))
        await desk.wait_for(lambda: b'"k3"' in reader.data)

        assert isinstance(unknown.answer, StenoError)
        assert sent.ack.first == "0:3"
        assert reader.data == desk.file()
