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
        commands, "title", "organize:title", "show or set the title of a session",
        "An empty TEXT removes the title.",
        example="steno title demo 'What is in this folder?'",
    )  # fmt: skip
    session_argument(parser)
    optional_argument(
        parser, "text", title_text, "the title, one line (default: show the current one)"
    )
    parser.set_defaults(changes="text")


def add_label(commands: Subcommands) -> None:
    parser = command(
        commands, "label", "organize:label", "show or change the labels of a session",
        "+LABEL adds a label, -LABEL removes one, and plain labels replace all. Prints the"
        " resulting labels.",
        example="steno label demo +review -draft\nsteno label demo red green",
        # `-h` would swallow a label that is to go and begins with h.
        short_help=False,
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument(
        # Without a default argparse would call it required.
        "labels", metavar="LABEL", nargs="*", default=[],
        help="a label, optionally with + or - before it",
    )  # fmt: skip
    parser.add_argument("--none", action="store_true", help="remove all labels")
    parser.set_defaults(changes=True, dashed="labels")


def add_archive(commands: Subcommands) -> None:
    parser = command(
        commands, "archive", "organize:archive", "hide a session from `steno sessions`",
        "The session can still be read and written by its id.",
        example="steno archive demo",
    )  # fmt: skip
    _only_session(parser)


def add_unarchive(commands: Subcommands) -> None:
    parser = command(
        commands, "unarchive", "organize:unarchive",
        "show an archived session in `steno sessions` again",
        example="steno unarchive demo",
    )  # fmt: skip
    _only_session(parser)


def add_delete(commands: Subcommands) -> None:
    parser = command(
        commands, "delete", "organize:delete", "move a session to the trash",
        "Also deletes the sessions below it. A unique prefix is enough unless --key is given. Asks"
        " for confirmation on a terminal. Prints the trash folder and its time of expiry.",
        example="steno delete demo --yes",
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    key(parser)


def _only_session(parser: argparse.ArgumentParser) -> None:
    session_argument(parser)
    parser.set_defaults(changes=True)
