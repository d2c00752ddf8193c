"""What one real agent began, another one goes on with, and sends all of it to the model."""

import re
import shlex
from typing import Final

import pytest

from interop.agents.machine import TEST_S, Machine
from interop.agents.programs import (
    CLAUDE_CODE,
    CODEX,
    GEMINI,
    KIMI,
    PI,
    PROGRAMS,
    QWEN,
    Program,
    each_program,
    require,
)
from interop.agents.said import Said

pytestmark = pytest.mark.timeout(TEST_S)

_NOTE: Final = re.compile(r"<([a-z_]*(?:instructions|context)[a-z_]*)>.*?</\1>", re.DOTALL)

_NEXT: Final = {
    CLAUDE_CODE.name: CODEX, CODEX.name: KIMI, KIMI.name: QWEN, QWEN.name: PI, PI.name: CLAUDE_CODE,
    GEMINI.name: CODEX,
}  # fmt: skip
"""A ring; steno writes no session for Gemini CLI."""


def without_notes(said: list[Said]) -> list[Said]:
    """A conversation without what a program itself says of its surroundings."""
    shown = (
        each._replace(text=_NOTE.sub("", each.text).strip()) if each.kind == "user" else each
        for each in said
    )
    return [each for each in shown if each.text]


def test_each_program_begins_a_session_and_goes_on_with_one() -> None:
    assert set(_NEXT) == set(PROGRAMS)
    assert {each.name for each in _NEXT.values()} == set(PROGRAMS) - {GEMINI.name}


@each_program
def test_calls_and_forks_are_followed_and_another_program_goes_on(
    machine: Machine, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parallel calls, a fork, and the way into the next program.

    Each reader and each writer has one real session: what is read is the same whatever wrote it,
    and `tests/steno_agents/test_writers.py` has each pair of reader and writer.
    """
    other = _NEXT[program.name]
    require(other)
    machine.set_up(other)
    # Gemini CLI names no directory, and then steno's own is that of the session.
    monkeypatch.chdir(machine.home / "shop")
    with machine.watch():
        begun = machine.turn(program, "Look {{run ls}} {{run echo two}}")
        machine.wait_until_followed(begun)
        first = machine.turn(program, "Try {{run ls missing}}", begun.session)
        machine.wait_until_followed(first)
        session = machine.session_of(first.file)
        assert session is not None
        ran = machine.steno("export", session, "--format", other.name, "--install", "--json")
        assert ran.code == 0, ran.err
        resumed = shlex.split(ran.document["command"])[-1]
        second = machine.turn(other, "Go on", resumed)
        *history, prompt = without_notes(second.request.said)
        assert prompt == Said("user", "Go on")
        wanted = without_notes(first.request.whole)
        assert second.shape(history) == second.shape(wanted), other.name
        machine.wait_until_followed(second)
        if not (program.fork or program.copy):
            return
        fork = machine.turn(program, "Go elsewhere", begun.session, forks=True)
        machine.wait_until_followed(fork)
        # The session that it was forked from is as it was.
        machine.wait_until_followed(first)
