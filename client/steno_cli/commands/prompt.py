"""`steno prompt`: the system prompt of a session."""

from argparse import Namespace

from steno_cli.arguments import (
    Subcommands,
    change_options,
    command,
    create_options,
    optional_argument,
    session_argument,
)
from steno_cli.changes import change
from steno_cli.connection import connected
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_cli.stdin import text_or_stdin
from steno_present.safe_text import printable
from steno_protocol.records import system_prompt_record


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "prompt", run,
        "With TEXT (or - for stdin), sets the system prompt; a session with records is rewritten."
        " Without, prints the current one.",
        example="steno prompt demo - < prompt.md",
    )  # fmt: skip
    session_argument(parser)
    optional_argument(parser, "text", str, "the prompt, or - for stdin")
    create_options(parser)
    change_options(parser, given="text")


def run(options: Namespace, output: Output) -> int:
    """Set the system prompt, or print the present one."""
    if options.text is not None:
        text = text_or_stdin(options, "text")
        return change(
            options,
            output,
            lambda session, how: session.write_system_prompt(text, **how),
            lambda: system_prompt_record(text),
        )
    with connected(options, output=output) as client:
        state = client.session(options.session).history_at()
    if output.as_json:
        output.document({"session": options.session, "system_prompt": state.system_prompt})
    elif state.system_prompt is None:
        output.say(f"the session {options.session} has no system prompt: give one as TEXT")
    else:
        output.write(printable(state.system_prompt) if output.is_terminal else state.system_prompt)
    return Exit.DONE
