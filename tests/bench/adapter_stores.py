"""The frameworks' stores, behind steno and as they come, for one common measurement.

A framework is imported when one of its stores is opened.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Protocol

import anyio

import steno
from bench.crew import Task

_TEXT: Final = "What does the till say? " * 8


class Conversation(Protocol):
    """One conversation of a store."""

    async def append(self, number: int) -> None:
        """Store one entry; it returns when the store says that it is stored."""
        ...

    async def fill(self, count: int) -> None:
        """Store entries, together where the interface can."""
        ...

    async def load(self) -> int:
        """Load all entries, and return how many there are."""
        ...


Opened = AbstractAsyncContextManager[Conversation]


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework: the adapter of steno, and the framework's own store.

    Attributes:
        package: what has to be installed.
        adapter: the module of steno.
        own: the name of its own store.
        is_shared: whether several processes can use its own store.
        open_steno: opens a conversation behind steno.
        open_own: opens one in its own store.
    """

    package: str
    adapter: str
    own: str
    is_shared: bool
    open_steno: Callable[[Task], Opened]
    open_own: Callable[[Task], Opened]

    def why_not(self) -> str | None:
        """Why it cannot be measured here, None when it can."""
        for module in (*self.package.split(), self.adapter):
            try:
                found = find_spec(module)
            except ModuleNotFoundError:
                found = None
            if found is None:
                return f"{module} is not installed"
        return None


class _Claude:
    """A transcript of the Claude Agent SDK."""

    _KEY: Final = {"project_key": "bench", "session_id": "talk"}

    def __init__(self, store: Any) -> None:
        self._store = store

    async def append(self, number: int) -> None:
        """See `Conversation`."""
        await self._store.append(self._KEY, [_entry(number)])

    async def fill(self, count: int) -> None:
        """See `Conversation`."""
        await self._store.append(self._KEY, [_entry(number) for number in range(count)])

    async def load(self) -> int:
        """See `Conversation`."""
        return len(await self._store.load(self._KEY))


def _entry(number: int) -> dict[str, Any]:
    uuid = f"{number}-{time.perf_counter_ns()}"
    return {"type": "user", "uuid": uuid, "message": {"role": "user", "content": _TEXT}}


class _OpenAi:
    """A session of the OpenAI Agents SDK."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def append(self, number: int) -> None:
        """See `Conversation`."""
        await self._session.add_items([{"role": "user", "content": f"{number} {_TEXT}"}])

    async def fill(self, count: int) -> None:
        """See `Conversation`."""
        items = [{"role": "user", "content": f"{number} {_TEXT}"} for number in range(count)]
        await self._session.add_items(items)

    async def load(self) -> int:
        """See `Conversation`."""
        return len(await self._session.get_items())


class _LangGraph:
    """A thread of LangGraph; an entry is a checkpoint with one value."""

    _CONFIG: Final = {"configurable": {"thread_id": "talk", "checkpoint_ns": ""}}

    def __init__(self, saver: Any) -> None:
        self._saver = saver
        self._base = import_module("langgraph.checkpoint.base")

    async def append(self, number: int) -> None:
        """See `Conversation`."""
        checkpoint = self._base.empty_checkpoint()
        checkpoint["channel_values"] = {"text": _TEXT}
        checkpoint["channel_versions"] = {"text": number + 1}
        await self._saver.aput(self._CONFIG, checkpoint, {"step": number}, {"text": number + 1})

    async def fill(self, count: int) -> None:
        """See `Conversation`."""
        for number in range(count):
            await self.append(number)

    async def load(self) -> int:
        """See `Conversation`."""
        return len([each async for each in self._saver.alist(self._CONFIG)])


class _PydanticAi:
    """A conversation of Pydantic-AI; a conflict is loaded and saved again."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._module = import_module("pydantic_ai.conversation_store")
        self._messages = import_module("pydantic_ai.messages")
        self._conversation: Any = None

    async def append(self, number: int) -> None:
        """See `Conversation`."""
        message = self._message(number)
        while True:
            if self._conversation is None:
                self._conversation = await self._latest()
            self._conversation.messages.append(message)
            try:
                await self._store.save(self._conversation)
            except self._module.ConversationConflict:
                self._conversation = None
            else:
                return

    async def fill(self, count: int) -> None:
        """See `Conversation`."""
        conversation = await self._latest()
        conversation.messages += [self._message(number) for number in range(count)]
        await self._store.save(conversation)

    def _message(self, number: int) -> Any:
        prompt = self._messages.UserPromptPart(f"{number} {_TEXT}")
        return self._messages.ModelRequest(parts=[prompt])

    async def _latest(self) -> Any:
        new = import_module("pydantic_ai").Conversation(conversation_id="talk")
        return await self._store.load("talk", limit=1) or new

    async def load(self) -> int:
        """See `Conversation`."""
        return len((await self._store.load("talk")).messages)


