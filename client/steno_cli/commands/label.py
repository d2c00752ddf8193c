"""`steno label`: the labels of a session."""

import re
from argparse import Namespace
from typing import Final

from steno_cli.arguments import Subcommands, command, session_argument
from steno_cli.connection import connected
from steno_cli.exits import Exit, WrongUsage
from steno_cli.render.output import Output
from steno_present import contract
from steno_present.safe_text import printable

_LABEL: Final = r"[^\x00-\x1f\x7f-\x9f,]{1,64}"
"""The pattern of a valid label."""


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "label", run,
        "+LABEL adds a label, -LABEL removes one, and plain labels replace all. Prints the"
        " resulting labels.",
        example="steno label demo +review -draft\nsteno label demo red green",
        # With `-h`, argparse would take a removed label that begins with h for an option.
        short_help=False,
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument(
        # Without a default, argparse requires the argument.
        "labels", metavar="LABEL", nargs="*", default=[],
        help="a label, optionally with + or - before it",
    )  # fmt: skip
    parser.add_argument("--none", action="store_true", help="remove all labels")
    parser.set_defaults(changes=True, dashed="labels")


def run(options: Namespace, output: Output) -> int:
    """Change the labels of a session, and print the resulting ones."""
    _check_labels(options)
    with connected(options) as client:
        stat = client.stat(options.session)
        wanted = _wanted(stat.labels, options.labels, none=options.none)
        if wanted != stat.labels:
            stat = client.session(options.session).describe(labels=wanted)
    if output.as_json:
        output.document(contract.description(stat))
        return Exit.DONE
    for each in stat.labels:
        output.write(printable(each, one_line=True))
    if not stat.labels:
        output.say(f"the session {stat.session} has no labels")
    return Exit.DONE


def _check_labels(options: Namespace) -> None:
    signed = [each for each in options.labels if each[:1] in {"+", "-"}]
    if signed and len(signed) != len(options.labels):
        raise WrongUsage(
            "plain labels replace all labels, +LABEL and -LABEL change single ones: give either"
            " kind",
            session=options.session,
        )
    for label in [each.removeprefix("+") for each in options.labels if each[:1] != "-"]:
        if re.fullmatch(_LABEL, label) is None:
            raise WrongUsage(
                f"{label[:80]!r} is not a label: use 1 to 64 characters, none of them a comma or a"
                " control character",
                session=options.session,
            )
    if options.none and options.labels:
        raise WrongUsage("--none removes all labels: leave LABEL out", session=options.session)


def _wanted(present: tuple[str, ...], words: list[str], *, none: bool) -> tuple[str, ...]:
    """The new labels of a session, in order and without duplicates."""
    if none:
        return ()
    if not words:
        return present
    if words[0][:1] not in {"+", "-"}:
        return tuple(dict.fromkeys(words))
    gone = {word[1:] for word in words if word[0] == "-"}
    added = [word[1:] for word in words if word[0] == "+"]
    return tuple(dict.fromkeys(each for each in (*present, *added) if each not in gone))
