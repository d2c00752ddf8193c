"""D-Mail while the daemon is killed."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import steno

DELAYS_S = (0.0, 0.001, 0.004)


@contextmanager
def killed_after(client: steno.BlockingClient, delay_s: float) -> Iterator[None]:
    """The daemon dies a moment after the block began."""
    timer = threading.Timer(delay_s, os.kill, [client.status().pid, signal.SIGKILL])
    timer.start()
    try:
        yield
    finally:
        timer.join()


def talk(client: steno.BlockingClient) -> steno.BlockingSession:
    session = client.open("demo")
    for number in range(3):
        session.checkpoint()
        session.append_message({"role": "user", "content": f"question {number}"})
    return session


def kinds(session: steno.BlockingSession) -> list[str]:
    return [entry.kind for entry in session.timeline()]


def arrived(session: steno.BlockingSession) -> int:
    texts = [str(message["content"]) for message in session.history]
    return sum("this way" in text for text in texts)


@pytest.mark.parametrize("delay_s", DELAYS_S)
def test_a_daemon_that_is_killed_about_the_sending_leaves_one_mail(
    root: Path, delay_s: float
) -> None:
    with steno.connect_sync(root) as client:
        session = talk(client)
        with killed_after(client, delay_s):
            sent = session.send_dmail(1, "this way", key="mail-1")
        again = session.send_dmail(1, "this way", key="mail-1")

        assert sent.id == again.id == "mail-1"
        assert kinds(session).count("sent") == 1
        mail = session.pending_dmail()
        assert mail is not None
        assert (mail.id, mail.checkpoint_id, mail.message) == ("mail-1", 1, "this way")
        assert len(session.history) == 3


@pytest.mark.parametrize("delay_s", DELAYS_S)
def test_a_daemon_that_is_killed_about_the_delivery_leaves_one_message(
    root: Path, delay_s: float
) -> None:
    with steno.connect_sync(root) as client:
        session = talk(client)
        session.send_dmail(1, "this way", key="mail-1")
        with killed_after(client, delay_s):
            first = session.deliver_dmail("mail-1", key="delivery")
        again = session.deliver_dmail("mail-1", key="delivery")

        assert (first.head, first.checkpoint_id) == (again.head, again.checkpoint_id)
        assert again.duplicate
        assert kinds(session).count("delivered") == 1
        assert arrived(session) == 1
        assert len(session.history) == 2
        assert session.pending_dmail() is None
        assert session.n_checkpoints == first.id + 1
