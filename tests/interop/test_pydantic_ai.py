"""The conversation store of Pydantic-AI: the contract of its interface, and what steno adds.

The package has no conformance suite, so the contract is tested here, on its own store too.
"""

import dataclasses
import json
import multiprocessing
import os
import pickle
import random
import signal
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import anyio
import pytest

import steno
from interop.conversation_processes import run_agent, save_prompts
from interop.frameworks import framework
from steno.adapters.pydantic_ai import StenoConversationStore

stores = framework("pydantic_ai.conversation_store")
messages = framework("pydantic_ai.messages")
exceptions = framework("pydantic_ai.exceptions")
pydantic_ai = framework("pydantic_ai")
pydantic = framework("pydantic")

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

# What does not depend on the event loop.
BACKENDS = pytest.mark.parametrize("anyio_backend", ["asyncio"])

Conflict = stores.ConversationConflict
Store = Any


@pytest.fixture(params=["steno", "memory"])
def store(request: pytest.FixtureRequest) -> Store:
    """The adapter, and the framework's own store, which keeps the same contract."""
    if request.param == "memory":
        return stores.InMemoryConversationStore()
    return StenoConversationStore(request.getfixturevalue("client"))


@pytest.fixture
def own(client: steno.Client) -> Store:
    return StenoConversationStore(client)


def prompt(text: Any) -> Any:
    return messages.ModelRequest(parts=[messages.UserPromptPart(text)])


def returned(content: Any) -> Any:
    return messages.ModelRequest(parts=[messages.ToolReturnPart("tool", content, "call")])


def talk(*texts: str, name: str = "talk") -> Any:
    return pydantic_ai.Conversation(conversation_id=name, messages=[prompt(text) for text in texts])


def texts_of(conversation: Any) -> list[str]:
    return [message.parts[0].content for message in conversation.messages]


async def history(store: Store, name: str = "talk") -> list[str] | None:
    conversation = await store.load(name)
    return None if conversation is None else texts_of(conversation)


# The contract of the interface.


async def test_a_save_stores_the_new_messages_only(store: Store) -> None:
    conversation = talk("a", "b")
    first = await store.save(conversation)
    conversation.messages.append(prompt("c"))
    second = await store.save(conversation)
    assert [entry.message for entry in second] == conversation.messages[2:]
    assert await store.save(conversation) == []
    loaded = await store.load("talk")
    assert loaded == conversation
    assert await store.load_entries("talk") == [*first, *second]
    assert second[0].parent_id == first[1].id


async def test_what_the_record_carries_comes_back(store: Store) -> None:
    call = messages.ToolCallPart("pay", {"sum": 3}, "call")
    conversation = dataclasses.replace(
        talk("a"),
        usage=pydantic_ai.RunUsage(requests=2, input_tokens=30, details={"cached": 4}),
        deferred_tool_requests=pydantic_ai.DeferredToolRequests(
            approvals=[call], metadata={"call": {"why": ["sum"]}}
        ),
    )
    await store.save(conversation, scope="user")
    assert await store.load("talk") == conversation
    (record,) = await store.list_conversations()
    assert (record.scope, record.usage) == ("user", conversation.usage)


async def test_a_window_is_loaded_and_extended(store: Store) -> None:
    await store.save(talk(*"abcdef"))
    window = await store.load("talk", limit=2)
    assert texts_of(window) == ["e", "f"]
    window.messages.append(prompt("g"))
    await store.save(window)
    assert await history(store) == [*"abcdefg"]
    assert texts_of(await store.load("talk", limit=0)) == []
    with pytest.raises(exceptions.UserError):
        await store.load("talk", limit=-1)


async def test_a_save_of_an_old_revision_is_a_conflict(store: Store) -> None:
    await store.save(talk("a"))
    ours, theirs = await store.load("talk"), await store.load("talk")
    theirs.messages.append(prompt("theirs"))
    await store.save(theirs)
    ours.messages.append(prompt("ours"))
    with pytest.raises(Conflict) as raised:
        await store.save(ours)
    assert raised.value.conversation_id == "talk"
    assert await history(store) == ["a", "theirs"]


