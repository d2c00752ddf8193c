"""Lists of frameworks, whose streams begin again when most of their records are dead."""

import random
from operator import methodcaller
from typing import Any

import pytest

import steno
from steno.adapters._either_client import without_waiting
from steno.adapters._lists import RecordLists
from support.daemon_in_thread import DaemonInThread

Entries = list[tuple[str | None, dict[str, Any]]]


def entries(lists: RecordLists) -> Entries:
    state = without_waiting(lists.read("items"))
    return [] if state is None else list(zip(state.names, state.items, strict=True))


def test_random_changes_equal_those_of_a_list_in_bounded_space(
    daemon: DaemonInThread, seed: int
) -> None:
    draw = random.Random(seed)
    plain: Entries = []
    with steno.connect_sync(daemon.root) as client:
        lists = RecordLists(client, "talk")
        stream = client.session("talk").stream("items")
        for number in range(400):
            item, name = {"n": number}, draw.choice("abc")
            match draw.choice(["add", "add", "put", "delete", "delete", "delete", "all"]):
                case "add":
                    without_waiting(lists.append("items", [item]))
                    plain.append((None, item))
                case "put":
                    without_waiting(lists.change("items", methodcaller("put", name, item)))
                    names = [each for each, _ in plain]
                    at = names.index(name) if name in names else len(plain)
                    plain[at : at + 1] = [(name, item)]
                case "delete":
                    at = draw.randint(-len(plain), len(plain))
                    deleted = plain.pop(at)[1] if -len(plain) <= at < len(plain) else None
                    assert without_waiting(lists.delete("items", at)) == deleted
                case _ if draw.random() < 0.2:
                    without_waiting(lists.replace_all("items", [item, item]))
                    plain = [(None, item), (None, item)]
            if number % 5 == 0:
                assert entries(lists) == plain
        assert entries(lists) == plain
        head = stream.head()
    assert head.generation > 2
    assert head.line < 300


@pytest.mark.parametrize("count", [0, 100])
def test_replaced_items_leave_the_stream(daemon: DaemonInThread, count: int) -> None:
    with steno.connect_sync(daemon.root) as client:
        lists = RecordLists(client, "talk")
        without_waiting(lists.append("items", [{"n": each} for each in range(150)]))
        without_waiting(lists.replace_all("items", [{"m": each} for each in range(count)]))
        without_waiting(lists.replace_all("items", [{"m": each} for each in range(count)]))
        assert [item for _, item in entries(lists)] == [{"m": each} for each in range(count)]
        assert client.session("talk").stream("items").head().line <= 2 * count + 2
        assert [each.name for each in client.session("talk").streams()] == ["items"]
