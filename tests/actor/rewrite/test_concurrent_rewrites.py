"""Rewrites that several clients ask for at once."""

import threading
from pathlib import Path

import pytest

import steno

pytestmark = pytest.mark.usefixtures("daemon")

CLIENTS = 4
CHECKPOINTS = 75


def _connected(root: Path) -> steno.BlockingClient:
    return steno.connect_sync(root, spawn=False)


def talk(client: steno.BlockingClient) -> steno.BlockingSession:
    session = client.open("demo")
    for number in range(3):
        session.checkpoint()
        session.append_message({"role": "user", "content": f"question {number}"})
    return session


def arrived(session: steno.BlockingSession) -> int:
    texts = [str(message["content"]) for message in session.history]
    return sum("this way" in text for text in texts)


def test_only_one_of_several_agents_delivers_a_mail(root: Path) -> None:
    with _connected(root) as client:
        session = talk(client)
        session.send_dmail(1, "this way", key="mail-1")
        start = threading.Barrier(4)
        delivered: list[steno.Ack] = []
        refused: list[str] = []

        def deliver() -> None:
            with _connected(root) as other:
                theirs = other.open("demo")
                start.wait()
                try:
                    delivered.append(theirs.deliver_dmail("mail-1"))
                except steno.NotFound as error:
                    refused.append(error.message)

        threads = [threading.Thread(target=deliver) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert (len(delivered), len(refused)) == (1, 3)
        assert all("it was delivered as generation 1" in message for message in refused)
        assert session.wait_for(delivered[0].head, timeout=60)
        assert arrived(session) == 1


@pytest.mark.parametrize("expecting", [False, True])
def test_two_reverts_get_one_result_each_in_a_defined_order(root: Path, expecting: bool) -> None:
    with _connected(root) as one, _connected(root) as two:
        first, second = one.open("race"), two.open("race")
        for _ in range(3):
            first.checkpoint()
        head = first.head if expecting else None
        assert first.revert_to(2, expect=head).head == first.head
        if expecting:
            with pytest.raises(steno.Conflict) as lost:
                second.revert_to(1, expect=head)
            assert lost.value.head == str(first.head)
        else:
            assert second.revert_to(1).head > first.head
            with pytest.raises(steno.NotFound, match="0 to 0 exist"):
                first.revert_to(2)


def test_checkpoints_of_four_clients_are_all_distinct(root: Path) -> None:
    numbers: list[int | None] = []

    def make_checkpoints() -> None:
        with _connected(root) as client:
            session = client.open("race", follow=False)
            numbers.extend(session.checkpoint().checkpoint_id for _ in range(CHECKPOINTS))

    threads = [threading.Thread(target=make_checkpoints) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for number in numbers if number is not None) == list(
        range(CLIENTS * CHECKPOINTS)
    )