async def test_a_new_conversation_with_a_used_id_is_a_conflict(store: Store) -> None:
    await store.save(talk("a"))
    with pytest.raises(Conflict):
        await store.save(talk("b"))
    assert await history(store) == ["a"]


async def test_a_conversation_from_before_a_deletion_is_a_conflict(store: Store) -> None:
    old = talk("a")
    await store.save(old)
    await store.delete("talk")
    with pytest.raises(Conflict):
        await store.save(old)
    await store.save(talk("b"))
    with pytest.raises(Conflict):
        await store.save(old)
    assert await history(store) == ["b"]


async def test_another_scope_is_not_found(store: Store) -> None:
    await store.save(talk("a"), scope="one")
    assert await store.load("talk", scope="two") is None
    assert await store.list_conversations(scope="two") == []
    with pytest.raises(Conflict):
        await store.save(await store.load("talk"), scope="two")
    await store.delete("talk", scope="two")
    assert await history(store) == ["a"]
    with pytest.raises(exceptions.UserError):
        await store.fork("talk", source_scope="two")


async def test_a_branch_leaves_the_history_and_can_return_to_it(store: Store) -> None:
    conversation = talk("a", "b", "c")
    entries = await store.save(conversation)
    branch = await store.branch("talk", at=1, expected_revision=conversation.revision)
    branch.messages.append(prompt("other"))
    await store.save(branch)
    assert await history(store) == ["a", "other"]
    (record,) = await store.list_conversations()
    assert record.branches == [entries[-1].id]
    back = await store.branch("talk", from_entry=entries[1].id, expected_revision=record.revision)
    assert texts_of(back) == ["a", "b"]
    assert await history(store) == ["a", "b"]
    with pytest.raises(Conflict):
        await store.branch("talk", at=0, expected_revision=record.revision)


async def test_a_rewritten_history_branches_off(store: Store) -> None:
    conversation = talk("a", "b", "c")
    entries = await store.save(conversation)
    conversation.messages[1:] = [prompt("x"), prompt("y")]
    stored = await store.save(conversation)
    assert await history(store) == ["a", "x", "y"]
    assert stored[0].parent_id == entries[0].id
    conversation.messages[:] = [prompt("summary")]
    await store.save(conversation)
    assert await history(store) == ["summary"]
    (record,) = await store.list_conversations()
    assert record.branches == [entries[-1].id, stored[-1].id]


async def test_a_fork_goes_its_own_way(store: Store) -> None:
    entries = await store.save(talk("a", "b", "c"))
    fork = await store.fork("talk", at=2, new_conversation_id="fork", scope="else")
    fork.messages.append(prompt("other"))
    await store.save(fork)
    assert await history(store) == ["a", "b", "c"]
    assert await history(store, "fork") == ["a", "b", "other"]
    record = await store.read_record("fork")
    assert (record.forked_from, record.forked_at) == ("talk", entries[1].id)
    assert [each.id for each in await store.load_entries("fork", limit=3)][:2] == [
        entry.id for entry in entries[:2]
    ]
    await store.delete("talk")
    assert await history(store, "fork") == ["a", "b", "other"]
    again = await store.fork("fork", from_entry=entries[0].id)
    assert await history(store, again.conversation_id) == ["a"]


async def test_a_fork_from_a_branch_that_was_left(store: Store) -> None:
    conversation = talk("a", "b")
    entries = await store.save(conversation)
    await store.branch("talk", at=0, expected_revision=conversation.revision)
    fork = await store.fork("talk", from_entry=entries[1].id, new_conversation_id="fork")
    assert texts_of(fork) == ["a", "b"]
    assert await history(store, "fork") == ["a", "b"]
    assert await history(store) == []


async def test_a_fork_onto_a_stored_conversation_is_a_conflict(store: Store) -> None:
    await store.save(talk("a"))
    await store.save(talk("b", name="other"))
    with pytest.raises(Conflict):
        await store.fork("talk", new_conversation_id="other")
    assert await history(store, "other") == ["b"]


