"""Real agents are followed: steno's context is what the program sends with its next request."""

import pytest

from interop.agents.machine import RUN_S, TEST_S, Machine
from interop.agents.programs import CODEX, GEMINI, Program, each_program

pytestmark = pytest.mark.timeout(TEST_S)


@each_program
def test_whatever_is_killed_or_refused_the_next_turn_is_followed(
    machine: Machine, program: Program
) -> None:
    with machine.watch() as watch:
        first = machine.turn(program, "Look {{run ls}}")
        machine.wait_until_followed(first)
        with machine.running(program, "Tell me {{hold}}", first.session):
            assert machine.model.held.wait(RUN_S)
        # The program was killed in the middle of an answer.
        second = machine.turn(program, "Go on", first.session)
        machine.wait_until_followed(second)
        # Its next request is refused.
        machine.turn(program, "Tell me {{fail}}", first.session, fails=True)
        machine.kill_daemon()
        third = machine.turn(program, "And on", first.session)
        machine.wait_until_followed(third)
        watch.kill()
        fourth = machine.turn(program, "Further", first.session)
    with machine.watch():
        machine.wait_until_followed(fourth)


@each_program
def test_a_compacted_conversation_begins_with_its_summary(
    machine: Machine, program: Program
) -> None:
    with machine.watch():
        last = "After it"
        first = machine.turn(program, "Look at this: " + "many words, " * 2000)
        machine.wait_until_followed(first)
        if program == GEMINI:
            # It does so before it sends a result; what a person types is no command in a call.
            second, last = first, "After it {{long}} {{run ls}}"
        elif program.compact:
            second = machine.turn(program, "Go on", first.session)
            machine.turn(program, program.compact, first.session)
        else:
            second = machine.turn(program, "Go on {{long}}", first.session)
        third = machine.turn(program, last, first.session)
        machine.wait_until_followed(third)
        replaced = second.request.whole
        assert third.request.said[: len(replaced)] != replaced
        # Codex and pi compact within the turn; Codex keeps its request for the summary.
        assert any(past[: len(replaced)] == replaced for past in machine.past(first.file))


@each_program
def test_the_live_branch_of_two_writers_is_followed(machine: Machine, program: Program) -> None:
    with machine.watch():
        first = machine.turn(program, "Look {{run ls}}")
        with machine.running(program, "Tell me {{hold}}", first.session) as slow:
            assert machine.model.held.wait(RUN_S)
            if program == CODEX:
                with machine.running(program, "Meanwhile", first.session) as second:
                    assert second.wait(RUN_S) != 0, "Codex lets one process write a session"
            else:
                machine.wait_until_followed(machine.turn(program, "Meanwhile", first.session))
            machine.model.go_on.set()
            assert slow.wait(RUN_S) == 0
        last = machine.turn(program, "Go on", first.session)
        machine.wait_until_followed(last)
