"""The right that each command needs."""

from steno_protocol import commands
from steno_protocol.commands import command_name
from steno_protocol.rights import Right, right_needed


def test_every_command_needs_a_right_and_mutations_need_write() -> None:
    needed = {name: right_needed(kind) for name, kind in commands.COMMANDS.items()}
    assert {name for name, right in needed.items() if right is Right.ADMIN} >= {"delete", "drain"}
    for name, kind in commands.COMMANDS.items():
        assert command_name(kind) == name
        if issubclass(kind, commands.Mutation):
            assert needed[name] >= Right.WRITE
