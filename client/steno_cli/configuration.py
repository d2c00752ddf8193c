"""The file `config.toml` of a root, read without a daemon, and the masks that it asks for."""

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from steno.local import NotRegular, note_of, process_of, read_regular
from steno_cli.connection import root_here
from steno_protocol import paths
from steno_protocol.errors import BadRequest
from steno_protocol.replies import OptionEntry
from steno_protocol.settings import Settings, Value, read_settings, redaction_table

if TYPE_CHECKING:
    from steno_redact.redactor import Redactor


def read_file(root: Path, environ: dict[str, str]) -> Settings:
    """The settings of `config.toml` and an environment.

    Raises:
        BadRequest: something there is not valid; the message names file, option and remedy.
    """
    path = root / paths.CONFIG
    return read_settings(_text_of(path), str(path), environ)


def _text_of(path: Path) -> str:
    """The contents of the file; empty if there is none.

    Raises:
        BadRequest: it cannot be read.
    """
    try:
        return read_regular(path).decode()
    except FileNotFoundError:
        return ""
    except NotRegular as error:
        raise BadRequest(str(error)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path} cannot be read: {error}") from None


def unread_options(entries: list[OptionEntry], file: Settings) -> list[str]:
    """The options in the file that a running daemon has not read, one line each."""
    return [
        f"config.toml has {shown_value(file.shown(entry.name))} for {entry.name}, and the daemon"
        f" {shown_value(entry.value)}"
        for entry in entries
        if entry.name in file.values
        and not entry.source.startswith("environment")
        # A daemon in the foreground has defaults of its own.
        and not (entry.source.startswith("default") and file.source(entry.name) == "default")
        and file.shown(entry.name) != entry.value
    ]


def remedy_for_unread(root: Path, pid: int, restart: str) -> str:
    """How a daemon reads its file again: a signal reaches one on this machine."""
    note = note_of(root)
    is_here = note is not None and process_of(root, note) == pid
    return f"`kill -HUP {pid}`, or {restart}" if is_here else restart


def shown_value(value: Value) -> str:
    """An option's value as text; `-` for an empty one."""
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.12g}"
        case tuple():
            return ", ".join(value) or "-"
        case _:
            return str(value) or "-"


def redactor_of(options: Namespace, *, is_on: bool = True) -> "Redactor":
    """What masks secrets in what a command prints or sends; nothing unless it is on.

    The patterns are those of the command's root, or of steno alone for one on another machine.

    Raises:
        BadRequest: the file cannot be read, or a pattern in it is not valid; the message names the
            file, the pattern and the remedy.
    """
    # Imported here: to compile the patterns costs a command as much as the rest of its start.
    from steno_redact.patterns import Patterns, patterns_of  # noqa: PLC0415
    from steno_redact.redactor import Redactor  # noqa: PLC0415

    if not is_on:
        return Redactor(Patterns())
    root = root_here(options)
    if root is None:
        return Redactor()
    path = root / paths.CONFIG
    return Redactor(patterns_of(redaction_table(_text_of(path), str(path)), str(path)))