async def test_a_fork_takes_the_id_of_a_deleted_conversation(store: Store) -> None:
    await store.save(talk("a", "b"))
    await store.save(talk("old", name="other"))
    await store.delete("other")
    await store.fork("talk", at=1, new_conversation_id="other")
    assert await history(store, "other") == ["a"]


async def test_conversations_are_listed_with_the_last_saved_first(store: Store) -> None:
    for name in "abc":
        await store.save(talk(name, name=name), scope="odd" if name != "b" else None)
    again = await store.load("a")
    again.messages.append(prompt("more"))
    await store.save(again)
    listed = [record.conversation_id for record in await store.list_conversations()]
    assert listed == ["a", "c", "b"]
    assert [each.conversation_id for each in await store.list_conversations(limit=1)] == ["a"]
    odd = await store.list_conversations(scope="odd")
    assert [each.conversation_id for each in odd] == ["a", "c"]
    await store.delete("a")
    assert [each.conversation_id for each in await store.list_conversations()] == ["c", "b"]


async def test_an_unknown_conversation_is_none_or_an_error(store: Store) -> None:
    assert await store.load("talk") is None
    assert await store.load_entries("talk") is None
    assert await store.list_conversations() == []
    await store.delete("talk")
    with pytest.raises(exceptions.UserError):
        await store.branch("talk", at=0, expected_revision=None)
    with pytest.raises(exceptions.UserError):
        await store.fork("talk")
    with pytest.raises(Conflict):
        await store.delete_record("talk", expected_revision="none")
    with pytest.raises(LookupError):
        await store.read_entry("none")


async def test_an_entry_is_found_by_its_id_alone(store: Store) -> None:
    await store.save(talk("x", name="other"))
    entries = await store.save(talk("a", "b"))
    assert await store.read_entry(str(entries[1].id)) == entries[1]
    assert await store.read_history(str(entries[1].id)) == entries
    assert await store.read_history(str(entries[1].id), limit=1) == entries[1:]


async def test_a_head_that_nobody_has_is_a_conflict(store: Store) -> None:
    record = stores.ConversationRecord(conversation_id="talk", head_id="none")
    with pytest.raises(Conflict):
        await store.write_record(record, expected_revision=None)
    assert await store.read_record("talk") is None
    forked = dataclasses.replace(record, forked_from="gone", forked_at="none")
    with pytest.raises(Conflict):
        await store.write_record(forked, expected_revision=None)
    await store.save(talk("a"))
    stored = await store.read_record("talk")
    moved = dataclasses.replace(stored, head_id="none", revision="next")
    with pytest.raises(Conflict):
        await store.write_record(moved, expected_revision=stored.revision)
    assert await history(store) == ["a"]


async def test_of_entries_with_one_id_the_last_counts(store: Store) -> None:
    entry = stores.ConversationEntry(id="e", parent_id=None, message=prompt("a"))
    record = stores.ConversationRecord(conversation_id="talk", head_id="e")
    again = dataclasses.replace(entry, message=prompt("b"))
    await store.write_record(record, new_entries=[entry, again], expected_revision=None)
    assert await history(store) == ["b"]


async def test_a_returned_copy_changes_nothing(store: Store) -> None:
    await store.save(talk("a"))
    (await store.load("talk")).messages[0].parts[0].content = "changed"
    (await store.read_record("talk")).scope = "changed"
    assert await history(store) == ["a"]
    assert (await store.read_record("talk")).scope is None


# Random operations, compared with the framework's own store.


