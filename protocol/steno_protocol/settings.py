"""The options of `config.toml`: what each one means, and how a file and an environment set them.

Pure text: the daemon reads the file before it serves, and `steno config` reads it to say what is in
force. Each error names the file's line, the option, and what to do.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec

from steno_protocol import limits
from steno_protocol._json import is_object
from steno_protocol._settings_values import check_address, check_mount, expanded, read_value
from steno_protocol._toml_lines import read_toml
from steno_protocol.errors import BadRequest

Kind = Literal["level", "bytes", "seconds", "days", "count", "port", "address"]
"""What an option's value is."""

LEVELS: Final = ("debug", "info", "warning", "error")
"""The levels of the log, the most verbose first."""

_MOUNTS: Final = "mounts"


class Option(msgspec.Struct, frozen=True):
    """One option.

    Attributes:
        name: `table.key` in the file.
        kind: what its value is.
        default: its value if it is not set.
        least: the smallest value.
        most: the largest.
        meaning: what it does, and what its special value means.
        is_live: a daemon that reads its configuration again takes it over.
    """

    name: str
    kind: Kind
    default: int | float | str
    meaning: str
    least: float = 0
    most: float = float(limits.COUNT_MAX)
    is_live: bool = True

    @property
    def variable(self) -> str:
        """The environment variable that overrides it."""
        return "STENO_" + self.name.replace(".", "_").upper()

    @property
    def default_text(self) -> str:
        """Its default as it would stand in the file."""
        match self.default:
            case str() as word:
                return f'"{word}"'
            case int() as count if self.kind == "bytes" and count and count % limits.MIB == 0:
                return f'"{count // limits.MIB} MiB"'
            case number:
                return f"{number:g}"

    @property
    def description(self) -> str:
        """Its meaning, and whether a running daemon takes a new value over."""
        return self.meaning + ("" if self.is_live else " (read at the start only)")


OPTIONS: Final = (
    Option(
        "log.level", "level", "info",
        "the level of the log: debug, info, warning or error",
    ),
    Option(
        "log.file_bytes", "bytes", limits.LOG_BYTES_MAX,
        "stenod.log is rotated to stenod.log.1 when it has so many bytes",
        least=limits.LOG_BYTES_LEAST_MAX,
    ),
    Option(
        "log.files", "count", limits.LOG_FILES_MAX,
        "how many rotated logs are kept beside stenod.log",
        least=1, most=100,
    ),
    Option(
        "life.idle_exit_s", "seconds", 0.0,
        "the daemon ends after this long without clients and queued commands; 0 is never",
    ),
    Option(
        "life.session_idle_s", "seconds", limits.SESSION_IDLE_S,
        "the files of an unused session are closed after this long",
        least=1,
    ),
    Option(
        "life.sessions_open", "count", limits.OPEN_SESSIONS_MAX,
        "sessions whose files may be open at a time, four files each; half of `ulimit -n` at most",
        least=1, most=100_000,
    ),
    Option(
        "disk.slow_sync_s", "seconds", limits.SLOW_SYNC_S,
        "a sync that takes longer is logged",
    ),
    Option(
        "disk.trash_days", "days", limits.TRASH_EXPIRY_S / limits.DAY_S,
        "what was deleted lies in the trash for so long",
    ),
    Option(
        "disk.session_bytes", "bytes", 0,
        "the files of one session may take so many bytes; 0 is no quota",
    ),
    Option(
        "disk.root_bytes", "bytes", 0,
        "all sessions of the root may take so many bytes; 0 is no quota",
    ),
    Option(
        "disk.free_bytes", "bytes", limits.FREE_BYTES,
        "commands that add bytes are refused when the disk has less room than this; 0 is no floor",
    ),
    Option(
        "network.listen", "address", "",
        "a tcp:// address for clients on other machines, each with its own key; empty is none",
        is_live=False,
    ),
    Option(
        "metrics.port", "port", 0,
        "/metrics for Prometheus on this port of 127.0.0.1, needs stenod[metrics]; 0 is off",
        most=65_535, is_live=False,
    ),
)  # fmt: skip
"""Every option but the table of mounts."""

_BY_NAME: Final = {option.name: option for option in OPTIONS}

MOUNTS_VARIABLE: Final = "STENO_MOUNTS"
"""Overrides the table of mounts: `name=folder`, several with a colon between them."""


