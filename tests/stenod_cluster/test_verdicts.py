"""What the answers of JetStream mean."""

import json
from errno import EACCES, EINVAL, EMSGSIZE, ENOSPC, EPROTO

import pytest

from stenod_cluster.verdicts import Again, Verdict, WrongSequence, verdict_of


def verdict(code: int, status: int = 400, description: str = "it does not work") -> Verdict:
    """The verdict of an error."""
    error = {"code": status, "err_code": code, "description": description}
    return verdict_of(json.dumps({"error": error, "seq": 0}).encode(), "STENO_team_0")


def test_a_sequence_is_a_stored_message() -> None:
    assert verdict_of(b'{"stream":"S","seq":7}', "S") == 7


def test_a_wrong_sequence_names_the_last_one() -> None:
    assert verdict(10071, description="wrong last sequence: 12") == WrongSequence(12)
    assert verdict(10071, description="wrong last sequence") == WrongSequence(0)


@pytest.mark.parametrize("code", [10164, 10163, 10167])
def test_what_is_undecided_is_asked_again(code: int) -> None:
    found = verdict(code)
    assert isinstance(found, Again)
    assert not found.may_be_stored


@pytest.mark.parametrize(
    ("code", "status", "may_be_stored"),
    [
        (10008, 503, False), (10005, 400, False), (10009, 500, False), (10118, 500, False),
        (10059, 404, False), (99999, 503, False), (99999, 500, True),
    ],
)  # fmt: skip
def test_what_may_pass_is_asked_again(code: int, status: int, may_be_stored: bool) -> None:
    found = verdict(code, status)
    assert isinstance(found, Again)
    assert found.may_be_stored is may_be_stored
    assert "it does not work" in found.reason


def test_a_failure_while_storing_is_a_doubt_and_a_full_stream_is_none() -> None:
    failed = verdict(10077, 503, "error opening msg block file")
    assert isinstance(failed, Again)
    assert failed.may_be_stored
    full = verdict(10077, 503, "maximum bytes exceeded")
    assert isinstance(full, OSError)
    assert full.errno == ENOSPC


@pytest.mark.parametrize(
    ("code", "number", "says"),
    [
        (10047, ENOSPC, "stream STENO_team_0 is full"),
        (10023, ENOSPC, "`steno gc --keep-generations 1`"),
        (10076, EACCES, "enable JetStream"),
        (10054, EMSGSIZE, "max_msg_size"),
        (10074, EINVAL, "replication.replicas"),
        (10003, EPROTO, "ask its operator"),
    ],
)
def test_a_refusal_says_what_the_operator_does(code: int, number: int, says: str) -> None:
    found = verdict(code)
    assert isinstance(found, OSError)
    assert found.errno == number
    assert says in str(found.strerror)


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b"+OK"])
def test_an_answer_that_is_none_may_have_been_stored(body: bytes) -> None:
    found = verdict_of(body, "S")
    assert isinstance(found, Again)
    assert found.may_be_stored