class Pair:
    """One conversation in both stores: the same operations, and what they gave.

    Ids and revisions are drawn by the interface, so they differ; entries are compared by place.
    """

    def __init__(self, ours: Store, theirs: Store, drawn: random.Random) -> None:
        self.both = (ours, theirs)
        self.drawn = drawn
        self.held: dict[str, list[Any]] = {}
        self.number = 0

    def name(self) -> str:
        return self.drawn.choice(["a", "b", "c", "d"])

    async def each(self, call: Callable[[Store, int], Any]) -> list[Any]:
        """The results in both stores, which have to be equal errors if one is an error."""
        results: list[Any] = []
        for number, store in enumerate(self.both):
            try:
                results.append(await call(store, number))
            except exceptions.UserError as error:
                results.append(type(error))
        assert isinstance(results[0], type) == isinstance(results[1], type), results
        if isinstance(results[0], type):
            assert results[0] is results[1]
        return results

    def hold(self, name: str, found: list[Any]) -> None:
        if found[0] is None or isinstance(found[0], type):
            assert found[0] is found[1]
            return
        ours, theirs = found
        assert ours.messages == theirs.messages
        assert ours.usage == theirs.usage
        self.held[name] = found

    async def load(self) -> None:
        name, limit = self.name(), self.drawn.choice([None, None, 0, 1, 5])
        scope = self.drawn.choice([None, None, "s"])
        self.hold(name, await self.each(lambda s, _: s.load(name, limit=limit, scope=scope)))

    async def save(self) -> None:
        name = self.name()
        held = self.held.setdefault(name, [talk(name=name), talk(name=name)])
        added = [prompt(f"{self.number}-{each}") for each in range(self.drawn.randint(0, 3))]
        self.number += 1
        cut = self.drawn.random() < 0.1
        at = self.drawn.randint(0, len(held[0].messages))
        for each in held:
            if cut:
                del each.messages[at:]
            each.messages += added
        scope = self.drawn.choice([None, None, None, "s"])
        await self.each(lambda s, number: s.save(held[number], scope=scope))

    async def branch(self) -> None:
        name, at = self.name(), self.drawn.choice([0, 1, 2, 9])
        held = self.held.get(name)
        revisions = [each.revision for each in held] if held else [None, None]
        self.hold(
            name,
            await self.each(
                lambda s, number: s.branch(name, at=at, expected_revision=revisions[number])
            ),
        )

    async def return_to_branch(self) -> None:
        name, place = self.name(), self.drawn.randint(0, 2)

        async def go_back(store: Store, _number: int) -> Any:
            record = await store.read_record(name)
            if record is None or place >= len(record.branches):
                return None
            return await store.branch(
                name, from_entry=record.branches[place], expected_revision=record.revision
            )

        self.hold(name, await self.each(go_back))

    async def fork(self) -> None:
        source, name, at = self.name(), self.name(), self.drawn.choice([None, 0, 1, 3])
        self.hold(
            name, await self.each(lambda s, _: s.fork(source, at=at, new_conversation_id=name))
        )

    async def delete(self) -> None:
        name = self.name()
        await self.each(lambda s, _: s.delete(name))

    async def look(self) -> None:
        lists = [await store.list_conversations() for store in self.both]
        shown = [
            [(r.conversation_id, r.scope, r.forked_from, len(r.branches), r.usage) for r in each]
            for each in lists
        ]
        assert shown[0] == shown[1]
        for ours, theirs in zip(*lists, strict=True):
            for one, other in zip(ours.branches, theirs.branches, strict=True):
                lines = [
                    await s.read_history(e) for s, e in zip(self.both, (one, other), strict=True)
                ]
                assert [e.message for e in lines[0]] == [e.message for e in lines[1]]


@BACKENDS
async def test_random_operations_equal_those_of_the_store_in_memory(own: Store, seed: int) -> None:
    pair = Pair(own, stores.InMemoryConversationStore(), random.Random(seed))
    choices = [pair.load, pair.save, pair.branch, pair.return_to_branch, pair.fork, pair.delete]
    for number in range(700):
        await pair.drawn.choices(choices, weights=[5, 8, 3, 2, 2, 1])[0]()
        if number % 50 == 0:
            await pair.look()
    await pair.look()


# What steno adds.


async def test_the_entries_of_a_save_are_one_batch(own: Store, client: steno.Client) -> None:
    await own.save(talk("a", "b"))
    stream = await client.session("pydantic-ai/talk").stream("log")
    rows = await stream.last(9)
    assert len(rows) == 3
    assert len({row.key for row in rows}) == 1


