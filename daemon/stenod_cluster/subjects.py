"""Subjects of sessions and names, which every daemon of a cluster computes alike.

    steno.<cluster>.s.<identity>           the messages of a session
    steno.<cluster>.n.<segment>.<segment>  the messages of a name
    steno.<cluster>.m.stream               the marker of the stream: a random message
    steno.<cluster>.m.taken.<host>         the names of sessions of a host that others take over
    steno.<cluster>.tell.<topic>           announcements, which no stream stores

All but the announcements are in one stream, because a batch of messages is atomic within a stream.
A segment of a name is percent-encoded, because a subject has no blank, and `.`, `*` and `>` have a
meaning in it.
"""

from errno import ENAMETOOLONG
from functools import lru_cache
from urllib.parse import quote, unquote

from steno_protocol import paths
from stenod_cluster import limits
from stenod_cluster.journal import ENDED, HELD, host_of_notes, name_of_subject


def stream_name(cluster: str) -> str:
    """Returns the name of the stream, such as `STENO_team`."""
    return f"STENO_{cluster}"


def stream_subjects(cluster: str) -> list[str]:
    """Returns the wildcards of all subjects in the stream."""
    return [f"steno.{cluster}.{group}.>" for group in ("s", "n", "m")]


@lru_cache(limits.SUBJECTS_KEPT_MAX)
def subject_of(cluster: str, subject: str) -> str:
    """Returns the subject on the servers of a session, a name or notes.

    Raises:
        OSError: the name is too long for a subject.
    """
    name, host = name_of_subject(subject), host_of_notes(subject)
    if host is not None:
        return f"steno.{cluster}.m.taken.{encoded(host)}"
    if name is None:
        return f"steno.{cluster}.s.{encoded(subject)}"
    found = f"steno.{cluster}.n.{'.'.join(map(encoded, name.split('/')))}"
    # A session that can be made can be deleted: the trash has longer names.
    is_deleted = name.startswith(f"{paths.TRASH}/")
    chars_max = limits.SUBJECT_CHARS_MAX + (limits.TRASH_CHARS_MAX if is_deleted else 0)
    if len(found) > chars_max:
        raise OSError(
            ENAMETOOLONG,
            f"the path has {len(found)} characters as a subject of the cluster, of at most"
            f" {chars_max}: use a shorter one",
            name,
        )
    return found


def sessions_subjects(cluster: str) -> str:
    """Returns the wildcard of all sessions."""
    return f"steno.{cluster}.s.>"


def names_subjects(cluster: str, above: str | None) -> str:
    """Returns the wildcard of all names, or of those below one."""
    if above is None:
        return f"steno.{cluster}.n.>"
    return f"steno.{cluster}.n.{'.'.join(map(encoded, above.split('/')))}.>"


def ended_subjects(cluster: str) -> str:
    """Returns the wildcard of the names by which sessions that ended hold their messages."""
    return f"steno.{cluster}.n.{encoded(HELD)}.*.{ENDED}.*"


def marker_subject(cluster: str) -> str:
    """Returns the subject of the stream's marker."""
    return f"steno.{cluster}.m.stream"


def path_of(subject: str) -> str:
    """Returns the name, or the identity, of a subject on the servers."""
    return "/".join(map(decoded, subject.split(".")[3:]))


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
