"""`steno usage`: the token counts of a session."""

from argparse import Namespace

from steno_cli.arguments import (
    Subcommands,
    change_options,
    command,
    optional_argument,
    session_argument,
    whole_number,
)
from steno_cli.changes import change
from steno_cli.connection import connected
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_present import contract
from steno_present.wording import count, number


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "usage", run,
        "With TOKENS, appends a token count; without, prints the current counts.",
        example="steno usage demo 1472",
    )  # fmt: skip
    session_argument(parser)
    optional_argument(parser, "tokens", whole_number, "tokens in the context")
    change_options(parser, given="tokens")


def run(options: Namespace, output: Output) -> int:
    """Append a token count, or print the recorded ones."""
    tokens = options.tokens
    if tokens is not None:
        return change(
            options, output, lambda session, how: session.update_token_count(tokens, **how)
        )
    with connected(options, output=output) as client:
        state = client.session(options.session).history_at()
    if output.as_json:
        output.document(contract.usage(options.session, state))
        return Exit.DONE
    for entry in state.usage_history:
        output.write(f"{entry.cursor}  {entry.token_count}")
    pending = state.token_count_with_pending - state.token_count
    output.say(f"{count(state.token_count, 'token')}, and about {number(pending)} not yet counted")
    return Exit.DONE
