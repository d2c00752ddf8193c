"""Subjects and streams of folders, which every daemon of a cluster computes alike.

    steno.<cluster>.f.<shard>.<segment>.<segment>   a folder's messages, in STENO_<cluster>_<shard>
    steno.<cluster>.f.<shard>.$.stream              the marker of a stream: one random message
    steno.<cluster>.f.<shard>.$.taken.<host>        the folders of a host that others take over
    steno.<cluster>.tell.<topic>                    announcements, in no stream

A segment of a folder's path is percent-encoded, because a subject has no blank, and `.`, `*` and
`>` have a meaning in it.
"""

import zlib
from errno import ENAMETOOLONG
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

from stenod_cluster import limits

_OURS: Final = "$"
"""The token of subjects without a folder, where folders have it encoded."""


def stream_name(cluster: str, shard: int) -> str:
    """Returns the name of a stream, such as `STENO_team_0`."""
    return f"STENO_{cluster}_{shard}"


def stream_subjects(cluster: str, shard: int) -> str:
    """Returns the wildcard of all subjects in a stream."""
    return f"steno.{cluster}.f.{shard}.>"


def shard_of(folder: str, streams: int) -> int:
    """Returns the number of a folder's stream.

    The first segment decides, so all subagents of a session are in its stream.
    """
    first = folder.partition("/")[0]
    return zlib.crc32(first.encode(errors="surrogateescape")) % streams


@lru_cache(limits.SUBJECTS_KEPT_MAX)
def subject_of(cluster: str, streams: int, folder: str) -> str:
    """Returns the subject of a folder.

    Raises:
        OSError: the folder's path is too long for a subject.
    """
    segments = ".".join(map(encoded, folder.split("/")))
    subject = f"steno.{cluster}.f.{shard_of(folder, streams)}.{segments}"
    if len(subject) > limits.SUBJECT_CHARS_MAX:
        raise OSError(
            ENAMETOOLONG,
            f"the path has {len(subject)} characters as a subject of the cluster, of at most"
            f" {limits.SUBJECT_CHARS_MAX}: use a shorter one",
            folder,
        )
    return subject


def marker_subject(cluster: str, shard: int) -> str:
    """Returns the subject of a stream's marker, which no folder has."""
    return f"steno.{cluster}.f.{shard}.{_OURS}.stream"


def taken_subject(cluster: str, shard: int, host: str) -> str:
    """Returns the subject of the notes for a host whose folders others take over."""
    return f"steno.{cluster}.f.{shard}.{_OURS}.taken.{encoded(host)}"


def subjects_without_folder(cluster: str, shard: int) -> str:
    """Returns the wildcard of the subjects in a stream that are no folder's."""
    return f"steno.{cluster}.f.{shard}.{_OURS}.>"


def is_folder(subject: str) -> bool:
    """Whether a subject is that of a folder."""
    return subject.split(".")[4] != _OURS


def folder_of(subject: str) -> str:
    """Returns the folder of a subject."""
    return "/".join(map(decoded, subject.split(".")[4:]))


def topic_subject(cluster: str, topic: str) -> str:
    """Returns the subject of an announcement; `*` is all of them."""
    return f"steno.{cluster}.tell.{topic if topic == '*' else encoded(topic)}"


def topic_of(subject: str) -> str:
    """Returns the topic of an announcement's subject."""
    return decoded(subject.rpartition(".")[2])


def encoded(segment: str) -> str:
    """Returns a segment in characters that a subject may have between two dots."""
    return quote(segment, safe="", errors="surrogateescape").replace(".", "%2E")


def decoded(token: str) -> str:
    """Returns the segment of a token."""
    return unquote(token, errors="surrogateescape")
