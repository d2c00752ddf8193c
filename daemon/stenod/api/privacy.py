"""Replies to clients of other machines that may only read: without paths of this machine."""

from collections.abc import Iterable

from msgspec.structs import replace

from steno_protocol import paths
from steno_protocol.replies import (
    ErrorReply,
    RepairedFile,
    Reply,
    SessionStat,
    StatusReport,
    Welcome,
)


def for_reader(body: Reply, folders: Iterable[str]) -> Reply:
    """Return a reply without the paths of this machine.

    Args:
        body: the reply.
        folders: the root and the mounts, whose paths an error may name.
    """
    if body.repaired:
        body = replace(body, repaired=tuple(map(_below_folder, body.repaired)))
    match body:
        case Welcome():
            return replace(body, root="")
        case StatusReport():
            return replace(body, root="", endpoint="", mounts=dict.fromkeys(body.mounts, ""))
        case SessionStat():
            return replace(body, folder="")
        case ErrorReply():
            message = body.message
            for folder in sorted(folders, key=len, reverse=True):
                message = message.replace(folder, "ROOT")
            return replace(body, message=message)
        case _:
            return body


def _below_folder(repaired: RepairedFile) -> RepairedFile:
    _, found, name = repaired.kept_in.rpartition(f"{paths.QUARANTINE}/")
    return replace(repaired, kept_in=found + name)
