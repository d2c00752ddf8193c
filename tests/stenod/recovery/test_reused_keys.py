"""Keys used again with other contents."""

from collections.abc import Callable

import pytest

from steno_protocol.commands import Mutation
from steno_protocol.errors import Conflict
from stenod.recovery.opened import Opened
from support.lines import (
    append,
    checkpoint,
    clear,
    deliver,
    mail,
    prompt,
    restore,
    revert,
    revert_line,
    usage,
    user,
)
from support.stored_session import StoredSession, apply, fresh

Use = tuple[Mutation, list[bytes]]

ONE, TWO, OTHER = user("one"), user("two"), user("other")

USES: dict[str, tuple[Use, list[Use]]] = {
    "append": (
        (append("k", by="planner"), [ONE]),
        [(append("k"), [OTHER]), (append("k"), [ONE, TWO])],
    ),
    "batch": (
        (append("k"), [ONE, TWO]),
        [(append("k"), [ONE]), (append("k"), [TWO, ONE]), (append("k"), [b"no record"])],
    ),
    "checkpoint": ((checkpoint("k"), []), [(checkpoint("k", add_user_message=True), [])]),
    "checkpoint that is shown": (
        (checkpoint("k", add_user_message=True), []),
        [(checkpoint("k"), [])],
    ),
    "usage": ((usage("k", 7), []), [(usage("k", 8), [])]),
    "prompt": ((prompt("k", "be kind 😀 \n"), []), [(prompt("k", "be quick"), [])]),
    "revert": ((revert("k", 2), []), [(revert("k", 1), [])]),
    "revert to a line": (
        (revert_line("k", "1:1"), []),
        [(revert_line("k", "1:0"), []), (revert("k", 1), [])],
    ),
    "restore": ((restore("k", 0), []), [(restore("k", 1), [])]),
    "mail": (
        (mail("k", 1, replaces="m"), []),
        [(mail("k", 2), []), (mail("k", 1, "another message"), [])],
    ),
    "delivery": ((deliver("k", "m"), []), [(deliver("k", "m2"), [])]),
}


def prepared() -> tuple[StoredSession, Opened]:
    """A session with two checkpoints, one rewrite behind it, and a mail that waits."""
    _, session, opened = fresh()
    apply(opened, append("first"), user("zero"))
    apply(opened, checkpoint("c0"))
    apply(opened, clear("gone"))
    apply(opened, checkpoint("c1"))
    apply(opened, checkpoint("c2"))
    apply(opened, mail("m", 1))
    return session, opened


def stay(session: StoredSession, opened: Opened) -> Opened:
    """The daemon goes on."""
    return opened


def reopen(session: StoredSession, opened: Opened) -> Opened:
    """The daemon ends, and another one opens the session."""
    opened.log.close()
    return session.open()


def rewrite_and_reopen(session: StoredSession, opened: Opened) -> Opened:
    """The records go out of the present file before the daemon ends."""
    apply(opened, clear("rewrite"))
    return reopen(session, opened)


@pytest.mark.parametrize("then", [stay, reopen, rewrite_and_reopen])
@pytest.mark.parametrize("name", USES)
def test_a_used_key_with_other_contents_is_a_conflict(
    name: str, then: Callable[[StoredSession, Opened], Opened]
) -> None:
    (command, data), others = USES[name]
    session, opened = prepared()
    first = apply(opened, command, *data)
    opened = then(session, opened)
    before = session.tree()

    for other, records in others:
        with pytest.raises(Conflict, match=f"'k' was used before with other .* {first.first},"):
            apply(opened, other, *records)
    again = apply(opened, command, *data)

    assert (again.duplicate, again.first, again.head) == (True, first.first, first.head)
    assert session.tree() == before


@pytest.mark.parametrize(
    "written",
    [
        b'{"role":"user","content":"x","_by":"forged","_id":"other"}',
        b'{"role": "user", "content": "spaced"}',
        '{"role":"user","content":"é 😀"}'.encode(),
        rb'{"role":"user","content":"\u00e9 \\ , \",\"_id\":\"x\"}"}',
        b'{"role":"tool","content":null,"tool_call_id":"t","name":"n"}',
    ],
)
def test_same_record_in_another_spelling_is_a_repeat(written: bytes) -> None:
    session, opened = prepared()
    first = apply(opened, append("k", by="planner"), written)
    opened = reopen(session, opened)

    again = apply(opened, append("k", repeat=True), written)

    assert (again.duplicate, again.first) == (True, first.first)
