"""What one real agent began, another one goes on with, and sends all of it to the model."""

import re
import shlex
from typing import Final

import pytest

from interop.agents.machine import Machine
from interop.agents.programs import GEMINI, PROGRAMS, Program, each_program, require
from interop.agents.said import Said

_NOTE: Final = re.compile(r"<environment_context>|<[a-z_]*(instructions|context)[a-z_]*>")


def without_notes(said: list[Said]) -> list[Said]:
    """A conversation without what a program itself says of its surroundings."""
    return [each for each in said if each.kind != "user" or not _NOTE.match(each.text)]


@each_program
def test_a_session_goes_on_in_each_other_program(
    machine: Machine, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Gemini CLI names no directory, and then steno's own is that of the session.
    monkeypatch.chdir(machine.home / "shop")
    with machine.watch():
        begun = machine.turn(program, "Look {{run ls}} {{run echo two}}")
        first = machine.turn(program, "Try {{run ls missing}}", begun.session)
        machine.wait_until_followed(first)
        session = machine.session_of(first.file)
        assert session is not None
        for other in PROGRAMS.values():
            if other in (program, GEMINI):
                # steno writes no session for Gemini CLI.
                continue
            require(other)
            machine.set_up(other)
            ran = machine.steno("export", session, "--format", other.name, "--install", "--json")
            assert ran.code == 0, ran.err
            resumed = shlex.split(ran.document["command"])[-1]
            second = machine.turn(other, "Go on", resumed)
            *history, prompt = without_notes(second.request.said)
            assert prompt == Said("user", "Go on")
            assert history == without_notes(first.request.whole), other.name
            machine.wait_until_followed(second)
