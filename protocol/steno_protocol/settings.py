"""Options of `config.toml`, and their values from file and environment.

The daemon reads the file before it serves, and `steno config` reads it to show the options in
force. Each error names the file, the option and the remedy.
"""

import math
import posixpath
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec

from steno_protocol import limits
from steno_protocol._json import is_array, is_number, is_object
from steno_protocol.errors import BadRequest
from steno_protocol.spelling import close_spellings

Kind = Literal[
    "level", "bytes", "seconds", "days", "count", "port", "address",
    "name", "path", "addresses", "endpoint", "switch",
]  # fmt: skip
"""The type of an option's value."""

Value = bool | int | float | str | tuple[str, ...]
"""The value of an option; only `addresses` has several."""

LEVELS: Final = ("debug", "info", "warning", "error")
"""The levels of the log, the most verbose first."""

_MOUNTS: Final = "mounts"
_COMPRESSED_DAYS: Final = (
    "retention.generations_compressed_days", "retention.streams_compressed_days"
)  # fmt: skip
_REDACT: Final = "redact"
_REDACTION: Final = "redaction"
"""Another name of the table."""

REDACT_AT: Final = "at"
"""The entry that says where a client masks; no pattern can have this name."""

_PLACES: Final = ("show", "write")

REDACT_SESSIONS: Final = "sessions"
"""The entry with the sessions that a client masks before it writes; no pattern either."""

_SESSIONS: Final = re.compile(rf"[A-Za-z0-9_.@+=,:/*-]{{1,{limits.SESSION_ID_CHARS_MAX}}}")
"""An id of a session; `*` stands for any characters."""

Redact = str | bool | tuple[str, ...]
"""An entry of the table of redaction."""

_MOUNT_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")
_ADDRESS: Final = re.compile(r"tcp://(\*|[A-Za-z0-9_.-]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5}|\*)")
_ENDPOINT: Final = re.compile(
    r"tcp://([A-Za-z0-9_.-]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}|ipc:///[^\0]+"
)
_CLUSTER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_HOST: Final = r"([A-Za-z0-9_.-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?/?"
_URL: Final = re.compile(rf"((nats|tls)://([^\s/@]+@)?|https?://){_HOST}")
_PASSWORD: Final = re.compile(r"(?<=://)[^@/]+(?=@)")
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kKMGT]i?)?B?")
_UNITS: Final = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "ki": 2**10, "Ki": 2**10, "K": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip

_EXPECTED: Final = {
    "bytes": 'a number of bytes, or text such as "10 GiB"',
    "seconds": "a number of seconds",
    "days": "a number of days",
    "count": "a whole number",
    "port": "the number of a port",
    "name": "up to 32 letters, digits, - and _, or empty",
    "path": "the absolute path of a file, or empty",
    "endpoint": 'an address that other hosts reach, such as "tcp://10.0.0.5:7117", or empty',
    "switch": "true or false",
}
_PORTS: Final = {"nats": 4222, "http": 8222}
"""The ports of an example."""

_WHOLE: Final = {"bytes", "count", "port"}
_QUOTED_CHARS_MAX: Final = 80
"""Characters of a value that an error message quotes: enough to find it again."""


class Option(msgspec.Struct, frozen=True):
    """One option.

    Attributes:
        name: `table.key` in the file.
        kind: the type of its value.
        default: its value if it is not set.
        least: the smallest value.
        most: the largest value.
        meaning: its effect, and the meaning of its special value.
        is_live: a daemon that reloads its configuration applies a new value.
        schemes: how the addresses of `addresses` begin.
    """

    name: str
    kind: Kind
    default: Value
    meaning: str
    least: float = 0
    most: float = float(limits.COUNT_MAX)
    is_live: bool = True
    schemes: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """The environment variable that overrides it."""
        return "STENO_" + self.name.replace(".", "_").upper()

    @property
    def default_text(self) -> str:
        """Its default as the file spells it."""
        match self.default:
            case str() as word:
                return f'"{word}"'
            case tuple():
                return "[]"
            case bool() as is_on:
                return str(is_on).lower()
            case int() as count if self.kind == "bytes" and count and count % limits.MIB == 0:
                return f'"{count // limits.MIB} MiB"'
            case number:
                return f"{number:g}"

    @property
    def description(self) -> str:
        """Its meaning, and whether a new value needs a restart."""
        return self.meaning + ("" if self.is_live else " (read at the start only)")