class Settings(msgspec.Struct, frozen=True):
    """What is in force.

    Attributes:
        values: the value of each option by its name.
        mounts: folders outside the root that hold session trees, by name.
        sources: where each value came from, by option; a mount is `mounts.<name>`.
    """

    values: dict[str, int | float | str] = msgspec.field(
        default_factory=lambda: {option.name: option.default for option in OPTIONS}
    )
    mounts: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    sources: dict[str, str] = msgspec.field(default_factory=dict[str, str])

    @property
    def folders(self) -> dict[str, str]:
        """The folder of each mount, its `~` replaced."""
        return {name: expanded(folder) for name, folder in self.mounts.items()}

    def number(self, name: str) -> float:
        """The value of an option that is a number."""
        return float(self.values[name])

    def count(self, name: str) -> int:
        """The value of an option that is a whole number."""
        return int(self.values[name])

    def text(self, name: str) -> str:
        """The value of an option that is a word."""
        return str(self.values[name])

    def source(self, name: str) -> str:
        """Where a value came from: `default`, `environment VARIABLE` or `file:line`."""
        return self.sources.get(name, "default")


def read_settings(text: str, path: str, environ: Mapping[str, str]) -> Settings:
    """What a file and an environment set; the environment overrides the file.

    Args:
        text: of the file, empty when there is none.
        path: of the file, for errors and sources.
        environ: the environment.

    Raises:
        BadRequest: something there is not valid; the message names line, option and remedy.
    """
    settings = Settings()
    _read_file(text, path, settings)
    for option in OPTIONS:
        if given := environ.get(option.variable):
            where = f"environment {option.variable}"
            settings.values[option.name] = _checked(option, given, where)
            settings.sources[option.name] = where
    if given := environ.get(MOUNTS_VARIABLE):
        _read_mounts_variable(given, settings)
    return settings


def mounted_folders(text: str, path: str) -> dict[str, str]:
    """The folders that a file mounts, their `~` replaced, whatever else in it is wrong.

    Raises:
        BadRequest: it is no TOML.
    """
    tables, _ = read_toml(text, path)
    mounts = tables.get(_MOUNTS)
    found: dict[str, str] = {}
    for name, folder in mounts.items() if is_object(mounts) else ():
        with suppress(BadRequest):
            found[name] = expanded(check_mount(name, folder, path))
    return found


def _read_file(text: str, path: str, settings: Settings) -> None:
    if len(text.encode()) > limits.CONFIG_BYTES_MAX:
        raise BadRequest(f"{path}: the file has more than {limits.CONFIG_BYTES_MAX} bytes")
    tables, lines = read_toml(text, path)
    for table, entries in tables.items():
        where = f"{path}:{lines.get((table,), 1)}"
        if not is_object(entries):
            raise BadRequest(f"{where}: {_known(table)}")
        for key, value in entries.items():
            where = f"{path}:{lines.get((table, key), 1)}"
            _take(table, key, value, where, settings)


def _take(table: str, key: str, value: Any, where: str, settings: Settings) -> None:
    """Take one entry of the file over."""
    name = f"{table}.{key}"
    if table == _MOUNTS:
        settings.mounts[key] = check_mount(key, value, where)
    elif name in _BY_NAME:
        settings.values[name] = _checked(_BY_NAME[name], value, where)
    else:
        raise BadRequest(f"{where}: {_known(name)}")
    settings.sources[name] = where


def _known(name: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  # slow to import, needed for typos only

    close = get_close_matches(name, [*_BY_NAME, _MOUNTS], 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"there is no option {name!r}: {hint}`steno config --example` lists all of them"


def _checked(option: Option, value: object, where: str) -> int | float | str:
    if option.kind == "level":
        if value in LEVELS:
            return str(value)
        raise BadRequest(f"{where}: {option.name} has to be one of {', '.join(LEVELS)}")
    if option.kind == "address":
        return check_address(option.name, value, where)
    return read_value(option.name, option.kind, value, (option.least, option.most), where)


def _read_mounts_variable(given: str, settings: Settings) -> None:
    where = f"environment {MOUNTS_VARIABLE}"
    settings.mounts.clear()
    for entry in given.split(":"):
        name, equals, folder = entry.partition("=")
        if not equals:
            raise BadRequest(f"{where}: {entry!r} has to be name=folder, for example kimi=/data")
        settings.mounts[name] = check_mount(name, folder, where)
        settings.sources[f"{_MOUNTS}.{name}"] = where


def example() -> str:
    """A `config.toml` with every option, all of them commented out."""
    parts = ["# config.toml of a steno root; what is commented out has its default."]
    parts += ["", "# Session trees outside the root, addressed as name:session.", "[mounts]"]
    parts += ['# kimi = "~/.kimi/sessions"']
    table = ""
    for option in OPTIONS:
        head, _, key = option.name.partition(".")
        if head != table:
            table = head
            parts += ["", f"[{head}]"]
        parts += [f"# {option.description}", f"# {key} = {option.default_text}"]
    return "\n".join(parts) + "\n"
