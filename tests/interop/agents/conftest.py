"""A machine with agents for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.agents.machine import Machine
from interop.agents.programs import Program, require


@pytest.fixture
def machine(root: Path, tmp_path: Path) -> Iterator[Machine]:
    """A home folder, a model, and steno."""
    machine = Machine(tmp_path / "home", root)
    try:
        yield machine
    finally:
        machine.close()


@pytest.fixture
def program(request: pytest.FixtureRequest, machine: Machine) -> Program:
    """The program that a test is about, with its settings; skips where it is not installed."""
    found: Program = request.param
    require(found)
    machine.set_up(found)
    return found
