"""`steno doctor --self-test`: a trial of the daemon on a file system."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from steno_cli.doctor import Finding, self_test
from steno_cli.entry import main
from steno_cli.exits import Exit
from steno_protocol import paths

PARTS = ["start", "alone", "kills", "rewrites"]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial with two kills, which takes seconds."""
    monkeypatch.setattr(self_test, "SELF_TEST_KILLS_MAX", 2)
    monkeypatch.setattr(self_test, "SELF_TEST_WRITERS_MAX", 2)
    monkeypatch.setattr(self_test, "SELF_TEST_ACKS_MAX", 8)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Shorten the trial to the parts that a test is about; each starts its daemon."""

    def shorten(*parts: str) -> None:
        checks = {name: self_test._CHECKS[name] for name in parts}
        monkeypatch.setattr(self_test, "_CHECKS", checks)
        monkeypatch.setattr(self_test, "SELF_TEST_KILLS_MAX", 1)

    return shorten


def problems(folder: Path) -> str:
    return "\n".join(
        finding.text for _, finding in self_test.self_test(folder) if finding.state != "ok"
    )


def test_healthy_file_system_passes_and_nothing_is_left(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What this shell names is not touched.
    monkeypatch.setenv("STENO_ENDPOINT", "tcp://127.0.0.1:9")
    monkeypatch.setenv("STENO_SOCKET", str(root / "other.sock"))
    found = list(self_test.self_test(root))
    assert [(name, finding.state) for name, finding in found] == [(name, "ok") for name in PARTS]
    assert list(root.iterdir()) == []


def test_lost_record_is_reported(
    root: Path, monkeypatch: pytest.MonkeyPatch, only: Callable[..., None]
) -> None:
    only("kills")

    def lose(folder: Path) -> None:
        context = folder / paths.CONTEXT
        first, _, rest = context.read_bytes().partition(b"\n")
        context.write_bytes(rest if b"0-0" in first else first + b"\n" + rest)

    monkeypatch.setattr(self_test, "_tear", lose)
    assert "lost 1 acknowledged records, the first is 0-0" in problems(root)


@pytest.mark.slow
def test_tail_that_is_not_repaired_is_reported(
    root: Path, monkeypatch: pytest.MonkeyPatch, only: Callable[..., None]
) -> None:
    only("kills")
    monkeypatch.setattr(self_test, "_tear", lambda _: None)
    assert "the torn tail of writer-0 is not in quarantine" in problems(root)


@pytest.mark.slow
def test_lost_rewrite_is_reported(
    root: Path, monkeypatch: pytest.MonkeyPatch, only: Callable[..., None]
) -> None:
    only("rewrites")
    monkeypatch.setattr(self_test, "_after", lambda steps: [str(steps)] * 9)
    assert "changes the session has" in problems(root)


@pytest.mark.slow
def test_free_lock_is_reported(
    root: Path, monkeypatch: pytest.MonkeyPatch, only: Callable[..., None]
) -> None:
    only("start", "alone")
    monkeypatch.setattr(self_test, "is_free", lambda _: True)
    assert "two daemons would write the same files" in problems(root)


def test_trial_that_cannot_go_on_is_a_problem(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: self_test.Trial) -> Iterator[Finding]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(self_test, "_CHECKS", {"start": fail})
    assert "the trial ended early: [Errno 28] No space left on device" in problems(root)
    assert list(root.iterdir()) == []


def test_command_reports_the_trial_with_its_exit_code(
    root: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    only: Callable[..., None],
) -> None:
    words = ["--root", str(root / "not-there"), "doctor", "--json", "--self-test"]
    only("start", "rewrites")
    assert main([*words, str(root / "missing")]) == Exit.NOT_FOUND
    assert "there is no folder" in capsys.readouterr().err
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["problems"], document["root"]) == (0, str(root))
    assert [finding["check"] for finding in document["findings"]] == ["start", "rewrites"]
    monkeypatch.setattr(self_test, "_after", lambda _: ["another"])
    assert main(words) == Exit.DAMAGED
