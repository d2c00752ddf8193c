"""The search of the viewer: its routes, its background passes, and what is shown of a text."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import steno as steno_client
from steno.values import Record
from steno_search.filling import Pass, fill
from steno_search.folder import IndexFolder
from steno_search.hits import Search
from steno_search.searchable import searchable
from steno_view import search as search_module
from steno_view.search import SearchService
from support.command import Steno
from support.viewer import RunningViewer, viewing, wait_for

ATTACK = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def steno(shared_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Steno:
    """The command on a root with two sessions."""
    steno = Steno(shared_root, XDG_CACHE_HOME=str(tmp_path_factory.mktemp("cache")))
    assert steno("append", "talk", f"the daemon {ATTACK} writes", "--create").code == 0
    assert steno("append", "talk", "the daemon reads", "--role", "assistant").code == 0
    assert steno("append", "other", "no daemon here", "--create").code == 0
    return steno


@pytest.fixture(scope="module")
def viewer(steno: Steno) -> Iterator[RunningViewer]:
    with viewing(steno) as running:
        wait_for(lambda: is_complete(running))
        yield running


def is_complete(viewer: RunningViewer) -> bool:
    """Ask for the progress, as the page does: every session was read."""
    progress: dict[str, Any] = viewer.visit.get("search/progress")
    return progress["complete"] and not progress["running"]


def places(viewer: RunningViewer, **asked: object) -> list[tuple[str, str]]:
    return [(hit["session"], hit["at"]) for hit in viewer.visit.get("search", **asked)["hits"]]


def test_results_have_their_place_and_their_words_apart(viewer: RunningViewer) -> None:
    found = viewer.visit.get("search", q="WRITES")
    (hit,) = found["hits"]
    assert (hit["session"], hit["at"], hit["role"]) == ("talk", "0:0", "user")
    # The text is no HTML, and stays what it is.
    assert hit["parts"] == [f"the daemon {ATTACK} ", "writes", ""]
    assert (found["count"], found["next"], found["ranked"]) == (1, None, True)


def test_filters_limit_the_results(viewer: RunningViewer) -> None:
    assert places(viewer, q="daemon", order="time") == [
        ("other", "0:0"), ("talk", "0:1"), ("talk", "0:0"),
    ]  # fmt: skip
    assert places(viewer, q="daemon", role="assistant") == [("talk", "0:1")]
    assert places(viewer, q="daemon", session="oth") == [("other", "0:0")]
    assert places(viewer, q="daemon", since=time.time() + 60) == []
    assert places(viewer, q="daemon", until=time.time() - 3600) == []
    assert len(places(viewer, q="daemon", offset=1)) == 2


@pytest.mark.parametrize(
    "asked",
    [{}, {"q": "++"}, {"q": "a", "order": "x"}, {"q": "a", "since": "nan"},
     {"q": "a", "until": "soon"}, {"q": "a", "offset": "-1"}],
)  # fmt: skip
def test_a_senseless_search_is_refused(viewer: RunningViewer, asked: dict[str, str]) -> None:
    response = viewer.visit.http.get("/api/search", params=asked)
    assert response.status_code == 400
    assert response.json()["error"]["message"]


def test_a_search_needs_the_token(viewer: RunningViewer) -> None:
    for path in ("search", "search/progress"):
        response = viewer.visit.http.get(f"/api/{path}", headers={"authorization": ""})
        assert response.status_code == 401


def test_new_records_are_found_and_reverted_ones_are_not(
    steno: Steno, viewer: RunningViewer
) -> None:
    assert steno("checkpoint", "other").code == 0
    assert steno("append", "other", "a zebra").code == 0
    wait_for(lambda: is_complete(viewer) and places(viewer, q="zebra") != [])
    assert steno("revert", "other", "0").code == 0
    # The index does not know yet; the session does.
    assert places(viewer, q="zebra") == []


def test_the_search_comes_back_with_the_daemon(steno: Steno, viewer: RunningViewer) -> None:
    assert steno("restart").code == 0
    http = viewer.visit.http
    wait_for(lambda: http.get("/api/search", params={"q": "daemon"}).status_code == 200)
    assert len(places(viewer, q="daemon")) == 3


def masked(record: Record) -> Record:
    """A record without its key."""
    text = str(record.record["content"]).replace("sk-123", "***")
    return Record(record.cursor, {**record.record, "content": text}, record.raw)


@pytest.mark.anyio
async def test_each_record_is_counted_once_whatever_pass_runs(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "INDEX_PAUSE_S", 0.0)
    folder = IndexFolder(tmp_path, "root")
    with steno_client.connect_sync(root, name="writer") as client:
        client.open("talk").append_message({"role": "user", "content": "one"})
        service = SearchService(lambda: (client, folder, searchable), lambda record: record)
        added = []
        for _ in range(4):
            # The thread of the pass that begins now waits here, and the answer is that of before.
            with service._connecting:
                added.append((await service.progress())["added"])
            assert service._thread is not None
            await anyio.to_thread.run_sync(service._thread.join)
    assert added == [0, 1, 1, 1]


@pytest.mark.anyio
async def test_a_record_is_masked_before_its_words_are_marked(root: Path, tmp_path: Path) -> None:
    folder = IndexFolder(tmp_path, "root")
    with steno_client.connect_sync(root, name="writer") as client:
        client.open("keys").append_message({"role": "user", "content": "key sk-123 is secret"})
        with folder.filling() as filling:
            assert filling is not None
            fill(client, filling, searchable, Pass())
        found = await SearchService(lambda: (client, folder, searchable), masked).find(
            Search("secret sk"), 0
        )
    assert [hit["parts"] for hit in found["hits"]] == [["key *** is ", "secret", ""]]