class _Adk:
    """A session of Google's ADK; a stale one is loaded again."""

    _NAMES: Final = {"app_name": "bench", "user_id": "user", "session_id": "talk"}

    def __init__(self, service: Any) -> None:
        self._service = service
        self._stale = import_module("google.adk.errors._stale_session_error").StaleSessionError
        self._event = import_module("google.adk.events.event").Event
        self._types = import_module("google.genai.types")
        self._session: Any = None

    async def append(self, number: int) -> None:
        """See `Conversation`."""
        event = self._event(
            author="user", id=f"{number}-{time.perf_counter_ns()}", timestamp=time.time(),
            content=self._types.UserContent(f"{number} {_TEXT}"),
        )  # fmt: skip
        while True:
            self._session = self._session or await self._latest()
            try:
                await self._service.append_event(self._session, event)
            except self._stale:
                self._session = None
            else:
                return

    async def _latest(self) -> Any:
        found = await self._service.get_session(**self._NAMES)
        return found or await self._service.create_session(**self._NAMES)

    async def fill(self, count: int) -> None:
        """See `Conversation`."""
        for number in range(count):
            await self.append(number)

    async def load(self) -> int:
        """See `Conversation`."""
        return len((await self._service.get_session(**self._NAMES)).events)


class _Strands:
    """The messages of an agent of Strands; a number that is taken is counted on."""

    def __init__(self, repository: Any) -> None:
        self._repository = repository
        self._types = import_module("strands.types.session")
        self._taken = import_module("strands.types.exceptions").SessionException
        self._next: int | None = None

    async def append(self, number: int) -> None:
        """See `Conversation`."""
        content = {"role": "user", "content": [{"text": f"{number} {_TEXT}"}]}
        if self._next is None:
            self._next = self._count()
        while True:
            message = self._types.SessionMessage.from_message(content, self._next)
            self._next += 1
            try:
                self._repository.create_message("talk", "agent", message)
            except self._taken:
                continue
            return

    async def fill(self, count: int) -> None:
        """See `Conversation`."""
        for number in range(count):
            await self.append(number)

    async def load(self) -> int:
        """See `Conversation`."""
        return len(self._repository.list_messages("talk", "agent"))

    def _count(self) -> int:
        try:
            return len(self._repository.list_messages("talk", "agent"))
        except self._taken:
            return 0


class _LlamaIndex:
    """The messages of a key of LlamaIndex."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._message = import_module("llama_index.core.llms").ChatMessage
        # The database has async methods alone, without the prefix.
        is_database = not hasattr(store, "aget_messages")
        self._add = store.add_message if is_database else store.async_add_message
        self._set = store.set_messages if is_database else store.aset_messages
        self._get = store.get_messages if is_database else store.aget_messages

    async def append(self, number: int) -> None:
        """See `Conversation`."""
        await self._add("talk", self._text(number))

    async def fill(self, count: int) -> None:
        """See `Conversation`."""
        await self._set("talk", [self._text(number) for number in range(count)])

    async def load(self) -> int:
        """See `Conversation`."""
        return len(await self._get("talk"))

    def _text(self, number: int) -> Any:
        return self._message(role="user", content=f"{number} {_TEXT}")


class _AgentFramework:
    """The history of a session of the Microsoft Agent Framework."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._message = import_module("agent_framework").Message

    async def append(self, number: int) -> None:
        """See `Conversation`."""
        await self._provider.save_messages("talk", [self._text(number)])

    async def fill(self, count: int) -> None:
        """See `Conversation`."""
        texts = [self._text(number) for number in range(count)]
        await self._provider.save_messages("talk", texts)

    async def load(self) -> int:
        """See `Conversation`."""
        return len(await self._provider.get_messages("talk"))

    def _text(self, number: int) -> Any:
        return self._message("user", [f"{number} {time.perf_counter_ns()} {_TEXT}"])


def _behind_steno(
    made: Callable[[Any], Conversation], adapter: str, name: str, *before: str
) -> Callable[[Task], Opened]:
    @asynccontextmanager
    async def opened(task: Task) -> AsyncIterator[Conversation]:
        async with steno.connect(task.root, spawn=False) as client:
            yield made(getattr(import_module(adapter), name)(*before, client))

    return opened


def _as_it_comes(
    made: Callable[[Any], Conversation], module: str, name: str
) -> Callable[[Task], Opened]:
    """A store in memory, which takes no arguments."""

    @asynccontextmanager
    async def opened(_task: Task) -> AsyncIterator[Conversation]:
        yield made(getattr(import_module(module), name)())

    return opened


@asynccontextmanager
async def _openai_sqlite(task: Task) -> AsyncIterator[Conversation]:
    session = import_module("agents.memory").SQLiteSession("talk", f"{task.sqlite}-openai")
    yield _OpenAi(session)
    session.close()


@asynccontextmanager
async def _langgraph_sqlite(task: Task) -> AsyncIterator[Conversation]:
    saver = import_module("langgraph.checkpoint.sqlite.aio").AsyncSqliteSaver
    async with saver.from_conn_string(f"{task.sqlite}-langgraph") as opened:
        await opened.setup()
        yield _LangGraph(opened)


