"""The daemon and the session id of a file that a caller names by its path.

A file in the user's own root, or below one of its mounts, belongs to the daemon of that root. Any
other file belongs to a daemon of its own tree, the folder above the session's folder; the root of
that daemon is `adapters/<digest of the tree>` in the user's root, and contains only its socket, its
log and a config with which the daemon ends when it is idle.
One line in the user's `config.toml` therefore puts all sessions of a program under one daemon:

    [mounts]
    kimi = "~/.kimi/sessions"

A session is a folder with a `context.jsonl`. A file of another name, or in a folder whose name
cannot be in a session's id, is the second name of the `context.jsonl` in a folder
`_<file name>.steno` beside it.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from steno.local import make_private, read_private
from steno_protocol import limits, paths
from steno_protocol.errors import BadRequest, Unauthorized
from steno_protocol.settings import mounted_folders

_OWN_MOUNT: Final = "tree"
_ROOTS: Final = "adapters"


@dataclass(frozen=True, slots=True)
class Address:
    """The address of the session behind a path.

    Attributes:
        root: of the daemon that owns it.
        session: its id there.
        folder: its folder.
        tree: the folder that a daemon of its own mounts; None: the root is the user's.
        is_companion: the caller's file is a second name of the session's file, in another folder.
    """

    root: Path
    session: str
    folder: Path
    tree: Path | None
    is_companion: bool

    @property
    def context(self) -> Path:
        """The file that the daemon writes."""
        return self.folder / paths.CONTEXT


def find_address(path: Path) -> Address:
    """Return the address of the session behind `path`; its parent folder has to exist."""
    parent = Path(os.path.realpath(path.parent))
    found = None
    if path.name == paths.CONTEXT:
        found = _address_in(parent, parent, is_companion=False)
    if found is None:
        found = _address_in(parent, parent / _companion(path.name), is_companion=True)
    # The name of a companion fits into an id in any folder.
    assert found is not None
    return found


def prepare_root(address: Address) -> None:
    """Make the root of a daemon that mounts one tree, if it is missing."""
    if address.tree is None:
        return
    config = address.root / paths.CONFIG
    if config.exists():
        return
    make_private(address.root)
    # Another process that creates it at the same time writes the same bytes.
    aside = config.with_name(f"{config.name}.{os.getpid()}")
    aside.write_text(
        f"[mounts]\n{_OWN_MOUNT} = {json.dumps(str(address.tree))}\n\n"
        f"[life]\nidle_exit_s = {limits.ADAPTER_IDLE_EXIT_S:g}\n"
    )
    aside.replace(config)


def _address_in(parent: Path, folder: Path, *, is_companion: bool) -> Address | None:
    """The address of a session's folder, `parent` or in it; None when it fits into no id."""
    users = os.path.expanduser("~")  # noqa: PTH111 (as text, also where it is not known)
    home = Path(os.path.realpath(paths.root_folder(None, os.environ, users)))
    for prefix, tree in _trees(home):
        session = _session_in(prefix, tree, folder)
        if session is not None:
            return Address(home, session, folder, None, is_companion)
    # As far up as the id allows: the sessions of one program lie beside each other.
    for tree in (parent.parent, parent):
        session = _session_in(f"{_OWN_MOUNT}:", tree, folder)
        if session is not None:
            digest = hashlib.sha256(os.fsencode(tree)).hexdigest()[:24]
            return Address(home / _ROOTS / digest, session, folder, tree, is_companion)
    return None


def _companion(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_.@+=,-]", "_", name)[:80]
    if plain != name:
        plain += "-" + hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
    return f"_{plain}.steno"


def _trees(home: Path) -> Iterator[tuple[str, Path]]:
    """The trees of the user's root, each with the prefix of its ids."""
    yield "", home / paths.SESSIONS
    config = home / paths.CONFIG
    try:
        folders = mounted_folders(read_private(config, may_be_link=True).decode(), str(config))
    except (OSError, UnicodeDecodeError, BadRequest, Unauthorized):
        # The daemon reports the error to the client that starts it.
        return
    for name, folder in folders.items():
        yield f"{name}:", Path(os.path.realpath(folder))


def _session_in(prefix: str, tree: Path, folder: Path) -> str | None:
    """The id of a folder in a tree, None when it is elsewhere or fits into no id."""
    if tree not in folder.parents:
        return None
    session = prefix + folder.relative_to(tree).as_posix()
    try:
        paths.split_session(session)
    except BadRequest:
        return None
    return session
