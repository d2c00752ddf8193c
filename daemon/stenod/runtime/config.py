"""The configuration of a daemon: root, socket, mounts and options."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from steno_protocol import paths
from steno_protocol.errors import BadRequest, Unauthorized
from steno_protocol.settings import OPTIONS, Settings, read_settings
from stenod.store.private_files import read_private


class Config(msgspec.Struct):
    """The configuration of one daemon; a reload replaces its settings.

    Attributes:
        root: its folder, absolute, symbolic links resolved.
        socket: the path of its socket.
        mounts: folders outside the root that hold session trees, by name.
        settings: the options in force.
    """

    root: Path
    socket: Path
    mounts: dict[str, Path] = msgspec.field(default_factory=dict[str, Path])
    settings: Settings = msgspec.field(default_factory=Settings)

    @property
    def endpoint(self) -> str:
        """The ZeroMQ address of the socket."""
        return f"ipc://{self.socket}"

    def adopt(self, found: Settings) -> list[str]:
        """Apply the new settings that may change while the daemon runs.

        A mount may be added. A changed or removed mount waits for the next start, because its
        sessions may be open; so do the options that are bound at the start.

        Returns:
            A phrase for each change that waits for the next start.
        """
        before = self.settings
        kept = [option.name for option in OPTIONS if not option.is_live]
        waiting = [
            f"{name} stays {before.shown(name)}"
            for name in kept
            if found.values[name] != before.values[name]
        ]
        values = {**found.values, **{name: before.values[name] for name in kept}}
        kept += [f"mounts.{name}" for name in self.mounts]
        sources = {
            **{name: source for name, source in found.sources.items() if name not in kept},
            **{name: source for name, source in before.sources.items() if name in kept},
        }
        mounts = _folders(found)
        for name, folder in self.mounts.items():
            if mounts.get(name) != folder:
                waiting.append(f"the mount {name} stays {folder}")
        self.mounts = {**mounts, **self.mounts}
        named = {**found.mounts, **before.mounts}
        self.settings = Settings(values=values, mounts=named, sources=sources)
        return waiting


def load(root: Path, socket: str, environ: Mapping[str, str] = os.environ) -> Config:
    """Load the configuration from `config.toml` in the root and from the environment.

    Raises:
        BadRequest: a value is not valid; the message names file, option and remedy.
    """
    settings = read(root, environ)
    return Config(root, Path(socket), _folders(settings), settings)


def load_to_read(root: Path, socket: str) -> Config:
    """Load the configuration of a reader: the mounts of a root of this user, and no option.

    The mounts of another user may name folders of this user's home.

    Raises:
        BadRequest: the configuration is not valid; the message names file, option and remedy.
    """
    is_own = root.stat().st_uid == os.geteuid()
    return Config(root, Path(socket), _folders(read(root, {})) if is_own else {})


def read(root: Path, environ: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings of a root's file and the environment; raises as `load`."""
    path = root / paths.CONFIG
    try:
        # People keep their configuration elsewhere, and link to it.
        text = read_private(path, may_be_link=True).decode()
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path} cannot be read: {error}") from None
    except Unauthorized as error:
        raise BadRequest(f"the configuration cannot be read: {error.message}") from None
    return read_settings(text, str(path), environ)


def _folders(settings: Settings) -> dict[str, Path]:
    # `Path.resolve` raises for a circle of links.
    return {name: Path(os.path.realpath(folder)) for name, folder in settings.folders.items()}
