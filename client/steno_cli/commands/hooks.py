"""`steno hooks`: hooks of other agents, by which their sessions are in steno as each turn ends."""

import json
import shlex
import subprocess
import sys
from argparse import Namespace
from contextlib import suppress
from typing import Final

from steno_cli.arguments import (
    action,
    argument,
    command_with_actions,
    default,
    flag,
    optional_argument,
)
from steno_cli.connection import connected, own_root, refuse_endpoint, root_of
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_cli.render.printed_commands import own_command
from steno_present import contract
from steno_protocol.errors import StenoError

PROGRAMS: Final = ("claude-code", "codex")
"""The programs with hooks."""

_PLACES: Final = {
    "claude-code": "~/.claude/settings.json, beside the hooks that are there",
    "codex": "~/.codex/config.toml, above the first table",
}

_EVENTS: Final = ("SessionStart", "Stop")
"""The events of Claude Code: a session begins or goes on, and an answer is complete."""

_HOOK_S: Final = 10
"""Seconds that Claude Code waits for the hook, which takes a third of one."""


command_with_actions(
    "hooks",
    "With the hooks, Claude Code and Codex have their sessions followed whenever a turn ends,"
    " also on machines where `steno watch` learns of changes late. They are printed, and no"
    " file of another program is changed.",
    example="steno hooks show claude-code\nsteno hooks show codex",
)

_program_argument = argument(
    "program", metavar="PROGRAM", choices=PROGRAMS, help="claude-code or codex"
)


@action(
    "hooks show", "print the hooks of a program",
    "Prints what belongs into the program's configuration, and on stderr where that is.",
    _program_argument,
    example="steno hooks show codex",
)  # fmt: skip
def show(options: Namespace, output: Output) -> int:
    """Print the configuration of a program."""
    refuse_endpoint(options)
    words = own_command(root_of(options), "hooks", "run", options.program)
    if options.program == "claude-code":
        # A hook that exits with 2 stops the agent: whatever happens, this one does not.
        line = f"{shlex.join(words)} >/dev/null 2>&1 || true"
        hook = [{"hooks": [{"type": "command", "command": line, "timeout": _HOOK_S}]}]
        text = json.dumps({"hooks": dict.fromkeys(_EVENTS, hook)}, indent=2)
    else:
        # A list of JSON texts is one of TOML, too.
        text = f"notify = {json.dumps(words, ensure_ascii=False)}"
    place = _PLACES[options.program]
    document = contract.hook(options.program, text, place)
    return output.answer(document, text, message=f"it belongs into {place}")


@action(
    "hooks run", "follow the session that a hook names",
    "Reads the JSON of the hook, from stdin or as the last argument, and leaves the rest to a"
    " process of its own: the agent does not wait. It prints nothing and always exits with 0,"
    " so that no agent fails because of it; --wait waits, prints and fails as other commands"
    " do.",
    _program_argument,
    flag("--wait", help="wait until the session is followed, and print its id"),
    optional_argument("given", str, "the JSON of the hook (default: stdin)"),
    default(makes_root=True),
    example="steno hooks run codex '{\"thread-id\": \"01234567-89ab-7cde-8f01-23456789abcd\"}'"
    " --wait",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Follow the session that a hook names."""
    if options.wait:
        return _follow(options, output)
    # The agent must not fail; --wait shows what is wrong.
    with suppress(StenoError, OSError, ValueError):
        _leave(options)
    return Exit.DONE


def _follow(options: Namespace, output: Output) -> int:
    from steno_follow.hooks import follow, transcript_of  # noqa: PLC0415

    file = transcript_of(options.program, _given(options))
    if file is None:
        output.say(
            f"the hook names no transcript of {options.program} that is there: nothing is done"
        )
        return Exit.FAILED
    with connected(options) as client:
        for session in follow(client, own_root(client), file):
            output.answer({"session": session}, session)
    return Exit.DONE


def _leave(options: Namespace) -> None:
    """Leave the following to a process that outlives this one and the agent."""
    from steno_follow.hooks import transcript_of  # noqa: PLC0415

    given = _given(options)
    if transcript_of(options.program, given) is None:
        # The file of a new session may come with its first message.
        return
    words = own_command(root_of(options), "hooks", "run", options.program, "--wait")
    child = subprocess.Popen(  # noqa: S603  # its own command
        words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    assert child.stdin is not None
    child.stdin.write(given)
    child.stdin.close()


def _given(options: Namespace) -> bytes:
    """The JSON of the hook."""
    from steno_follow.hooks import read_bounded  # noqa: PLC0415

    if options.given is not None:
        return str(options.given).encode(errors="replace")
    return read_bounded(sys.stdin.buffer)
