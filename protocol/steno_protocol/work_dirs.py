"""kimi-cli's work directories, read from its `kimi.json`.

    {"work_dirs": [{"path": "/srv/project", "kaos": "local",
                    "last_session_id": "0199f1c2-5b1e-7a90-8000-3d1c5e9b7a11"}]}

kimi-cli keeps the sessions of a work directory in one folder. The folder's name is a hash of the
path, so `kimi.json` is the only place that has the path.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from steno_protocol._json import is_array, is_object

KIMI_FILE: Final = "kimi.json"
"""The file of work directories: beside kimi-cli's `sessions`, or above their folders."""

_LOCAL: Final = "local"
"""kimi-cli's name for the machine that it runs on."""

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class WorkDir(msgspec.Struct, frozen=True):
    """One work directory.

    Attributes:
        path: its path.
        kaos: kimi-cli's name of the machine that it lies on.
        last_session_id: the last session used there, None if it is not recorded.
    """

    path: str
    kaos: str = _LOCAL
    last_session_id: str | None = None

    @property
    def folder(self) -> str:
        """The name of the folder that holds its sessions."""
        # Rarely needed, and slow to import.
        import hashlib  # noqa: PLC0415

        data = self.path.encode(errors="surrogatepass")
        digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
        return digest if self.kaos == _LOCAL else f"{self.kaos}_{digest}"


def decode_work_dirs(data: bytes) -> dict[str, WorkDir]:
    """Decode the work directories of a `kimi.json`, by folder; invalid entries are left out.

    >>> found = decode_work_dirs(b'{"work_dirs":[{"path":"/srv"}, 1]}')
    >>> [(folder, each.path) for folder, each in found.items()]
    [('d9f0e84949d824602fda52c4bc886391', '/srv')]
    """
    try:
        document: Any = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    entries: Any = document.get("work_dirs") if is_object(document) else None
    found = [_work_dir(entry) for entry in entries] if is_array(entries) else []
    return {each.folder: each for each in found if each is not None}


def encode_work_dirs(work_dirs: Iterable[WorkDir]) -> bytes:
    """Encode a `kimi.json` with these work directories."""
    return _encode({"work_dirs": list(work_dirs)}) + b"\n"


def merged_work_dirs(old: Mapping[str, WorkDir], new: Mapping[str, WorkDir]) -> dict[str, WorkDir]:
    """Merge both by folder; a folder in both gets the new last session, if there is one."""
    merged = dict(old)
    for folder, each in new.items():
        before = old.get(folder)
        last = each.last_session_id or (before.last_session_id if before is not None else None)
        merged[folder] = WorkDir(each.path, each.kaos, last)
    return merged


def _work_dir(entry: object) -> WorkDir | None:
    if not is_object(entry):
        return None
    path, kaos = entry.get("path"), entry.get("kaos", _LOCAL)
    last = entry.get("last_session_id")
    if not isinstance(path, str) or not isinstance(kaos, str):
        return None
    return WorkDir(path, kaos, last if isinstance(last, str) else None)