async def test_a_fork_is_the_daemons(own: Store, client: steno.Client) -> None:
    await own.save(talk("a"))
    await own.fork("talk", new_conversation_id="fork")
    (fork, _) = await client.sessions("pydantic-ai/")
    assert (fork.session, fork.forked_from) == ("pydantic-ai/fork", "pydantic-ai/talk")


@BACKENDS
@pytest.mark.parametrize("at", [1, 3])
async def test_an_interrupted_fork_is_no_conversation_and_is_made_again(
    own: Store, client: steno.Client, at: int
) -> None:
    await own.save(talk("a", "b"))
    # The process died between the two.
    await client.session("pydantic-ai/talk").fork("pydantic-ai/fork")
    assert await own.load("fork") is None
    assert [each.conversation_id for each in await own.list_conversations()] == ["talk"]
    conversation = await own.load("talk")
    conversation.messages.append(prompt("c"))
    await own.save(conversation)
    await own.fork("talk", at=at, new_conversation_id="fork")
    assert await history(own, "fork") == ["a", "b", "c"][:at]


@BACKENDS
async def test_a_long_save_that_is_interrupted_is_not_seen(
    own: Store, client: steno.Client
) -> None:
    conversation = talk("a")
    await own.save(conversation)
    stream = await client.session("pydantic-ai/talk").stream("log")
    # The first batches of a save whose last one, with the record, was never sent.
    rows = [b'{"id":"%d","parent_id":null,"message":null}' % number for number in range(5000)]
    await stream.append(rows[:4000])
    await stream.append(rows[4000:])
    assert await history(own) == ["a"]
    conversation.messages += [prompt(str(number)) for number in range(5000)]
    await own.save(conversation)
    assert len(await history(own) or ()) == 5001
    assert texts_of(await own.load("talk", limit=2)) == ["4998", "4999"]


@BACKENDS
async def test_any_id_names_a_conversation(own: Store) -> None:
    for name in ("..", "a/b", "-x", "ümlaut", "stream-log.mark", "con text", ".hidden"):
        await own.save(talk(name, name=name))
        assert await history(own, name) == [name]
    assert len(await own.list_conversations()) == 7
    with pytest.raises(steno.BadRequest):
        await own.load("")


@BACKENDS
async def test_an_id_that_the_store_returned_can_be_pickled(own: Store) -> None:
    await own.save(talk("a"))
    (entry,) = await own.load_entries("talk")
    copied = pickle.loads(pickle.dumps(entry))
    assert await own.read_entry(copied.id) == entry


async def test_ids_and_records_that_went_through_json_are_those_of_the_store(store: Store) -> None:
    await store.save(talk("x", name="other"))
    conversation = talk("a", "b")
    await store.save(conversation)
    await store.branch("talk", at=1, expected_revision=conversation.revision)
    entries = await store.load_entries("talk")
    records = pydantic.TypeAdapter(stores.ConversationRecord)
    stored = await store.read_record("talk")
    read = records.validate_json(records.dump_json(stored))
    assert (read, type(read.head_id)) == (stored, str)
    assert await store.read_history(read.head_id) == entries
    (left,) = json.loads(json.dumps(stored.branches))
    assert len(await store.read_history(left)) == 2
    back = await store.branch("talk", from_entry=left, expected_revision=read.revision)
    assert texts_of(back) == ["a", "b"]
    current = (await store.read_record("talk")).revision
    await store.write_record(dataclasses.replace(read, revision="next"), expected_revision=current)
    assert await history(store) == ["a"]
    fork = await store.fork("talk", from_entry=json.loads(json.dumps(entries[0].id)))
    assert await history(store, fork.conversation_id) == ["a"]


ODD = [
    float("nan"),
    float("inf"),
    {1, 2},
    b"\xff\x00",
    2**80,
    messages.BinaryContent(b"\xff\xfe", media_type="image/png"),
    {"nested": [(1, 2.5), None]},
    "\u2028 \x00 \x7f",
]


