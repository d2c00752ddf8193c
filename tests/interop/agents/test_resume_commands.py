"""The commands that steno prints go on with a session in the real opencode and Copilot CLI."""

import shlex
from dataclasses import replace
from typing import Any

import pytest

from interop.agents.machine import TEST_S, Machine
from interop.agents.mock_model import Request
from interop.agents.programs import COPILOT, OPENCODE, require
from interop.agents.said import Said, of_chat

pytestmark = pytest.mark.timeout(TEST_S)


def imported(machine: Machine, path: str) -> str:
    """The id of the one session in a folder or database."""
    ran = machine.steno("import", str(machine.home / path), "--json")
    assert ran.code == 0, ran.err
    return str(ran.document["session"])


def context(machine: Machine, session: str) -> list[Said]:
    """What the context of a session says."""
    records: list[Any] = machine.steno("read", session, "--json").documents
    return list(of_chat(each["record"] for each in records))


def resumed(machine: Machine, session: str) -> list[str]:
    """The command that resumes an imported session in its program."""
    line = machine.steno("info", session, "--json").document["origin"]["resume"]
    change, command = line.split(" && ")
    assert shlex.split(change) == ["cd", str(machine.home / "shop")]
    return shlex.split(command)


def check_gone_on(request: Request, history: list[Said]) -> None:
    """Check that a program sent a history and a last prompt."""
    *sent, last = request.said
    assert last.text.endswith("Go on")
    assert sent == history


def test_copilot_resumes_its_session_by_the_command_that_steno_prints(machine: Machine) -> None:
    require(COPILOT)
    first = machine.turn(COPILOT, "Look {{run ls}} {{run echo two}}")
    session = imported(machine, ".copilot/session-state")
    assert context(machine, session) == first.request.whole
    assert resumed(machine, session) == ["copilot", "--resume", first.session]
    second = machine.turn(COPILOT, "Go on", first.session)
    check_gone_on(second.request, first.request.whole)
    assert imported(machine, ".copilot/session-state") == session
    assert context(machine, session) == second.request.whole


def test_opencode_goes_on_with_its_session_and_with_one_that_steno_wrote(machine: Machine) -> None:
    require(OPENCODE)
    machine.set_up(OPENCODE)
    first = machine.ask(OPENCODE, "Look {{run ls}} {{run ls missing}}")
    session = imported(machine, ".local/share/opencode/opencode.db")
    assert context(machine, session) == first.whole
    *command, own = resumed(machine, session)
    assert command == ["opencode", "--session"]
    ran = machine.steno("export", session, "--format", "opencode", "--install", "--json")
    assert ran.code == 0, ran.err
    brought, went_on = ran.document["command"].split(" && ")[-2:]
    machine.run(*shlex.split(brought))
    *command, new = shlex.split(went_on)
    assert command == ["opencode", "--session"]
    assert new != own
    check_gone_on(machine.ask(OPENCODE, "Go on", own), first.whole)
    # What steno wrote names no model, which a person chooses.
    begun = replace(OPENCODE, resume=["opencode", "run", "-m", "mock/mock", "--session"])
    check_gone_on(machine.ask(begun, "Go on", new), first.whole)
