"""Reads leave the files of a session as they are: times, sizes and inodes, and no new file."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steno_protocol import paths
from support.command import Steno

FACTS = tuple[int, int, int]

READS = (
    ("show",), ("show", "--json"), ("read",), ("tail",), ("wire",), ("timeline",), ("stat",),
    ("turns",), ("export",), ("export", "--format", "json"), ("usage",), ("verify",),
)  # fmt: skip
"""Commands that read one session; its id goes behind their first word."""

FOLLOWS = (("tail", "-f"), ("tail", "-f", "--wire"), ("show", "-f"))
"""Commands that follow one session until they are interrupted; all of them print its records."""


def facts_of(folder: Path) -> dict[str, FACTS]:
    """Modification time, size and inode of all files and folders below a folder."""
    found = [folder, *folder.rglob("*")]
    return {
        str(each.relative_to(folder)): (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        for each in found
        for stat in (each.lstat(),)
    }


def end_daemon(steno: Steno) -> None:
    steno("stop")


def kill_daemon(steno: Steno) -> None:
    pid = steno("status", "--json").document["pid"]
    os.kill(pid, signal.SIGKILL)


def keep_daemon(_: Steno) -> None:
    """Leave it running, with the session open."""


@pytest.mark.parametrize("before", [keep_daemon, end_daemon, kill_daemon])
def test_no_read_changes_a_time_or_makes_a_file(
    root: Path, steno: Steno, before: Callable[[Steno], None]
) -> None:
    for text in ("one", "two"):
        steno("append", "demo", text)
    sessions = root / paths.SESSIONS
    before(steno)
    known = facts_of(sessions)

    for words in READS:
        ran = steno(words[0], "demo", *words[1:])
        assert (words, ran.code) == (words, 0)
        assert (words, facts_of(sessions)) == (words, known)
    assert steno("grep", "one").code == steno("sessions").code == 0
    assert facts_of(sessions) == known


@pytest.mark.parametrize("before", [keep_daemon, end_daemon, kill_daemon])
def test_no_follower_changes_a_time_or_makes_a_file(
    root: Path, steno: Steno, before: Callable[[Steno], None]
) -> None:
    steno("append", "demo", "one")
    sessions = root / paths.SESSIONS
    before(steno)
    known = facts_of(sessions)

    for words in FOLLOWS:
        with steno.begin(words[0], "demo", *words[1:]) as follower:
            assert follower.stdout is not None
            if "--wire" in words:
                wait_for_follower(steno)
            else:
                assert follower.stdout.readline()
            follower.terminate()
        assert (words, facts_of(sessions)) == (words, known)
    if before is not keep_daemon:
        # A daemon that wrote saves recovery points when it ends.
        steno("stop")
        assert facts_of(sessions) == known


def wait_for_follower(steno: Steno) -> None:
    """Wait until a client follows a session."""
    while not any(each.get("subscriptions") for each in followers(steno)):
        pass


def followers(steno: Steno) -> list[dict[str, Any]]:
    """The clients of the daemon; none while no daemon runs."""
    ran = steno("clients", "--json")
    return ran.document["clients"] if ran.code == 0 else []


def test_the_first_event_reaches_who_followed_before_it(root: Path, steno: Steno) -> None:
    steno("append", "demo", "one")
    with steno.begin("tail", "demo", "-f", "--wire") as follower:
        wait_for_follower(steno)
        assert not (root / paths.SESSIONS / "demo" / paths.WIRE).exists()
        assert steno("emit", "demo", "Noted", "{}").code == 0
        assert follower.stdout is not None
        assert "Noted" in follower.stdout.readline()
        follower.terminate()
