"""File names, and the rules of session ids, keys and client names."""

import posixpath
import re
import stat
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from steno_protocol import limits
from steno_protocol.errors import BadRequest, Unauthorized

CONTEXT: Final = "context.jsonl"
WIRE: Final = "wire.jsonl"
STREAM: Final = "stream-"
TIMELINE: Final = "timeline.jsonl"
STATE: Final = "state.json"
STATE_NEW: Final = "state.json.new"
UPLOADS: Final = "uploads"
FORKS: Final = ".forks"
IMPORTS: Final = ".imports"
PREPARED: Final = "session"
TRASH: Final = ".trash"
MOVES: Final = ".moves"
QUARANTINE: Final = "quarantine"
SESSIONS: Final = "sessions"
LOCK: Final = "stenod.lock"
START_LOCK: Final = "start.lock"
SOCKET: Final = "stenod.sock"
LOG: Final = "stenod.log"
PORT: Final = "stenod.port"
HOST: Final = "stenod.host"
CLUSTER_STREAMS: Final = "stenod.streams"
CLUSTER_REQUEST: Final = "stenod.join"
CONFIG: Final = "config.toml"
MARK: Final = "context.mark"
JOURNAL_MARK: Final = "journal.mark"
REWRITE: Final = "context.jsonl.new"

BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
"""A file with an identifier of this machine and its boot."""

UUID_CHARS: Final = 36

_PORT_MAX: Final = 0xFFFF

_TEMPORARY = "/tmp"  # noqa: S108 (the socket there is in a folder of mode 0700)

_SEGMENT = r"[A-Za-z0-9_][A-Za-z0-9_.@+=,-]*"
_SESSION = re.compile(rf"(?:([a-z][a-z0-9-]{{0,31}}):)?({_SEGMENT}(?:/{_SEGMENT})*)", re.ASCII)
_OWN_FILE = re.compile(
    r"quarantine|(?:context|wire|timeline|state)\..*|(?:journal|stream-.*)\.mark(?:\.new)?"
    r"|.*\.jsonl|(?:context_[1-9][0-9]{0,8}|stream-[a-z0-9._-]{1,64})\.jsonl\.zst"
)
_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_.@:/+-]{1,64}", re.ASCII)
# Compiled on first use: most clients have no endpoint.
_ENDPOINT = r"(?s:ipc://.+)|tcp://(?:[A-Za-z0-9_.-]+|\[[0-9A-Za-z:.%]+\]):(?P<port>[0-9]{1,5})"
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_STREAM_NAME = re.compile(r"[a-z0-9._-]{1,64}", re.ASCII)
_STREAM_FILE = re.compile(r"stream-([a-z0-9._-]{1,64})\.jsonl", re.ASCII)
_DELETED_STREAM = re.compile(
    r"stream-([a-z0-9._-]{1,64})~([1-9][0-9]{0,8})~([0-9]{1,12})~([A-Za-z0-9_-]{1,64})\.jsonl",
    re.ASCII,
)
_SCRATCH_STREAM = re.compile(r"rewrite-[0-9a-f]{16}", re.ASCII)
_COMPRESSED: Final = ".zst"
_GENERATION = re.compile(r"context_([1-9][0-9]{0,8})\.jsonl(?:\.zst)?", re.ASCII)


class DeletedStream(msgspec.Struct, frozen=True):
    """The name of the file of a deleted stream.

    Attributes:
        stream: the stream's name.
        number: the number of its deletion, counted from 1: the generation that follows the file's.
        at_s: Unix time of the deletion in seconds.
        key: the idempotency key of the deletion.
    """

    stream: str
    number: int
    at_s: int
    key: str

    @property
    def file(self) -> str:
        """The name as text.

        >>> DeletedStream("notes", 1, 1764000000, "k1").file
        'stream-notes~1~1764000000~k1.jsonl'
        """
        return f"{STREAM}{self.stream}~{self.number}~{self.at_s}~{self.key}.jsonl"


