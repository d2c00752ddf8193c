"""`steno dmail`: a message back to a checkpoint, sent, shown and delivered."""

import time
from pathlib import Path

import pytest

from steno import connect_sync
from support.command import Steno

pytestmark = pytest.mark.served

ACK = {
    "session", "first", "last", "head", "durability", "duplicate", "checkpoint_id", "handle",
    "rotated",
    "overtaken", "key",
}  # fmt: skip


@pytest.fixture
def steno(root: Path) -> Steno:
    """A session that went on after a checkpoint."""
    with connect_sync(root) as client:
        session = client.open("demo", follow=False)
        session.append_message({"role": "user", "content": "before"})
        session.checkpoint()
        session.append_message({"role": "user", "content": "after"})
    return Steno(root)


def test_a_mail_is_sent_shown_and_delivered(steno: Steno) -> None:
    sent = steno("dmail", "send", "demo", "0", "look in tests/unit")
    assert sent.code == 0
    shown = steno("dmail", "show", "demo")
    assert shown.out.startswith(f"{sent.out.strip()}  to checkpoint 0, sent ")
    assert shown.out.endswith("\nlook in tests/unit\n")
    delivered = steno("dmail", "deliver", "demo")
    assert (delivered.code, delivered.out) == (0, "1:3\n")
    assert f"delivered {sent.out.strip()}: look in tests/unit\n" in delivered.err
    assert "context_1.jsonl" in delivered.err
    conversation = steno("show", "demo").out
    assert "after" not in conversation
    assert "look in tests/unit" in conversation
    assert "no D-Mail is pending" in steno("dmail", "show", "demo").err


def test_every_dmail_command_prints_its_document(steno: Steno) -> None:
    sent = steno("dmail", "send", "demo", "0", "-", "--json", stdin="from stdin").document
    assert set(sent) == ACK | {"mail_id"}
    printed = steno("dmail", "show", "demo", "--json").document
    assert set(printed) == {"session", "mail"}
    mail = printed["mail"]
    assert set(mail) == {"id", "checkpoint_id", "message", "cursor", "by", "at"}
    assert (mail["id"], mail["message"]) == (sent["mail_id"], "from stdin")
    assert (mail["checkpoint_id"], mail["cursor"]) == (0, "0:1")
    assert mail["at"] == pytest.approx(time.time(), abs=300)
    delivered = steno("dmail", "deliver", "demo", "--json").document
    assert set(delivered) == ACK | {"mail_id", "mail"}
    assert (delivered["mail_id"], delivered["mail"]) == (mail["id"], mail)
    assert delivered["rotated"].endswith("context_1.jsonl")
    assert steno("dmail", "show", "demo", "--json").document == {"session": "demo", "mail": None}


def test_the_checkpoint_of_a_delivery_can_be_shown_to_the_model(steno: Steno) -> None:
    steno("dmail", "send", "demo", "0", "back")
    steno("dmail", "deliver", "demo", "--add-user-message")
    assert "<system>CHECKPOINT 1</system>" in steno("show", "demo").out


def test_a_delivery_with_an_id_delivers_no_other_mail(steno: Steno) -> None:
    first = steno("dmail", "send", "demo", "0", "first").out.strip()
    assert steno("dmail", "deliver", "demo", first, "--json").document["mail"] is None
    second = steno("dmail", "send", "demo", "0", "second").out.strip()
    assert steno("dmail", "deliver", "demo", first).code != 0
    assert steno("dmail", "show", "demo").out.startswith(second)


def test_one_mail_is_pending_at_a_time_at_an_existing_checkpoint(steno: Steno) -> None:
    assert steno("dmail", "send", "demo", "7", "nowhere").code == 4
    assert steno("dmail", "deliver", "demo").code == 4
    assert steno("dmail", "send", "demo", "0", "first").code == 0
    ran = steno("dmail", "send", "demo", "0", "second", "--json")
    assert (ran.code, ran.out) == (1, "")
    assert ran.error["outcome"] == "not_applied"


def test_an_empty_mail_is_wrong_usage(steno: Steno) -> None:
    for text in ("", "-"):
        ran = steno("dmail", "send", "demo", "0", text, stdin="")
        assert (ran.code, ran.out) == (2, "")
        assert "a D-Mail must not be empty" in ran.err


def test_a_repeated_send_is_one_mail(steno: Steno) -> None:
    for _ in range(2):
        assert steno("dmail", "send", "demo", "0", "once", "--key", "m1").out == "m1\n"
    assert steno("dmail", "deliver", "demo").code == 0
    assert steno("dmail", "show", "demo").out == ""


def test_a_repeated_delivery_gets_its_first_answer(
    steno: Steno,
) -> None:
    first = steno("dmail", "send", "demo", "0", "first").out.strip()
    delivered = steno("dmail", "deliver", "demo", "--key", "d1", "--json").document
    for waits in (False, True):
        if waits:
            made = str(delivered["checkpoint_id"])
            steno("dmail", "send", "demo", made, "second", "--key", "m2")
        again = steno("dmail", "deliver", "demo", "--key", "d1", "--json").document
        assert (again["head"], again["rotated"]) == (delivered["head"], delivered["rotated"])
        assert (again["duplicate"], again["mail_id"], again["mail"]) == (True, first, None)
        ran = steno("dmail", "deliver", "demo", "--key", "d1")
        assert (ran.code, ran.out) == (0, "1:3\n")
        assert "delivered" not in ran.err
        assert "the key d1 was applied before" in ran.err
    assert steno("dmail", "show", "demo").out.startswith("m2 ")
