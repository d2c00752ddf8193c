"""The chat store of LlamaIndex, compared with the one in memory that comes with it."""

import inspect
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import steno
from interop.fake_models import run_llama
from interop.frameworks import framework
from interop.processes import check_two_writers, run_apart
from interop.session_processes import add_llama_messages, continue_llama_run
from steno.adapters.llama_index import StenoChatStore
from support.daemons import end_daemon_of

simple = framework("llama_index.core.storage.chat_store")
sql = framework("llama_index.core.storage.chat_store.sql")
ChatMessage = framework("llama_index.core.llms").ChatMessage

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

ASYNC = {
    name: name.replace("add_", "async_add_") if name == "add_message" else f"a{name}"
    for name in (
        "set_messages", "get_messages", "add_message", "delete_messages", "delete_message",
        "delete_last_message", "get_keys",
    )
}  # fmt: skip


@pytest.fixture
def client(root: Path) -> Iterator[steno.BlockingClient]:
    with steno.connect_sync(root) as client:
        yield client
    end_daemon_of(root)


@pytest.fixture
def store(client: steno.BlockingClient) -> Any:
    return StenoChatStore(client)


def message(text: str, **options: Any) -> Any:
    return ChatMessage(role="user", content=text, additional_kwargs=options)


def drawn_call(drawn: random.Random, number: int) -> tuple[str, list[Any]]:
    key = drawn.choice(["talk", "a/b", "", "ä" * 200])
    match drawn.choice(["add"] * 6 + ["get", "get", "last", "one", "one", "keys", "set", "rare"]):
        case "add":
            return "add_message", [key, message(str(number), n=number)]
        case "get":
            return "get_messages", [key]
        case "last":
            return "delete_last_message", [key]
        case "one":
            return "delete_message", [key, drawn.randint(-3, 12)]
        case "set":
            return "set_messages", [key, [message(f"{number}-{n}") for n in range(number % 4)]]
        case "rare" if drawn.random() < 0.5:
            return "delete_messages", [key]
        case _:
            return "get_keys", []


def outcome(call: Any, arguments: list[Any]) -> Any:
    try:
        return call(*arguments)
    except IndexError:
        # The interface says None where there is no message, and so does the adapter.
        return None


def shown(found: Any) -> Any:
    """A copy, because the store in memory gives its own list away; keys have no order."""
    is_keys = isinstance(found, list) and all(isinstance(each, str) for each in found)
    return sorted(found) if is_keys else found


@pytest.mark.slow
def test_2_000_random_operations_equal_those_in_memory(store: Any, seed: int) -> None:
    drawn, theirs = random.Random(seed), simple.SimpleChatStore()
    for number in range(2000):
        name, arguments = drawn_call(drawn, number)
        ours = outcome(getattr(store, name), arguments)
        assert shown(ours) == shown(outcome(getattr(theirs, name), arguments)), (name, arguments)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_200_random_operations_of_an_async_client_equal_those_in_memory(
    root: Path, seed: int
) -> None:
    drawn, theirs = random.Random(seed), simple.SimpleChatStore()
    async with steno.connect(root) as client:
        store: Any = StenoChatStore(client)
        for number in range(200):
            name, arguments = drawn_call(drawn, number)
            ours = await getattr(store, ASYNC[name])(*arguments)
            assert shown(ours) == shown(outcome(getattr(theirs, name), arguments))
        with pytest.raises(RuntimeError, match="StenoChatStore would block the event loop"):
            store.get_keys()
        assert sorted(await anyio.to_thread.run_sync(store.get_keys)) == sorted(theirs.get_keys())
    end_daemon_of(root)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_async_methods_of_a_blocking_client_do_not_block_the_loop(store: Any) -> None:
    await store.async_add_message("talk", message("a"))
    assert await store.aget_messages("talk") == [message("a")]
    assert await store.adelete_last_message("talk") == message("a")


def test_each_method_of_the_interface_is_there() -> None:
    interface = simple.base.BaseChatStore if hasattr(simple, "base") else simple.BaseChatStore
    abstract: set[str] = set(interface.__abstractmethods__)
    assert abstract == set(ASYNC)
    assert all(name in vars(StenoChatStore) for pair in ASYNC.items() for name in pair)
    assert not inspect.isabstract(StenoChatStore)


@pytest.mark.parametrize("name", ["", "a/b", "ä" * 300, "\ud800", ".."], ids=ascii)
def test_any_text_is_a_key(store: Any, name: str) -> None:
    store.add_message(name, message("a"))
    assert (store.get_keys(), store.get_messages(name)) == ([name], [message("a")])
    assert store.delete_messages(name) == [message("a")]
    assert (store.get_keys(), store.delete_messages(name)) == ([], None)


ODD = [float("nan"), "cut \ud83d", 2**70, -0.0, b"bytes", {1: 2}, "\u2028\0", [[]] * 3, object()]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("value", ODD, ids=[str(number) for number in range(len(ODD))])
async def test_an_odd_value_is_kept_as_in_the_database(
    store: Any, tmp_path: Path, value: Any
) -> None:
    engine = framework("sqlalchemy.ext.asyncio").create_async_engine(
        f"sqlite+aiosqlite:///{tmp_path}/chat.db"
    )
    theirs = sql.SQLAlchemyChatStore("messages", async_engine=engine)
    kept = []
    for add, get in (
        (store.async_add_message, store.aget_messages),
        (theirs.add_message, theirs.get_messages),
    ):
        try:
            await add("talk", message("a", odd=value))
        except Exception as error:
            kept.append(repr(type(error)))
        kept.append(repr(await get("talk")))
    await engine.dispose()
    assert kept[: len(kept) // 2] == kept[len(kept) // 2 :]


def test_two_processes_lose_nothing_while_the_daemon_is_killed(
    client: steno.BlockingClient, store: Any, root: Path
) -> None:
    check_two_writers(
        add_llama_messages, str(root), lambda: client.welcome.pid,
        lambda: [each.content for each in store.get_messages("talk")],
    )  # fmt: skip


def test_10_000_messages_are_set_and_read(store: Any) -> None:
    store.add_message("talk", message("old"))
    store.set_messages("talk", [message(str(number)) for number in range(10_000)])
    assert len(store.get_messages("talk")) == 10_000
    assert store.delete_message("talk", 5_000) == message("5000")
    assert store.delete_last_message("talk") == message("9999")
    assert len(store.delete_messages("talk")) == 9_998


def test_a_chat_is_resumed_by_another_process(root: Path, store: Any) -> None:
    run_llama(str(root), "Hello")
    run_apart(continue_llama_run, str(root))
    # The model answers with all that it was sent.
    assert "Hello" in run_llama(str(root), "Bye")
    asked = [each.content for each in store.get_messages("talk") if each.role == "user"]
    assert asked == ["Hello", "And now?", "Bye"]
