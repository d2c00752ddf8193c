"""A checkpoint means one state: ids that are never used again, and handles that name one line."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import steno
from steno import BlockingClient, BlockingSession, Checkpoint, Conflict, NotFound, connect_sync
from support.command import Steno
from support.messages import message

pytestmark = pytest.mark.served


def texts(session: BlockingSession) -> list[str]:
    """The texts that the daemon has; a mirror may not have them yet."""
    return [each["content"] for each in session.history_at().history]


@pytest.fixture
def client(root: Path) -> Iterator[BlockingClient]:
    with connect_sync(root, name="A") as made:
        yield made


@pytest.fixture
def other(root: Path) -> Iterator[BlockingClient]:
    with connect_sync(root, name="B") as made:
        yield made


def overtake(session: BlockingSession, mark: Checkpoint) -> Checkpoint:
    """Revert to another client's checkpoint, and set a new one in its place."""
    session.revert_to(mark.handle)
    session.append_message(message("of B"))
    made = session.checkpoint()
    session.append_message(message("more of B"))
    return made


@pytest.mark.parametrize("by_handle", [False, True])
def test_a_stale_id_drops_nothing_and_the_error_names_the_rewrite(
    client: BlockingClient, other: BlockingClient, by_handle: bool
) -> None:
    mine, theirs = client.open("demo"), other.open("demo")
    mark = mine.checkpoint()
    mine.append_message(message("of A"))
    made = overtake(theirs, mark)
    assert made.id == mark.id + 1
    with pytest.raises(NotFound) as caught:
        mine.revert_to(mark if by_handle else mark.id)
    text = caught.value.message
    assert text.startswith("checkpoint 0 does not exist: B reverted the session to checkpoint 0 at")
    assert "UTC, as generation 1, which removed checkpoint 0; generation 0 contains it" in text
    assert "at 0:0: `steno restore demo 0`" in text
    assert texts(mine) == ["of B", "more of B"]
    mine.restore_generation(0)
    mine.revert_to(mark)
    assert texts(mine) == []


def test_a_handle_is_refused_where_ids_are_used_again(
    client: BlockingClient, other: BlockingClient
) -> None:
    mine, theirs = client.open("demo", stamp=False), other.open("demo")
    mark = mine.checkpoint()
    mine.append_message(message("of A"))
    made = overtake(theirs, mark)
    assert made.id == mark.id == 0
    for change in (
        lambda: mine.revert_to(mark),
        lambda: mine.revert_to(mark.handle),
        lambda: mine.send_dmail(mark, "back"),
        lambda: mine.fork("other", checkpoint=mark),
    ):
        with pytest.raises(Conflict, match=r"checkpoint 0 is another one now, at 1:1.* B reverted"):
            change()
    assert texts(mine) == ["of B", "more of B"]
    assert mine.history_at(checkpoint=mark).history == []
    mine.revert_to(made)
    assert texts(mine) == ["of B"]
    mine.restore_generation(0)
    mine.revert_to(mark)
    with pytest.raises(Conflict):
        mine.fork("other", checkpoint=mark.handle.replace(mark.incarnation, "0" * 16))


@pytest.mark.served(False)
def test_a_plain_id_counts_as_in_kimi_cli_in_a_mount(tmp_path: Path, root: Path) -> None:
    (tmp_path / "tree").mkdir()
    (root / "config.toml").write_text(f'[mounts]\nkimi = "{tmp_path / "tree"}"\n')
    with connect_sync(root) as client:
        session = client.open("kimi:a/b")
        first, second = session.checkpoint(), session.checkpoint()
        session.revert_to(second)
        session.append_message(message("new"))
        assert [first.id, second.id, session.checkpoint().id] == [0, 1, 1]
        with pytest.raises(Conflict):
            session.revert_to(second)
        session.clear()
        assert session.checkpoint().id == 0
        with pytest.raises(Conflict, match="cleared the session"):
            session.revert_to(first)
        client.drain()


@pytest.mark.served(False)
def test_no_id_is_used_twice_over_all_rewrites_and_reopenings(root: Path) -> None:
    used: list[int] = []
    with connect_sync(root) as client:
        session = client.open("demo")
        session.append_message(message("hi"))
        used += [session.checkpoint().id for _ in range(3)]
        session.revert_to(1)
        used.append(session.checkpoint().id)
        session.clear()
        used.append(session.checkpoint().id)
        session.restore_generation(0)
        used.append(session.checkpoint().id)
        session.append_message([message(str(number)) for number in range(9)])
        done = session.compact(lambda _: "short")
        assert done is not None
        used += [done.ack.id, session.checkpoint().id]
        sent = session.send_dmail(done.ack, "back")
        used.append(session.deliver_dmail(sent.id).id)
        session.write_system_prompt("be kind")
        used.append(session.checkpoint().id)
        session.clear()
        client.drain()
    with connect_sync(root) as client:
        session = client.open("demo")
        assert session.n_checkpoints == max(used) + 1
        used.append(session.checkpoint().id)
        fork = session.fork("other", at="0:1")
        used.append(fork.checkpoint().id)
        fork.revert_to(used[-1])
        used.append(fork.checkpoint().id)
        client.drain()
    assert used == sorted(set(used)), used


