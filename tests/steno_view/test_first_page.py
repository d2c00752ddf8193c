"""The first page's answers over HTTP, the usage, and the watch beside a viewer."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agent_files import CLAUDE, CLAUDE_SESSION, claude_file, codex_file
from support.command import Steno
from support.viewer import RunningViewer, viewing, wait_for


@pytest.fixture(scope="module")
def steno(shared_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Steno:
    """The command on a root with sessions of two programs."""
    home = tmp_path_factory.mktemp("home")
    steno = Steno(shared_root, HOME=str(home), TZ="UTC")
    for file in (claude_file(home), codex_file(home)):
        assert steno("import", str(file)).code == 0
    return steno


@pytest.fixture(scope="module")
def viewer(steno: Steno) -> Iterator[RunningViewer]:
    """A viewer for all tests that leave it as it is."""
    with viewing(steno) as running:
        yield running


def test_an_unchanged_first_page_is_not_sent_again(viewer: RunningViewer) -> None:
    http = viewer.visit.http
    # Until the origins of all sessions are read.
    wait_for(lambda: bool(http.get("/api/dashboard").json()["today"]["is_complete"]))
    first = http.get("/api/dashboard")
    again = http.get("/api/dashboard", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert {each["session"] for each in first.json()["running"]} >= {CLAUDE_SESSION}


def test_the_state_of_a_session_has_its_origin(viewer: RunningViewer) -> None:
    origin = viewer.visit.get("session", session=CLAUDE_SESSION)["origin"]
    assert origin["resume"] == f"cd /srv/shop && claude --resume {CLAUDE}"


def test_tokens_are_added_up_and_prices_may_be_edited(viewer: RunningViewer, steno: Steno) -> None:
    def usage() -> dict[str, object]:
        found: dict[str, object] = viewer.visit.get("usage", by=["program"], since="2026-11-01")
        return found

    wait_for(lambda: usage()["is_complete"] is True)
    found = usage()
    assert found["by"] == ["program"]
    assert {row["program"]: row["tokens"] for row in found["rows"]} == {  # type: ignore[attr-defined]
        "claude-code": 120, "codex": 120,
    }  # fmt: skip
    assert found["total"]["cost"] is None  # type: ignore[index]
    prices = steno.root / "prices.toml"
    prices.write_text('currency = "EUR"\n[models."*"]\noutput = 1000\n')
    assert (usage()["currency"], usage()["total"]["cost"]) == ("EUR", 0.035)  # type: ignore[index]
    prices.write_text("currency = 5")
    refused = viewer.visit.http.get("/api/usage")
    assert refused.status_code == 400
    assert "is not as in a list of prices" in refused.json()["error"]["message"]
    prices.unlink()


@pytest.mark.parametrize("query", ["by=week", "since=yesterday", "since=2026-13-01", "by=day&by=x"])
def test_what_is_no_sum_is_refused(viewer: RunningViewer, query: str) -> None:
    assert viewer.visit.http.get(f"/api/usage?{query}").status_code == 400


def children_of(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in found.split()]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_viewer_that_watches_follows_transcripts_and_leaves_no_process(
    root: Path, tmp_path: Path, end: signal.Signals
) -> None:
    file = claude_file(tmp_path)
    steno = Steno(root, HOME=str(tmp_path))
    environment = {name: "" for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME") if name in os.environ}
    assert not environment, "the watch looks below the home"
    assert steno("start").code == 0
    with viewing(steno, "--watch") as running:
        assert running.visit.get("hello")["is_watching"] is True
        wait_for(
            lambda: (
                CLAUDE_SESSION
                in {each["session"] for each in running.visit.get("sessions")["sessions"]}
            )
        )
        assert file.exists()
        (watch,) = children_of(running.process.pid)
        running.process.send_signal(end)
        running.process.wait(30)
        wait_for(lambda: not is_running(watch))


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
