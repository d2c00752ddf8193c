"""The result of an export in a file or folder: its path, or the command that goes on with it."""

from argparse import Namespace
from pathlib import Path

from steno_cli.render.output import Output


def print_result(
    options: Namespace, output: Output, path: Path, command: str | None = None
) -> None:
    """Print the command that goes on with an export, else its absolute path.

    Args:
        options: of the command.
        output: of the command.
        path: the new file or folder.
        command: the command to type; None if the export is for no agent.
    """
    path = path.absolute()
    if output.as_json:
        shown = {"session": options.session, "format": options.format}
        output.document({**shown, "path": str(path), "command": command})
    else:
        output.write(str(path) if command is None else command)