@BACKENDS
@pytest.mark.parametrize("value", ODD, ids=[str(type(each).__name__) for each in ODD])
async def test_an_odd_value_is_stored_as_the_framework_writes_it(own: Store, value: Any) -> None:
    adapter = messages.ModelMessagesTypeAdapter
    conversation = pydantic_ai.Conversation(conversation_id="talk", messages=[returned(value)])
    await own.save(conversation)
    loaded = (await own.load("talk")).messages
    assert loaded == adapter.validate_json(adapter.dump_json(conversation.messages))


@BACKENDS
@pytest.mark.parametrize("value", [object(), "\ud800"], ids=["object", "surrogate"])
async def test_a_value_that_is_not_json_is_refused_as_the_framework_refuses_it(
    own: Store, value: object
) -> None:
    conversation = talk("a")
    conversation.messages.append(returned(value))
    with pytest.raises(ValueError) as raised:
        await own.save(conversation)
    with pytest.raises(type(raised.value)):
        messages.ModelMessagesTypeAdapter.dump_json(conversation.messages)
    assert await own.load("talk") is None
    assert conversation.revision is None


@BACKENDS
async def test_a_message_that_is_too_large_is_refused(own: Store) -> None:
    conversation = talk("a")
    await own.save(conversation)
    before = await own.load("talk")
    conversation.messages += [prompt("b"), prompt("x" * 20_000_000)]
    with pytest.raises(steno.TooLarge):
        await own.save(conversation)
    assert await own.load("talk") == before
    del conversation.messages[2]
    await own.save(conversation)
    assert await history(own) == ["a", "b"]


async def test_the_death_of_the_daemon_is_a_delay(client_of_process: steno.Client) -> None:
    store = StenoConversationStore(client_of_process)
    conversation = talk("a")
    await store.save(conversation)
    for number in range(4):
        conversation.messages.append(prompt(str(number)))
        async with anyio.create_task_group() as group:
            group.start_soon(store.save, conversation)
            # Between the calls of the save, or in one of them.
            for _ in range(number):
                await anyio.lowlevel.checkpoint()
            os.kill(client_of_process.welcome.pid, signal.SIGKILL)
        assert await history(store) == ["a", *map(str, range(number + 1))]


def spawn(target: Callable[..., None], *args: Any) -> SpawnProcess:
    process = multiprocessing.get_context("spawn").Process(target=target, args=args)
    process.start()
    return process


async def end(*processes: SpawnProcess) -> None:
    for process in processes:
        await anyio.to_thread.run_sync(process.join)
        assert process.exitcode == 0


@BACKENDS
async def test_several_processes_get_conflicts_and_lose_no_message(own: Store, root: Path) -> None:
    await own.save(talk())
    processes = multiprocessing.get_context("spawn")
    all_loaded, conflicts = processes.Barrier(2, timeout=60), processes.Queue()
    writers = [spawn(save_prompts, str(root), f"w{n}", 40, all_loaded, conflicts) for n in range(2)]
    met = [await anyio.to_thread.run_sync(lambda: conflicts.get(timeout=60)) for _ in writers]
    await end(*writers)
    assert sum(met) > 0
    texts = await history(own)
    assert texts is not None
    assert len(texts) == 80
    for name in ("w0", "w1"):
        assert [text for text in texts if text.startswith(name)] == [
            f"{name}-{number}" for number in range(40)
        ]


@BACKENDS
async def test_an_agent_in_another_process_continues_a_conversation(own: Store, root: Path) -> None:
    outputs = multiprocessing.get_context("spawn").Queue()
    for text in ("one", "two"):
        await end(spawn(run_agent, str(root), text, outputs))
    assert [outputs.get(timeout=60) for _ in range(2)] == ["one", "one+one+two"]
    conversation = await own.load("talk")
    assert [type(each).__name__ for each in conversation.messages] == [
        "ModelRequest", "ModelResponse", "ModelRequest", "ModelResponse",
    ]  # fmt: skip
    assert conversation.usage.requests == 2