@asynccontextmanager
async def _adk_database(task: Task) -> AsyncIterator[Conversation]:
    sessions = import_module("google.adk.sessions.database_session_service")
    service = sessions.DatabaseSessionService(f"sqlite+aiosqlite:///{task.sqlite}-adk")
    yield _Adk(service)
    await service.close()


@asynccontextmanager
async def _strands_behind_steno(task: Task) -> AsyncIterator[Conversation]:
    repository = import_module("steno.adapters.strands").StenoSessionRepository
    with steno.connect_sync(task.root, spawn=False) as client:
        yield _Strands(repository(client))


@asynccontextmanager
async def _strands_files(task: Task) -> AsyncIterator[Conversation]:
    manager = import_module("strands.session.file_session_manager").FileSessionManager
    yield _Strands(manager("talk", storage_dir=f"{task.sqlite}-strands"))


@asynccontextmanager
async def _llama_database(task: Task) -> AsyncIterator[Conversation]:
    store = import_module("llama_index.core.storage.chat_store.sql").SQLAlchemyChatStore
    yield _LlamaIndex(store("messages", f"sqlite+aiosqlite:///{task.sqlite}-llama"))


@asynccontextmanager
async def _agent_framework_file(task: Task) -> AsyncIterator[Conversation]:
    provider = import_module("agent_framework").FileHistoryProvider
    yield _AgentFramework(provider(f"{task.sqlite}-history"))


FRAMEWORKS: Final = {
    "Claude Agent SDK": Framework(
        "claude_agent_sdk", "steno.adapters.claude_agent_sdk",
        "InMemorySessionStore", False,
        _behind_steno(_Claude, "steno.adapters.claude_agent_sdk", "StenoSessionStore"),
        _as_it_comes(_Claude, "claude_agent_sdk", "InMemorySessionStore"),
    ),
    "OpenAI Agents SDK": Framework(
        "agents", "steno.adapters.openai_agents",
        "SQLiteSession", True,
        _behind_steno(_OpenAi, "steno.adapters.openai_agents", "StenoSession", "talk"),
        _openai_sqlite,
    ),
    "LangGraph": Framework(
        "langgraph.checkpoint.base langgraph.checkpoint.sqlite", "steno.adapters.langgraph",
        "AsyncSqliteSaver", True,
        _behind_steno(_LangGraph, "steno.adapters.langgraph", "StenoSaver"),
        _langgraph_sqlite,
    ),
    "Pydantic-AI": Framework(
        "pydantic_ai", "steno.adapters.pydantic_ai",
        "InMemoryConversationStore", False,
        _behind_steno(_PydanticAi, "steno.adapters.pydantic_ai", "StenoConversationStore"),
        _as_it_comes(_PydanticAi, "pydantic_ai.conversation_store", "InMemoryConversationStore"),
    ),
    "Google ADK": Framework(
        "google.adk sqlalchemy aiosqlite", "steno.adapters.google_adk",
        "DatabaseSessionService", True,
        _behind_steno(_Adk, "steno.adapters.google_adk", "StenoSessionService"),
        _adk_database,
    ),
    "Strands Agents": Framework(
        "strands", "steno.adapters.strands",
        "FileSessionManager", False,
        _strands_behind_steno, _strands_files,
    ),
    "LlamaIndex": Framework(
        "llama_index.core aiosqlite", "steno.adapters.llama_index",
        "SQLAlchemyChatStore", True,
        _behind_steno(_LlamaIndex, "steno.adapters.llama_index", "StenoChatStore"),
        _llama_database,
    ),
    "Microsoft Agent Framework": Framework(
        "agent_framework", "steno.adapters.agent_framework",
        "FileHistoryProvider", False,
        _behind_steno(_AgentFramework, "steno.adapters.agent_framework", "StenoHistoryProvider"),
        _agent_framework_file,
    ),
}  # fmt: skip


class AdapterLane:
    """Appends to one conversation of a framework; see `bench.lanes.Lane`."""

    def __init__(self, opened: Callable[[Task], Opened], task: Task) -> None:
        self._opened = opened
        self._task = task
        self._latencies: list[float] = []

    def run(self, begin: Callable[[], None]) -> list[float]:
        """See `bench.lanes.Lane`."""
        anyio.run(self._run, begin)
        return self._latencies

    async def _run(self, begin: Callable[[], None]) -> None:
        async with self._opened(self._task) as conversation:
            begin()
            for number in range(self._task.appends):
                start = time.perf_counter()
                await conversation.append(number)
                self._latencies.append((time.perf_counter() - start) * 1e6)


def adapter_lane(task: Task) -> AdapterLane:
    """The lane of a task whose lane is a framework's name and `steno` or `own`."""
    name, _, which = task.lane.rpartition(": ")
    framework = FRAMEWORKS[name]
    return AdapterLane(framework.open_steno if which == "steno" else framework.open_own, task)


ADAPTER_LANES: Final = {
    f"{name}: {which}": adapter_lane for name in FRAMEWORKS for which in ("own", "steno")
}