@pytest.mark.served(False)
def test_a_session_of_an_earlier_version_counts_its_past_generations_once(root: Path) -> None:
    with connect_sync(root) as client:
        session = client.open("demo")
        for _ in range(5):
            session.checkpoint()
        session.revert_to(1)
        client.drain()
    timeline = root / "sessions" / "demo" / "timeline.jsonl"
    entries = [json.loads(line) for line in timeline.read_text().splitlines()]
    for entry in entries:
        entry.get("details", {}).pop("next_id", None)
    timeline.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    for _ in range(2):
        with connect_sync(root) as client:
            client.open("demo")
            client.drain()
    with connect_sync(root) as client:
        session = client.open("demo")
        assert session.checkpoint().id == 5
        counted = [entry for entry in session.timeline() if entry.kind == "counted"]
        assert [entry.details for entry in counted] == [{"next_id": 5}]
        client.drain()


def test_a_handle_of_a_deleted_session_is_refused_by_its_successor(client: BlockingClient) -> None:
    session = client.open("demo")
    mark = session.checkpoint(key="mark")
    client.delete("demo")
    session = client.open("demo")
    again = session.checkpoint(key="mark")
    assert (again.id, again.at) == (mark.id, mark.at)
    for change in (
        lambda: session.revert_to(mark),
        lambda: session.send_dmail(mark, "back"),
        lambda: session.fork("other", checkpoint=mark),
        lambda: session.history_at(checkpoint=mark),
    ):
        with pytest.raises(Conflict, match="deleted and created again"):
            change()
    session.revert_to(again)


def test_a_handle_survives_a_rename_and_is_valid_in_forks_from_later_states(
    client: BlockingClient,
) -> None:
    session = client.open("demo")
    session.append_message(message("one"))
    mark = session.checkpoint()
    session.append_message(message("two"))
    late = session.checkpoint()
    fork = session.fork("fork", checkpoint=late)
    again = fork.fork("again")
    for each in (fork, again):
        with pytest.raises(Conflict, match="belongs to another session"):
            each.revert_to(late)
        each.revert_to(mark)
        assert texts(each) == ["one"]
    client.rename("demo", "named")
    named = client.open("named")
    named.revert_to(mark)
    assert texts(named) == ["one"]


def test_a_repeated_command_returns_the_same_checkpoint(client: BlockingClient) -> None:
    session = client.open("demo", stamp=False)
    mark = session.checkpoint(key="mark")
    assert session.checkpoint(key="mark").handle == mark.handle
    session.revert_to(mark, key="back")
    made = session.checkpoint()
    assert made.id == mark.id
    # The first answer: the repeat finds its key, and touches no other checkpoint.
    assert session.revert_to(mark, key="back").duplicate
    assert session.checkpoints == [(made.id, made.at)]


def test_the_line_of_a_foreign_program_with_the_same_id_is_another_one(
    client: BlockingClient,
) -> None:
    session = client.open("demo", stamp=False)
    session.append_message(message("one"))
    with session.file_backend.open("ab") as file:  # as a program without a daemon
        file.write(b'{"role":"_checkpoint","id":7}\n{"role":"user","content":"two"}\n')
    mark = session.checkpoint()
    assert mark.id == 8
    with session.file_backend.open("ab") as file:
        file.write(b'{"role":"_checkpoint","id":8}\n')
    session.append_message(message("three"))
    with pytest.raises(Conflict, match="checkpoint 8 is another one now, at 0:3"):
        session.revert_to(mark.handle.replace("@0:3@", "@0:4@"))
    session.write_system_prompt("be kind")  # moves the lines
    with pytest.raises(Conflict):
        session.revert_to(mark.handle.replace("@0:3@", "@0:4@"))
    session.revert_to(mark)  # the first line with an id counts
    assert texts(session) == ["one", "two"]


def test_the_command_takes_handles(root: Path) -> None:
    with connect_sync(root) as client:
        client.open("demo", stamp=False)
    run = Steno(root)
    handle = run("checkpoint", "demo", "--json").document["handle"]
    assert run("revert", "demo", handle).code == 0
    assert run("checkpoint", "demo").out == "0\n"
    ran = run("revert", "demo", handle)
    assert (ran.code, "another one now" in ran.err) == (3, True)
    assert run("fork", "demo", "new", "--checkpoint", handle).code == 3
    assert run("dmail", "send", "demo", handle, "back").code == 3
    assert run("revert", "demo", "7@x").code == 2


@pytest.mark.anyio
async def test_the_async_client_takes_what_it_returned(root: Path) -> None:
    async with steno.connect(root) as client:
        session = await client.open("demo")
        mark = await session.checkpoint(add_user_message=True)
        await session.revert_to(json.loads(json.dumps(mark.handle)))
        assert session.history == []
        with pytest.raises(steno.BadRequest, match="give the id of a checkpoint"):
            await session.revert_to("first")
