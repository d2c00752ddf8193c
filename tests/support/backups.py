"""Rounds of a backup in the test's process, which can be killed at any call."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import steno
from steno_backup import files, mirror
from steno_backup.mirror import Report, opened_mirror
from steno_backup.snapshot import State
from steno_protocol.positions import Position


class _Killed(BaseException):
    """The end of the process at a call."""


def back_up(client: steno.BlockingClient, root: Path, folder: Path) -> Report:
    """Run one round."""

    def ask(session: str) -> State:
        found = client.session(session).stat()
        return State(Position.parse(found.head).generation, found.bytes, found.incarnation)

    with opened_mirror(root, folder, ask) as copy:
        return copy.update()


def is_killed(
    client: steno.BlockingClient,
    root: Path,
    copy: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
) -> bool:
    """Whether a round is killed at its call number `step`; it has fewer calls otherwise."""
    calls = iter(range(1000))

    def counted(work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == step:
                raise _Killed
            return work(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for name in ("_write", "rename", "sync_file"):
            patch.setattr(files, name, counted(getattr(files, name)))
        for name in ("twin", "rename", "remove"):
            patch.setattr(mirror, name, counted(getattr(mirror, name)))
        try:
            back_up(client, root, copy)
        except _Killed:
            return True
    return False
