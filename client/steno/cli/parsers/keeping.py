"""The command lines for what a person keeps sessions in order with: titles, labels, the archive."""

import argparse

from steno.cli.arguments import (
    Subcommands,
    command,
    key,
    optional_argument,
    session_argument,
    title_text,
)


def add_title(commands: Subcommands) -> None:
    parser = command(
        commands, "title", "organize:title", "show the title of a session, or give it one",
        "An empty TEXT takes the title away.",
        example="steno title demo 'What is in this folder?'",
    )  # fmt: skip
    session_argument(parser)
    optional_argument(parser, "text", title_text, "one line (default: show the present one)")
    parser.set_defaults(changes="text")


def add_label(commands: Subcommands) -> None:
    parser = command(
        commands, "label", "organize:label", "show the labels of a session, or change them",
        "+LABEL adds one and -LABEL takes one away; plain ones replace all there are. Prints the"
        " labels that the session has then.",
        example="steno label demo +review -draft\nsteno label demo red green",
        # `-h` would swallow a label that is to go and begins with h.
        short_help=False,
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument(
        # Without a default argparse would call it required.
        "labels", metavar="LABEL", nargs="*", default=[],
        help="a word, or one with + or - before it",
    )  # fmt: skip
    parser.add_argument("--none", action="store_true", help="take all of them away")
    parser.set_defaults(changes=True, dashed="labels")


def add_archive(commands: Subcommands) -> None:
    parser = command(
        commands, "archive", "organize:archive", "let `steno sessions` leave a session out",
        "It can be read, written and found by its id as before.",
        example="steno archive demo",
    )  # fmt: skip
    _only_session(parser)


def add_unarchive(commands: Subcommands) -> None:
    parser = command(
        commands, "unarchive", "organize:unarchive", "list an archived session again",
        example="steno unarchive demo",
    )  # fmt: skip
    _only_session(parser)


def add_delete(commands: Subcommands) -> None:
    parser = command(
        commands, "delete", "organize:delete", "move a session to the trash",
        "The sessions below it go with it. What only one id begins with will do without --key."
        " Asks before it does so when stdin is a terminal. Prints"
        " the folder that the files lie in from then on, and when it expires.",
        example="steno delete demo --yes",
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    key(parser)


def _only_session(parser: argparse.ArgumentParser) -> None:
    session_argument(parser)
    parser.set_defaults(changes=True)
