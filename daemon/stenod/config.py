"""What a daemon is told at its start: its root, its socket, and the mounts of `config.toml`."""

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from steno_protocol import places
from steno_protocol._json import is_object
from steno_protocol.errors import BadRequest

_MOUNT_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one daemon.

    Attributes:
        root: its folder, absolute, symbolic links resolved.
        socket: path of its socket.
        mounts: folders outside the root that hold session trees, by name.
    """

    root: Path
    socket: Path
    mounts: dict[str, Path] = field(default_factory=dict[str, Path])

    @property
    def endpoint(self) -> str:
        """The ZeroMQ address of the socket."""
        return f"ipc://{self.socket}"


def load(root: Path, socket: str) -> Config:
    """Read `config.toml` in the root, if there is one.

    Raises:
        BadRequest: it is not valid; the message names the file and the key.
    """
    path = root / places.CONFIG
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Config(root, Path(socket))
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadRequest(f"{path}: {error}") from None
    unknown = sorted(set(table) - {"mounts"})
    if unknown:
        raise BadRequest(f"{path}: unknown key {unknown[0]!r}: the only table is [mounts]")
    mounts = table.get("mounts", {})
    if not is_object(mounts):
        raise BadRequest(f"{path}: [mounts] has to be a table of name = folder")
    return Config(root, Path(socket), {name: _mount(path, name, mounts[name]) for name in mounts})


def _mount(path: Path, name: str, folder: object) -> Path:
    if _MOUNT_NAME.fullmatch(name) is None:
        raise BadRequest(
            f"{path}: {name!r} cannot name a mount: use a lower-case letter, then letters, digits"
            " and -, 32 at most"
        )
    if not isinstance(folder, str) or not folder.startswith(("/", "~")):
        raise BadRequest(f"{path}: the mount {name!r} needs an absolute folder, for example"
                         ' "~/.kimi/sessions"')  # fmt: skip
    return Path(folder).expanduser().resolve()
