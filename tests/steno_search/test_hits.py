"""Results of a search, read from their sessions."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

import steno
from steno_protocol import commands
from steno_protocol.replies import Lines
from steno_search.filling import Pass, fill
from steno_search.folder import IndexFolder
from steno_search.hits import Search, Searcher
from steno_search.index import Index
from steno_search.searchable import searchable
from support.daemon_in_thread import DaemonInThread


@contextmanager
def indexed(client: steno.BlockingClient, folder: Path) -> Iterator[Index]:
    """The index of all sessions."""
    place = IndexFolder(folder, "of this test")
    with place.filling() as filling:
        assert filling is not None
        fill(client, filling, searchable, Pass())
    index = place.open()
    assert index is not None
    with index:
        yield index


def found(client: steno.BlockingClient, index: Index) -> list[tuple[str, str]]:
    """Session and cursor of each result for `needle`, ordered."""
    page = Searcher(client, searchable).page(index, Search("needle"), 0, 20)
    return sorted((hit.session, str(hit.record.cursor)) for hit in page.hits)


@pytest.fixture
def client(root: Path) -> Iterator[steno.BlockingClient]:
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        yield client


def write(client: steno.BlockingClient, session: str, count: int = 1) -> steno.BlockingSession:
    opened = client.open(session)
    opened.checkpoint()
    for number in range(count):
        opened.append_message({"role": "user", "content": f"needle {number} of {session}"})
    return opened


def test_each_result_is_one_request(
    client: steno.BlockingClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        write(client, f"s{number}", 2)
    with indexed(client, tmp_path) as index:
        asked: list[commands.Command] = []
        request = client.request

        def noting(command: commands.Command, *others: object) -> object:
            asked.append(command)
            return request(command, *others)  # type: ignore[arg-type]

        monkeypatch.setattr(client, "request", noting)
        results = found(client, index)

    assert len(results) == 10
    assert len(asked) == 10


def test_a_result_of_a_generation_that_was_left_behind_is_none(
    client: steno.BlockingClient, tmp_path: Path
) -> None:
    kept, cut = write(client, "kept", 2), write(client, "cut", 2)
    with indexed(client, tmp_path) as index:
        cut.revert_to(0)
        kept.checkpoint()
        kept.append_message({"role": "user", "content": "more"})
        kept.revert_to(1)

        assert found(client, index) == [("kept", "1:1"), ("kept", "1:2")]


def test_a_session_that_was_made_again_has_no_old_results(
    client: steno.BlockingClient, tmp_path: Path
) -> None:
    old = write(client, "again")
    old.revert_to(0)
    old.append_message({"role": "user", "content": "needle of the old one"})
    with indexed(client, tmp_path) as index:
        client.delete("again")
        client.open("again").append_message({"role": "user", "content": "something new"})
        assert found(client, index) == []
        client.delete("again")
        assert found(client, index) == []


def test_a_closed_session_and_a_daemon_from_before_the_field_have_results(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        session = write(client, "s", 2)
        session.checkpoint()
        session.revert_to(1)
    with (
        DaemonInThread(root),
        steno.connect_sync(root, spawn=False) as client,
        indexed(client, tmp_path) as index,
    ):
        expected = [("s", "1:1"), ("s", "1:2")]
        assert found(client, index) == expected
        request = client.request

        def without(*arguments: object) -> object:
            reply, lines = request(*arguments)  # type: ignore[arg-type]
            assert isinstance(reply, Lines)
            return msgspec.structs.replace(reply, present=False), lines

        monkeypatch.setattr(client, "request", without)
        assert found(client, index) == expected
