"""The stream of a cluster: what it is created with, and what an existing one must have."""

from collections.abc import Iterator, Mapping
from typing import Any

from stenod_cluster.options import ReplicationOptions
from stenod_cluster.subjects import stream_name, stream_subjects


def stream_config(options: ReplicationOptions) -> dict[str, Any]:
    """Returns the configuration with which a stream is created."""
    return {
        "name": stream_name(options.cluster),
        "subjects": stream_subjects(options.cluster),
        "storage": "file",
        "num_replicas": options.replicas,
        "retention": "limits",
        # A full stream refuses new messages; it never removes an old one.
        "discard": "new",
        "max_age": 0,
        "max_msgs": -1,
        "max_msgs_per_subject": -1,
        "max_msg_size": -1,
        "allow_direct": True,
        "deny_purge": False,
        "allow_rollup_hdrs": False,
        "allow_atomic": True,
    }


def differences(options: ReplicationOptions, found: Mapping[str, Any]) -> list[str]:
    """Returns a phrase for each setting of an existing stream that steno cannot work with."""
    return [
        f"{name} is {_shown(got)}, and has to be {_shown(wanted)}"
        for name, got, wanted in _different(stream_config(options), found)
    ]


def _different(
    wanted: Mapping[str, Any], found: Mapping[str, Any]
) -> Iterator[tuple[str, object, object]]:
    for name, value in wanted.items():
        # The servers leave out what is off.
        got = found.get(name, False if isinstance(value, bool) else None)
        if name != "name" and got != value:
            yield name, got, value
    for name in ("mirror", "sources", "subject_transform", "no_ack", "sealed", "persist_mode"):
        if found.get(name) not in {None, False, "", "default"}:
            yield name, found[name], "unset"


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
