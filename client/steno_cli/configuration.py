"""The file `config.toml` of a root, read without a daemon."""

from pathlib import Path

from steno.local import NotRegular, read_regular
from steno_protocol import paths
from steno_protocol.errors import BadRequest
from steno_protocol.replies import OptionEntry
from steno_protocol.settings import Settings, Value, read_settings


def read_file(root: Path, environ: dict[str, str]) -> Settings:
    """The settings of `config.toml` and an environment.

    Raises:
        BadRequest: something there is not valid; the message names file, option and remedy.
    """
    path = root / paths.CONFIG
    return read_settings(text_of_file(path), str(path), environ)


def text_of_file(path: Path) -> str:
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
