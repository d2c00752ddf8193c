"""What an answer of JetStream means for what was asked."""

from dataclasses import dataclass
from errno import EACCES, EINVAL, EIO, EMSGSIZE, ENOSPC, EPROTO
from typing import Any, Final

import msgspec

STREAM_NOT_FOUND: Final = 10059
"""There is no stream of that name."""

NO_MESSAGE_FOUND: Final = 10037
"""The stream has no message of that subject."""

SEQUENCE_NOT_FOUND: Final = 10043
"""The stream has no message of that number."""

_WRONG_LAST_SEQUENCE: Final = 10071
_STORE_FAILED: Final = 10077
_TOO_LARGE: Final = 10054
_FULL: Final = {10002, 10023, 10028, 10047, 10120}
"""Resources of the account or of the servers: storage, memory, or none granted at all."""

_NOT_ENABLED: Final = {10035, 10039, 10076}
_ONE_SERVER: Final = 10074

_UNDECIDED: Final = {10163, 10164, 10167, 10176, 10210, 10211}
"""The leader still applies the message before, has changed in the middle of a batch, or has too
many batches."""

_UNAVAILABLE: Final = {10005, 10008, 10009, 10118, 10194}
"""No leader, or too few servers."""


@dataclass(frozen=True, slots=True)
class WrongSequence:
    """The leader knows another last message of the subject; nothing was stored.

    Attributes:
        last: its number, 0 if the leader knows none.
    """

    last: int


@dataclass(frozen=True, slots=True)
class Again:
    """The refusal may pass.

    Attributes:
        reason: what the servers lack.
        may_be_stored: the leader failed while it stored, so other servers may have the message.
    """

    reason: str
    may_be_stored: bool = False


Verdict = int | WrongSequence | Again | OSError
"""The sequence under which a majority has the message on disk, or why it has not. An OSError says
what the operator has to do: nothing was stored, and nothing will be before that."""


def decoded_answer(body: bytes) -> dict[str, Any]:
    """Returns an answer's fields; what is no JSON object becomes an error that may pass."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {"error": {"code": 500, "description": f"an answer that is not JSON: {body[:80]!r}"}}


def verdict_of(body: bytes, stream: str) -> Verdict:
    """Returns what the answer to a publication means."""
    answer = decoded_answer(body)
    if (error := answer.get("error")) is None:
        return int(answer["seq"])
    if error.get("err_code") == _WRONG_LAST_SEQUENCE:
        return WrongSequence(_last_of(str(error.get("description", ""))))
    return failure_of(error, stream)


def failure_of(error: dict[str, Any], stream: str) -> Again | OSError:
    """Returns what an error of JetStream means, whatever was asked."""
    code = int(error.get("err_code", 0))
    said = f"the servers answer {str(error.get('description', error))!r}"
    if code in _UNDECIDED:
        return Again(said)
    if code in _UNAVAILABLE:
        return Again(f"{said}: stream {stream} has no majority of its servers")
    if code == STREAM_NOT_FOUND:
        return Again(f"{said}: stream {stream} is created as soon as they have a leader")
    if code in _FULL or (code == _STORE_FAILED and "maximum" in said):
        return OSError(ENOSPC, full(said, stream))
    return _other_failure(code, int(error.get("code", 500)), said, stream)


def full(said: str, stream: str) -> str:
    """Returns that a stream is full, and what to do."""
    return (
        f"{said}: stream {stream} is full. `steno cluster status` shows its size; run `steno gc"
        " --keep-generations 1`, or delete sessions, lower disk.trash_days and run `steno gc"
        " --trash`, or allow it more bytes on the servers"
    )


def _other_failure(code: int, status: int, said: str, stream: str) -> Again | OSError:
    if code in _NOT_ENABLED:
        return OSError(
            EACCES,
            f"{said}: enable JetStream on the servers and for the account that"
            " replication.credentials names",
        )
    if code == _ONE_SERVER:
        return OSError(
            EINVAL,
            f"{said}: the server is in no cluster, so start three as one, or set"
            " replication.replicas to 1",
        )
    if code == _TOO_LARGE:
        return OSError(
            EMSGSIZE, f"{said}: remove the limit max_msg_size from stream {stream}, or raise it"
        )
    if code == _STORE_FAILED:
        return Again(f"{said}: look at the disks of the servers of {stream}", may_be_stored=True)
    if status >= 500:
        return Again(said, may_be_stored=status == 500)
    return OSError(EPROTO if code else EIO, f"{said} for stream {stream}: ask its operator")


def _last_of(description: str) -> int:
    number = description.rpartition(":")[2].strip()
    return int(number) if number.isdigit() else 0