class LockNote(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of `stenod.lock`: its holder writes this JSON once it serves."""

    pid: int
    version: str
    root: str
    endpoint: str


_lock_note = msgspec.json.Decoder(LockNote)


def decode_lock_note(data: bytes) -> LockNote | None:
    """Decode the contents of `stenod.lock`; None if its holder has not written them yet.

    >>> decode_lock_note(b"") is None
    True
    """
    try:
        return _lock_note.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def read_lock_note(read: Callable[[], bytes], pause: Callable[[float], None]) -> LockNote | None:
    """Read the note of the holder of `stenod.lock`; None if its holder has not written one.

    The daemon writes it in place, so a note that is read meanwhile may be torn, and is read again.

    Args:
        read: reads the whole file.
        pause: waits for so many seconds.

    >>> notes = [b'{"pid":1,"ver', b'{"pid":1,"version":"2","root":"/r","endpoint":"ipc:///r/s"}']
    >>> read_lock_note(lambda: notes.pop(0), lambda _: None).pid
    1
    """
    for _ in range(limits.NOTE_READS_MAX):
        data = read()
        note = decode_lock_note(data)
        if note is not None or not data.strip():
            return note
        pause(limits.NOTE_READ_S)
    return None


def file_identity(boot: str, device: int, inode: int) -> str | None:
    """Return an identifier of an open file, unique among all machines; None if unknown.

    Args:
        boot: the contents of `BOOT_ID`, empty if it cannot be read.
        device: the file's device number.
        inode: its inode number.

    >>> file_identity("0c2d5f2e-8a55-4a38-a1f5-0f0f8f4f8c11", 66306, 131075)
    '0c2d5f2e-8a55-4a38-a1f5-0f0f8f4f8c11/66306/131075'
    """
    return f"{boot}/{device}/{inode}" if boot else None


def root_folder(given: str | None, environ: Mapping[str, str], home: str) -> str:
    """Return the root: `given`, else STENO_HOME, else XDG_STATE_HOME/steno, else ~/.local/state.

    The caller resolves symbolic links, so that one root has one name. A relative XDG_STATE_HOME is
    ignored, as its specification demands, and a relative home is refused: the root would depend on
    the working folder.

    Args:
        given: the root of the command line, if there is one.
        environ: the environment.
        home: the user's home; `~` if it is unknown, as `os.path.expanduser` returns it.

    Raises:
        BadRequest: the home is needed and unknown, a `~` was not expanded, or the root or a name in
            it is too long.
    """
    chosen = given or environ.get("STENO_HOME")
    if chosen:
        return _check_length(_check_tilde(chosen))
    state = environ.get("XDG_STATE_HOME", "")
    if not posixpath.isabs(state):
        # Without HOME the home comes from the password file; an empty HOME would mean the folder /.
        home = check_home(environ.get("HOME", home))
        state = posixpath.join(home, ".local", "state")
    return posixpath.join(state, "steno")


def _check_tilde(root: str) -> str:
    if root.startswith("~"):
        raise BadRequest(
            f"the root {root!r} begins with ~, which only a shell expands: write the whole path,"
            f" or ./{root} for a folder of that name"
        )
    return root


def _check_length(root: str) -> str:
    for part, size, most in (
        ("a name in ", max(map(_path_bytes, root.split("/"))), limits.FILE_NAME_BYTES_MAX),
        ("", _path_bytes(root), limits.ROOT_BYTES_MAX),
    ):
        if size > most:
            raise BadRequest(
                f"{part}the root {root[: limits.SHOWN_CHARS_MAX]}… has {size} bytes, at most {most}"
                " are possible: choose a shorter one with --root or STENO_HOME"
            )
    return root


def check_home(home: str) -> str:
    """Return a user's home if it is an absolute path, else raise BadRequest."""
    if not posixpath.isabs(home):
        raise BadRequest(
            f"the user's home folder is unknown (HOME is unset or no absolute path: {home!r}):"
            " set HOME, or choose a root with STENO_HOME or --root"
        )
    return home


def socket_path(root: str, given: str | None, environ: Mapping[str, str], uid: int) -> str:
    """Return the socket's path: `given`, else STENO_SOCKET, else in the root.

    If the root is too long for a socket address, the socket lies in a folder of the user. The
    caller creates that folder with mode 0700 and calls `check_socket_folder`, because another user
    may have created it first.

    Raises:
        BadRequest: the given path is too long for a socket address, or is not UTF-8.
    """
    wanted = check_path(given or environ.get("STENO_SOCKET") or "", "socket")
    chosen = wanted or posixpath.join(root, SOCKET)
    if _path_bytes(chosen) <= limits.SOCKET_PATH_BYTES_MAX:
        return chosen
    if wanted:
        raise BadRequest(
            f"the socket path has {_path_bytes(chosen)} bytes, at most"
            f" {limits.SOCKET_PATH_BYTES_MAX} are possible: choose a shorter one"
        )
    # Rarely needed, and slow to import.
    import hashlib  # noqa: PLC0415

    digest = hashlib.sha256(root.encode(errors="surrogateescape")).hexdigest()[:24]
    name = posixpath.join(f"steno-{uid}", f"{digest}.sock")
    short = posixpath.join(environ.get("XDG_RUNTIME_DIR") or _TEMPORARY, name)
    return (
        short
        if _path_bytes(short) <= limits.SOCKET_PATH_BYTES_MAX
        else posixpath.join(_TEMPORARY, name)
    )


def check_socket_folder(folder: str, *, owner: int, mode: int, own: int) -> None:
    """Refuse a folder in which another user could replace the daemon's socket.

    Args:
        folder: its path.
        owner: the user id of its owner.
        mode: its type and permissions; the permissions of a symbolic link are ignored.
        own: the user id of the caller.

    Raises:
        Unauthorized: another user owns the folder or may rename its contents.
    """
    may_replace = mode & stat.S_IWOTH and not (mode & stat.S_ISVTX or stat.S_ISLNK(mode))
    if owner in (own, 0) and not may_replace:
        return
    raise Unauthorized(
        f"the socket would lie in {folder}, where another user could replace it (it belongs to user"
        f" {owner}, mode {stat.S_IMODE(mode):o}): remove it, or choose another place with --socket"
        " or XDG_RUNTIME_DIR"
    )


def check_path(path: str, what: str) -> str:
    """Return the path or address of a root or socket if it is UTF-8, else raise BadRequest.

    Greetings, lock notes and addresses contain it, and they are UTF-8.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        raise BadRequest(
            f"the {what} {path!r} is not UTF-8: rename the folder, or choose another {what}"
        ) from None
    return path


def check_endpoint(endpoint: str) -> str:
    """Return `endpoint` if it is the address of a daemon, else raise BadRequest.

    >>> check_endpoint("tcp://127.0.0.1:7373")
    'tcp://127.0.0.1:7373'
    """
    match = re.fullmatch(_ENDPOINT, endpoint)
    if match is None or not 0 < int(match["port"] or 1) <= _PORT_MAX:
        raise BadRequest(
            f"{endpoint[:80]!r} is not an endpoint: use tcp://HOST:PORT, or ipc:// and the path of"
            " a socket"
        )
    return check_path(endpoint, "endpoint")


def endpoints_of(text: str) -> list[str]:
    """Return the addresses of a list, each checked: of TCP, several may be joined by commas.

    >>> endpoints_of("tcp://10.0.0.1:7117,tcp://10.0.0.2:7117")
    ['tcp://10.0.0.1:7117', 'tcp://10.0.0.2:7117']
    """
    # The path of a socket may contain a comma.
    parts = text.split(",") if is_remote(text) else [text]
    return [check_endpoint(part.strip()) for part in parts]


def is_remote(endpoint: str) -> bool:
    """Whether the endpoint is a daemon on another machine, whose files are out of reach."""
    return endpoint.startswith("tcp://")


def is_ipv6(endpoint: str) -> bool:
    """Whether an endpoint has an IPv6 address, as in `tcp://[::1]:7117`."""
    return endpoint.startswith("tcp://[")


def _path_bytes(path: str) -> int:
    # Python replaces the bytes of a path that are not UTF-8 with surrogates.
    return len(path.encode(errors="surrogateescape"))


def generation_file(number: int) -> str:
    """Return the name of the file that the rewrite to generation `number` left behind.

    >>> generation_file(2)
    'context_2.jsonl'
    """
    return f"context_{number}.jsonl"


def is_compressible(name: str) -> bool:
    """Whether a name is that of a file which may be compressed: a past generation or a stream.

    >>> [is_compressible(name) for name in ("context_2.jsonl", "stream-a.jsonl", "context.jsonl")]
    [True, True, False]
    """
    is_plain = not name.endswith(_COMPRESSED)
    return is_plain and (generation_of(name) is not None or stream_of(name) is not None)


def compressed_file(name: str) -> str:
    """Return the name of the compressed form of a past generation or a stream.

    >>> compressed_file("context_2.jsonl")
    'context_2.jsonl.zst'
    """
    return f"{name}{_COMPRESSED}"


def is_compressed(name: str) -> bool:
    """Whether a name is that of a compressed past generation or stream."""
    return name.endswith(_COMPRESSED) and is_compressible(name.removesuffix(_COMPRESSED))


def plain_file(name: str) -> str:
    """Return the name of a file before its compression; any other name as it is."""
    return name.removesuffix(_COMPRESSED) if is_compressed(name) else name


def check_stream(stream: str) -> str:
    """Return `stream` if it can name a stream, else raise BadRequest."""
    if not _is_text_of(_STREAM_NAME, stream):
        raise BadRequest(
            f"{_briefly(stream)} is not a stream's name: use 1 to {limits.STREAM_NAME_CHARS_MAX} of"
            " a-z 0-9 . _ -"
        )
    if stream in ("context", "wire"):
        raise BadRequest(
            f"{stream!r} is not a stream's name, because the session has a {stream} file of its"
            " own: choose another name"
        )
    return stream


def is_scratch_stream(stream: str) -> bool:
    """Whether a stream is filled to become the successor of another; its random name is used once.

    >>> is_scratch_stream("rewrite-0123456789abcdef"), is_scratch_stream("rewrite-notes")
    (True, False)
    """
    return _SCRATCH_STREAM.fullmatch(stream) is not None


def stream_file(stream: str) -> str:
    """Return the name of a stream's file.

    >>> stream_file("notes")
    'stream-notes.jsonl'
    """
    return f"{STREAM}{stream}.jsonl"


def file_of(file: str) -> str:
    """Return the name of a session's file, given without its ending.

    >>> file_of("stream-notes")
    'stream-notes.jsonl'
    """
    return f"{file}.jsonl"


def stream_of(name: str) -> str | None:
    """Return the stream of a file's name; None for another file, and for a deleted stream."""
    match = _STREAM_FILE.fullmatch(name)
    return match[1] if match is not None else None


def stored_stream_of(name: str) -> str | None:
    """Return the stream of a file's name, compressed or not; None for another file."""
    return stream_of(plain_file(name))


def deleted_stream_of(name: str) -> DeletedStream | None:
    """Return the deleted stream of a file's name; None for any other file."""
    match = _DELETED_STREAM.fullmatch(name)
    if match is None:
        return None
    return DeletedStream(match[1], int(match[2]), int(match[3]), match[4])


def is_stream_file(name: str) -> bool:
    """Whether a name is that of a stream's file, of a deleted one, or of a recovery point.

    >>> is_stream_file("stream-notes.jsonl.zst")
    True
    """
    name = plain_file(name)
    if name.endswith((".mark", ".mark.new")):
        name = f"{name.partition('.mark')[0]}.jsonl"
    return stream_of(name) is not None or deleted_stream_of(name) is not None


def damaged_state_file(number: int) -> str:
    """Return the name of a damaged `state.json` that a repair kept.

    >>> damaged_state_file(1)
    'state.json.damaged-1'
    """
    return f"{STATE}.damaged-{number}"


def generation_of(name: str) -> int | None:
    """Return N of `context_N.jsonl` or of its compressed form, or None for any other name."""
    match = _GENERATION.fullmatch(name)
    return int(match[1]) if match is not None else None


def flat_file(name: str) -> str | None:
    """Return the file of session `name` in kimi-cli's old format; None for an impossible name.

    Such a session is one file beside the folders of others; kimi-cli moves it to
    `<uuid>/context.jsonl` when it next lists or finds the session.

    >>> flat_file("0199f1c2-5b1e-7a90-8000-3d1c5e9b7a11")
    '0199f1c2-5b1e-7a90-8000-3d1c5e9b7a11.jsonl'
    """
    return f"{name}.jsonl" if _UUID.fullmatch(name) is not None else None


def flat_session_of(file: str) -> str | None:
    """Return the session of a file in kimi-cli's old format; None for other files."""
    name = file.removesuffix(".jsonl")
    return name if flat_file(name) == file else None


def is_own_file(name: str) -> bool:
    """Whether a name is that of a file that a session may hold, and so no part of an id.

    >>> is_own_file("context.jsonl"), is_own_file("planner-1")
    (True, False)
    """
    return _OWN_FILE.fullmatch(name) is not None


def split_session(session: str) -> tuple[str | None, tuple[str, ...]]:
    """Check a session id and split it into mount (or None) and folder names.

    An id has segments joined by `/`, optionally after `mount:`. No segment begins with a dot, ends
    with `.jsonl`, or is the name of a session's own file, so that no id can leave the root, name a
    hidden folder or point into another session's files.

    >>> split_session("kimi:2f1a/7c9e")
    ('kimi', ('2f1a', '7c9e'))

    Raises:
        BadRequest: the id breaks one of these rules; the message names the rule.
    """
    if len(session) > limits.SESSION_ID_CHARS_MAX:
        raise BadRequest(
            f"the session id has {len(session)} characters, at most"
            f" {limits.SESSION_ID_CHARS_MAX} are allowed: choose a shorter one"
        )
    match = _SESSION.fullmatch(session)
    if match is None:
        raise BadRequest(
            f"{session[:80]!r} is not a session id: use letters, digits and _.@+=,- in segments"
            " joined by /, none of them beginning with a dot, for example team/planner-1"
        )
    segments = tuple(match[2].split("/"))
    for segment in segments:
        if len(segment) > limits.SESSION_SEGMENT_CHARS_MAX:
            raise BadRequest(
                f"a segment of the session id has {len(segment)} characters, at most"
                f" {limits.SESSION_SEGMENT_CHARS_MAX} are allowed: choose a shorter one"
            )
        if is_own_file(segment):
            raise BadRequest(
                f"{session[:80]!r} is not a session id: {segment!r} is the name of a file that a"
                " session may hold; choose another"
            )
    return match[1], segments


def check_key(key: str) -> str:
    """Return `key` if it can be an idempotency key, else raise BadRequest."""
    if not _is_text_of(_KEY, key):
        raise BadRequest(
            f"{_briefly(key)} is not a key: use 1 to {limits.KEY_CHARS_MAX} of A-Z a-z 0-9 _ -"
        )
    return key


def check_name(name: str) -> str:
    """Return `name` if it can name a client, else raise BadRequest."""
    if not _is_text_of(_NAME, name):
        raise BadRequest(
            f"{_briefly(name)} is not a client name: use 1 to {limits.NAME_CHARS_MAX} letters,"
            " digits and _.@:/+-"
        )
    return name


def _is_text_of(pattern: re.Pattern[str], value: object) -> bool:
    # Callers without a type checker may pass any type.
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _briefly(value: object) -> str:
    return (
        repr(value[:80]) if isinstance(value, str) else f"the {type(value).__name__} {value!r:.80}"
    )


def recovery_point_file(name: str) -> str:
    """Return the name of the file with the recovery point of a session's file.

    >>> recovery_point_file("wire.jsonl")
    'wire.mark'
    """
    return name.removesuffix(".jsonl") + ".mark"


def key_time_ms(key: str) -> int | None:
    """Return the creation time of a uuid7 key, Unix time in milliseconds; None for other keys.

    Steno's clients create uuid7 keys. A key that is newer than every key used before is unused;
    any other key may have been used, so it is looked up in the files.
    """
    if len(key) != UUID_CHARS or key[14] != "7" or key[8] != "-" or key[13] != "-":
        return None
    digits = key[:8] + key[9:13]
    # int() alone would take signs and underscores, too.
    if not digits.isalnum():
        return None
    try:
        return int(digits, 16)
    except ValueError:
        return None
