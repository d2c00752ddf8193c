"""The file `config.toml` of a root as the command reads it, without a daemon."""

from pathlib import Path

from steno._connect.safe_open import NotRegular, read_regular
from steno_protocol import paths
from steno_protocol.errors import BadRequest
from steno_protocol.replies import OptionEntry
from steno_protocol.settings import Settings, read_settings


def read_file(root: Path, environ: dict[str, str]) -> Settings:
    """What `config.toml` of a root and an environment ask for.

    Raises:
        BadRequest: something there is not valid; the message names line, option and remedy.
    """
    path = root / paths.CONFIG
    try:
        text = read_regular(path).decode()
    except FileNotFoundError:
        text = ""
    except NotRegular as error:
        raise BadRequest(str(error)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path} cannot be read: {error}") from None
    return read_settings(text, str(path), environ)


def unread(entries: list[OptionEntry], file: Settings) -> list[str]:
    """What the file says and a running daemon has not taken over, in words."""
    return [
        f"config.toml says {shown_value(file.values[entry.name])} for {entry.name}, and the daemon"
        f" has {shown_value(entry.value)}"
        for entry in entries
        if entry.name in file.values
        and not entry.source.startswith("environment")
        and file.values[entry.name] != entry.value
    ]


def shown_value(value: float | str) -> str:
    """An option's value as text; `-` for an empty one."""
    return f"{value:.12g}" if isinstance(value, float) else str(value) or "-"
