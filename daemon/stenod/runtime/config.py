"""The configuration of a daemon: root, socket, mounts and options."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from steno_protocol import paths
from steno_protocol.errors import BadRequest, Unauthorized
from steno_protocol.settings import OPTIONS, Settings, check_retention, read_settings
from steno_system.private_files import read_private

_IDLE_EXIT: Final = "life.idle_exit_s"


class Config(msgspec.Struct):
    """The configuration of one daemon; a reload replaces its settings.

    Attributes:
        root: its folder, absolute, symbolic links resolved.
        socket: the path of its socket.
        mounts: folders outside the root that hold session trees, by name.
        settings: the options in force.
        is_attended: a person or a service manager runs the daemon, and ends it.
    """

    root: Path
    socket: Path
    mounts: dict[str, Path] = msgspec.field(default_factory=dict[str, Path])
    settings: Settings = msgspec.field(default_factory=Settings)
    is_attended: bool = False

    def __post_init__(self) -> None:
        self.settings = _with_own_default(self.settings, is_attended=self.is_attended)

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

        Raises:
            BadRequest: they do not go with those that wait; nothing was changed.
        """
        before, found = self.settings, _with_own_default(found, is_attended=self.is_attended)
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
        named = {**found.mounts, **before.mounts}
        settings = Settings(values=values, mounts=named, sources=sources)
        # A daemon whose file has no cluster any more is in it until its next start.
        check_retention(settings)
        mounts = _folders(found)
        for name, folder in self.mounts.items():
            if mounts.get(name) != folder:
                waiting.append(f"the mount {name} stays {folder}")
        self.mounts = {**mounts, **self.mounts}
        self.settings = settings
        return waiting


def load(
    root: Path,
    socket: str,
    environ: Mapping[str, str] = os.environ,
    *,
    is_attended: bool = False,
) -> Config:
    """Load the configuration from `config.toml` in the root and from the environment.

    Raises:
        BadRequest: a value is not valid; the message names file, option and remedy.
    """
    settings = read(root, environ)
    return Config(root, Path(socket), _folders(settings), settings, is_attended)


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


def _with_own_default(settings: Settings, *, is_attended: bool) -> Settings:
    """Return the settings of a daemon that ends when idle only if a client can start it again.

    Nobody asked for a daemon that a client started in the background to stay for ever. One in the
    foreground or under a service manager was asked for, and clients of other machines and
    Prometheus can start none.
    """
    reasons = {
        "in the foreground": is_attended,
        "with network.listen": bool(settings.text("network.listen")),
        "with metrics.port": bool(settings.count("metrics.port")),
    }
    reason = next((each for each, holds in reasons.items() if holds), None)
    if reason is None or settings.source(_IDLE_EXIT) != "default":
        return settings
    return msgspec.structs.replace(
        settings,
        values={**settings.values, _IDLE_EXIT: 0.0},
        sources={**settings.sources, _IDLE_EXIT: f"default {reason}"},
    )


def _folders(settings: Settings) -> dict[str, Path]:
    # `Path.resolve` raises for a circle of links.
    return {name: Path(os.path.realpath(folder)) for name, folder in settings.folders.items()}