OPTIONS: Final = (
    Option(
        "log.level", "level", "info",
        "the level of the log: debug, info, warning or error",
    ),
    Option(
        "log.file_bytes", "bytes", limits.LOG_BYTES_MAX,
        "size at which stenod.log is rotated to stenod.log.1",
        least=limits.LOG_BYTES_LEAST_MAX,
    ),
    Option(
        "log.files", "count", limits.LOG_FILES_MAX,
        "number of rotated logs that are kept beside stenod.log",
        least=1, most=100,
    ),
    Option(
        "life.idle_exit_s", "seconds", limits.IDLE_EXIT_S,
        "time without clients and unsynced bytes after which the daemon exits; 0 is never, the"
        " default in the foreground, with network.listen and with metrics.port",
    ),
    Option(
        "life.session_idle_s", "seconds", limits.SESSION_IDLE_S,
        "time after which the files of an unused session are closed",
        least=1,
    ),
    Option(
        "life.sessions_open", "count", limits.OPEN_SESSIONS_MAX,
        "sessions with open files at a time, four files each; half of `ulimit -n` at most",
        least=1, most=100_000,
    ),
    Option(
        "disk.slow_sync_s", "seconds", limits.SLOW_SYNC_S,
        "duration above which a sync is logged as slow",
    ),
    Option(
        "disk.trash_days", "days", limits.TRASH_EXPIRY_S / limits.DAY_S,
        "time for which deleted sessions stay in the trash",
    ),
    Option(
        "disk.session_bytes", "bytes", 0,
        "largest size of one session's files; 0 is no quota",
    ),
    Option(
        "disk.root_bytes", "bytes", 0,
        "largest size of all sessions of the root; 0 is no quota",
    ),
    Option(
        "disk.free_bytes", "bytes", limits.FREE_BYTES,
        "free space below which commands that add bytes are refused; 0 is no floor",
    ),
    Option(
        "retention.generations_days", "days", 0,
        "days after which a past generation is removed; 0 is no rule",
    ),
    Option(
        "retention.generations_number", "count", 0,
        "newest past generations of a session that stay; 0 is no rule",
    ),
    Option(
        "retention.generations_bytes", "bytes", 0,
        "size of a session's past generations, of which the oldest go; 0 is no rule",
    ),
    Option(
        _COMPRESSED_DAYS[0], "days", 0,
        "days after which a past generation is compressed; 0 is no rule",
    ),
    Option(
        _COMPRESSED_DAYS[1], "days", 0,
        "days without a change after which a stream is compressed; 0 is no rule",
    ),
    Option(
        "retention.sessions_days", "days", 0,
        "days without a change after which a session goes to the trash; 0 is no rule",
    ),
    Option(
        "retention.sessions_number", "count", 0,
        "most recently changed sessions that stay, the others go to the trash; 0 is no rule",
    ),
    Option(
        "retention.sessions_bytes", "bytes", 0,
        "size of all sessions, of which the coldest go to the trash; 0 is no rule",
    ),
    Option(
        "retention.trash_number", "count", 0,
        "latest deleted sessions that stay in the trash; 0 is no rule",
    ),
    Option(
        "retention.trash_bytes", "bytes", 0,
        "size of the trash, of which the oldest sessions are removed; 0 is no rule",
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
    Option(
        "replication.cluster", "name", "",
        "the cluster whose daemons share their sessions, needs stenod[nats]; empty is none",
        is_live=False,
    ),
    Option(
        "replication.servers", "addresses", (),
        "its NATS servers: nats:// or tls:// addresses",
        is_live=False, schemes=("nats", "tls"),
    ),
    Option(
        "replication.monitors", "addresses", (),
        "the servers' monitoring, http:// addresses: it proves that they sync",
        is_live=False, schemes=("http", "https"),
    ),
    Option(
        "replication.advertise", "endpoint", "",
        "where clients of other hosts reach this daemon; empty is its socket",
        is_live=False,
    ),
    Option(
        "replication.credentials", "path", "",
        "a .creds file for the servers",
        is_live=False,
    ),
    Option(
        "replication.tls_ca", "path", "",
        "the certificates that sign the servers'; empty is those of the system",
        is_live=False,
    ),
    Option(
        "replication.tls_cert", "path", "",
        "this daemon's certificate for the servers",
        is_live=False,
    ),
    Option(
        "replication.tls_key", "path", "",
        "the key of tls_cert",
        is_live=False,
    ),
    Option(
        "replication.replicas", "count", 3,
        "servers that keep each record",
        least=1, most=5, is_live=False,
    ),
    Option(
        "replication.dead_s", "seconds", 2.5,
        "time after which another daemon may take over the sessions of a silent one",
        least=0.5, most=600, is_live=False,
    ),
    Option(
        "replication.publish_s", "seconds", 15.0,
        "time for which a record is sent again; then its outcome is unknown",
        # More than the 4 to 9 s after which the servers replace a lost leader, and far less than
        # the two minutes for which they know what was sent.
        least=1, most=60, is_live=False,
    ),
    Option(
        "replication.lazy_sync", "switch", False,
        "accept an ack that a power cut may void: lazy servers, or fewer than 3 replicas",
        is_live=False,
    ),
)  # fmt: skip
"""Every option except the tables of mounts and of redaction."""

_BY_NAME: Final = {option.name: option for option in OPTIONS}

MOUNTS_VARIABLE: Final = "STENO_MOUNTS"
"""Overrides the table of mounts: `name=folder` entries, separated by colons."""


class Settings(msgspec.Struct, frozen=True):
    """The options in force.

    Attributes:
        values: the value of each option by its name.
        mounts: folders outside the root that hold session trees, by name.
        redact: what a client masks, by name: the expression of a pattern, or whether a built-in one
            is on; `at`, where it does; and `sessions`, which it masks before it writes. The daemon
            never masks.
        sources: the source of each value by option; a mount is `mounts.<name>`.
    """

    values: dict[str, Value] = msgspec.field(
        default_factory=lambda: {option.name: option.default for option in OPTIONS}
    )
    mounts: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    redact: dict[str, Redact] = msgspec.field(default_factory=dict[str, Redact])
    sources: dict[str, str] = msgspec.field(default_factory=dict[str, str])

    @property
    def folders(self) -> dict[str, str]:
        """The folder of each mount, its `~` replaced."""
        return {name: _expanded(folder) for name, folder in self.mounts.items()}

    def number(self, name: str) -> float:
        """Return the value of a numeric option."""
        value = self.values[name]
        assert isinstance(value, int | float)
        return float(value)

    def count(self, name: str) -> int:
        """Return the value of an option that is a whole number."""
        return int(self.number(name))

    def text(self, name: str) -> str:
        """Return the value of a textual option."""
        return str(self.values[name])

    def is_on(self, name: str) -> bool:
        """Return whether a switch is on."""
        return self.values[name] is True

    def path(self, name: str) -> str:
        """Return the path that an option names, its `~` replaced; empty for none."""
        return _expanded(self.text(name))

    def addresses(self, name: str) -> tuple[str, ...]:
        """Return the addresses of an option."""
        value = self.values[name]
        assert isinstance(value, tuple)
        return value

    def shown(self, name: str) -> Value:
        """Return the value of an option as it may be shown: without passwords."""
        match self.values[name]:
            case tuple() as addresses:
                return tuple(_PASSWORD.sub("***", address) for address in addresses)
            case value:
                return value

    def source(self, name: str) -> str:
        """Return the source of a value: `default`, `environment VARIABLE` or the file's path."""
        return self.sources.get(name, "default")


def read_settings(text: str, path: str, environ: Mapping[str, str]) -> Settings:
    """Read the options that a file and an environment set; the environment overrides the file.

    Args:
        text: the contents of the file, empty when there is none.
        path: the path of the file, for errors and sources.
        environ: the environment.

    Raises:
        BadRequest: a value is not valid; the message names file, option and remedy.
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
    _check_replication(settings)
    check_retention(settings)
    return settings


def _check_replication(settings: Settings) -> None:
    """Refuse a cluster without what it needs."""
    needs = {
        "replication.cluster": "replication.servers",
        "replication.servers": "replication.cluster",
        "replication.tls_cert": "replication.tls_key",
        "replication.tls_key": "replication.tls_cert",
    }
    for name, other in needs.items():
        if settings.values[name] and not settings.values[other]:
            raise BadRequest(
                f"{settings.source(name)}: {name} is set, and needs {other}: set both or none"
            )


def check_retention(settings: Settings) -> None:
    """Refuse the rules that a daemon of a cluster cannot follow.

    Another daemon may use a session that is cold here, and the journal has plain files.

    Raises:
        BadRequest: one of them is set; the message names file, option and remedy.
    """
    if not settings.values["replication.cluster"]:
        return
    chosen = next((name for name in _COMPRESSED_DAYS if settings.values[name]), None)
    if chosen is not None:
        raise BadRequest(
            f"{settings.source(chosen)}: {chosen} is set, and a cluster shares plain files: remove"
            " it"
        )
    rules = [name for name in _BY_NAME if name.startswith("retention.sessions_")]
    chosen = next((name for name in rules if settings.values[name]), None)
    if chosen is not None:
        raise BadRequest(
            f"{settings.source(chosen)}: {chosen} is set, and a daemon of a cluster does not know"
            " how cold the sessions of the others are: remove it, and delete sessions by hand"
        )


def mounted_folders(text: str, path: str) -> dict[str, str]:
    """Return the folders that a file mounts, their `~` replaced; other errors in it are ignored.

    Raises:
        BadRequest: the file is not TOML.
    """
    mounts = _tables(text, path).get(_MOUNTS)
    found: dict[str, str] = {}
    for name, folder in mounts.items() if is_object(mounts) else ():
        with suppress(BadRequest):
            found[name] = _expanded(_checked_mount(name, folder, path))
    return found


def redaction_table(text: str, path: str) -> dict[str, Redact]:
    """Return the table of redaction of a file; errors in other tables are ignored.

    Raises:
        BadRequest: the file is not TOML, or an entry of the table is not valid.
    """
    settings = Settings()
    tables = _tables(text, path)
    for table in (_REDACT, _REDACTION):
        entries = tables.get(table, {})
        if not is_object(entries):
            raise BadRequest(f"{path}: {_unknown(table)}")
        for name, value in entries.items():
            _read_pattern(name, value, path, settings)
    return settings.redact


def _read_file(text: str, path: str, settings: Settings) -> None:
    if len(text.encode()) > limits.CONFIG_BYTES_MAX:
        raise BadRequest(f"{path}: the file has more than {limits.CONFIG_BYTES_MAX} bytes")
    for table, entries in _tables(text, path).items():
        if not is_object(entries):
            raise BadRequest(f"{path}: {_unknown(table)}")
        for key, value in entries.items():
            _read_entry(table, key, value, path, settings)


def _tables(text: str, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadRequest(f"{path} is not TOML: {error}") from None
    except (ValueError, RecursionError):
        raise BadRequest(
            f"{path}: a number has too many digits, or tables or arrays are nested too deeply: no"
            " option needs that"
        ) from None


def _read_entry(table: str, key: str, value: Any, path: str, settings: Settings) -> None:
    name = f"{table}.{key}"
    if table == _MOUNTS:
        settings.mounts[key] = _checked_mount(key, value, path)
    elif table in {_REDACT, _REDACTION}:
        _read_pattern(key, value, path, settings)
    elif name in _BY_NAME:
        settings.values[name] = _checked(_BY_NAME[name], value, path)
    else:
        raise BadRequest(f"{path}: {_unknown(name)}")
    settings.sources[name] = path


def _unknown(name: str) -> str:
    close = close_spellings(name, [*_BY_NAME, _MOUNTS, _REDACT], 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"there is no option {name!r}: {hint}`steno config --example` lists all of them"


def _checked(option: Option, value: object, where: str) -> Value:
    match option.kind:
        case "level":
            if value in LEVELS:
                return str(value)
            raise BadRequest(f"{where}: {option.name} has to be one of {', '.join(LEVELS)}")
        case "address":
            if isinstance(value, str) and (not value or _ADDRESS.fullmatch(value)):
                return value
            raise BadRequest(
                f'{where}: {option.name} has to be an address such as "tcp://127.0.0.1:7373", or'
                " empty"
            )
        case "addresses":
            return _checked_addresses(option, value, where)
        case "name" | "path" | "endpoint" | "switch":
            return _checked_word(option, value, where)
        case _:
            return _checked_number(option, value, where)


def _checked_word(option: Option, value: object, where: str) -> str | bool:
    match option.kind, value:
        case "switch", bool():
            return value
        case "switch", "true" | "false":
            return value == "true"
        case "name", str() if not value or _CLUSTER_NAME.fullmatch(value):
            return value
        case "path", str() if not value or (value.startswith(("/", "~")) and "\0" not in value):
            return value
        case "endpoint", str() if not value or _ENDPOINT.fullmatch(value):
            return value
        case _:
            raise BadRequest(
                f"{where}: {option.name} has to be {_EXPECTED[option.kind]}, not {_quoted(value)}"
            )


def _checked_addresses(option: Option, value: object, where: str) -> tuple[str, ...]:
    """Return addresses, which the environment separates by commas."""
    given = value.split(",") if isinstance(value, str) else value
    if not is_array(given) or len(given) > limits.ADDRESSES_MAX:
        raise BadRequest(
            f"{where}: {option.name} has to be an array of up to {limits.ADDRESSES_MAX} addresses"
        )
    for address in given:
        if not _is_address(option, address):
            raise BadRequest(
                f"{where}: {option.name} has to be an array of addresses such as"
                f' ["{option.schemes[0]}://10.0.0.1:{_PORTS[option.schemes[0]]}"]'
            )
    return tuple(str(address) for address in given)


def _is_address(option: Option, address: object) -> bool:
    if not isinstance(address, str) or _URL.fullmatch(address) is None:
        return False
    return address.partition(":")[0] in option.schemes


def _checked_number(option: Option, value: object, where: str) -> int | float:
    kind = option.kind
    number = _number(kind, value)
    if number is None or (kind in _WHOLE and number != int(number)):
        raise BadRequest(
            f"{where}: {option.name} has to be {_EXPECTED[kind]}, not {_quoted(value)}"
        )
    if not option.least <= number <= option.most:
        allowed = (
            f"{option.least:g} or more" if number < option.least else f"{option.most:.12g} or less"
        )
        raise BadRequest(f"{where}: {option.name} is {number:g}, but has to be {allowed}")
    return int(number) if kind in _WHOLE else number


def _number(kind: str, value: object) -> float | None:
    """Return the finite number that a value is or spells, else None."""
    try:
        number = _spelled(kind, value) if isinstance(value, str) else value
        if is_number(number) and math.isfinite(number):
            return number
    except (ValueError, OverflowError):
        # No number, or a whole one beyond all floats.
        pass
    return None


def _spelled(kind: str, text: str) -> float | None:
    if kind != "bytes":
        return float(text)
    found = _SIZE.fullmatch(text.strip())
    return float(found[1]) * _UNITS[found[2] or ""] if found is not None else None


def _quoted(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        # TOML can spell numbers and tables that are too large for Python to print.
        return "what stands there"
    return text if len(text) <= _QUOTED_CHARS_MAX else f"{text[:_QUOTED_CHARS_MAX]}..."


def _read_mounts_variable(given: str, settings: Settings) -> None:
    where = f"environment {MOUNTS_VARIABLE}"
    settings.mounts.clear()
    for entry in given.split(":"):
        name, equals, folder = entry.partition("=")
        if not equals:
            raise BadRequest(f"{where}: {entry!r} has to be name=folder, for example kimi=/data")
        settings.mounts[name] = _checked_mount(name, folder, where)
        settings.sources[f"{_MOUNTS}.{name}"] = where


def _checked_mount(name: str, folder: object, where: str) -> str:
    """Return the folder of a mount, its `~` not yet replaced, or raise BadRequest."""
    if _MOUNT_NAME.fullmatch(name) is None:
        raise BadRequest(
            f"{where}: {name!r} cannot name a mount: use a lower-case letter, then letters, digits"
            " and -, 32 at most"
        )
    if not isinstance(folder, str) or not folder.startswith(("/", "~")):
        raise BadRequest(
            f'{where}: the mount {name!r} needs an absolute folder, for example "~/.kimi/sessions"'
        )
    if "\0" in folder:
        raise BadRequest(f"{where}: the folder of the mount {name!r} holds a NUL: no path may")
    if _expanded(folder).startswith("~"):
        user = folder.partition("/")[0]
        raise BadRequest(
            f"{where}: the mount {name!r} begins with {user}, and there is no such user here: name"
            " the folder from / on"
        )
    return folder


def _read_pattern(name: str, value: object, where: str, settings: Settings) -> None:
    """Read an entry of the table of redaction; the client compiles the expression."""
    if name == REDACT_AT:
        if value not in _PLACES:
            raise BadRequest(
                f'{where}: redact.at has to be "show" (a client masks what it shows or sends) or'
                ' "write" (also what it writes)'
            )
        settings.redact[name] = str(value)
        return
    if name == REDACT_SESSIONS:
        settings.redact[name] = _session_patterns(value, where)
        return
    if _MOUNT_NAME.fullmatch(name) is None:
        raise BadRequest(
            f"{where}: {name!r} cannot name a pattern of redaction: use a lower-case letter, then"
            " letters, digits and -, 32 at most"
        )
    if len(settings.redact) >= limits.REDACT_PATTERNS_MAX:
        raise BadRequest(
            f"{where}: the table redact has more than {limits.REDACT_PATTERNS_MAX} entries: join"
            " some of the patterns with |"
        )
    if isinstance(value, bool) or (
        isinstance(value, str) and 0 < len(value) <= limits.REDACT_CHARS_MAX
    ):
        settings.redact[name] = value
        return
    raise BadRequest(
        f"{where}: redact.{name} has to be a regular expression of up to"
        f" {limits.REDACT_CHARS_MAX} characters, or true or false for a built-in pattern"
    )


def _session_patterns(value: object, where: str) -> tuple[str, ...]:
    if is_array(value) and len(value) <= limits.REDACT_SESSIONS_MAX:
        patterns = [each for each in value if isinstance(each, str) and _SESSIONS.fullmatch(each)]
        if len(patterns) == len(value):
            return tuple(patterns)
    raise BadRequest(
        f"{where}: redact.{REDACT_SESSIONS} has to be a list of up to"
        f' {limits.REDACT_SESSIONS_MAX} session ids such as "planner" or "team/*"'
    )


def _expanded(folder: str) -> str:
    """Replace the `~` of a folder; it stays if no user of that name is known."""
    return posixpath.expanduser(folder)


def example() -> str:
    """Return a `config.toml` with every option, all of them commented out."""
    parts = ["# config.toml of a steno root; a commented line shows the default."]
    parts += ["", "# Session trees outside the root, addressed as name:session.", "[mounts]"]
    parts += ['# kimi = "~/.kimi/sessions"']
    parts += ["", "# What the viewer and exports mask; `steno redact` shows what a pattern finds."]
    parts += ["[redact]", '# at = "show"', '# sessions = ["planner", "team/*"]']
    parts += ["# ticket = 'TICKET-[0-9]{6}'", "# bearer-token = false"]
    table = ""
    for option in OPTIONS:
        head, _, key = option.name.partition(".")
        if head != table:
            table = head
            parts += ["", f"[{head}]"]
        parts += [f"# {option.description}", f"# {key} = {option.default_text}"]
    return "\n".join(parts) + "\n"
