"""The session service of Google's ADK, compared with the services that come with it."""

import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

import steno
from interop.fake_models import run_adk
from interop.frameworks import framework
from interop.processes import check_two_writers, run_apart
from interop.session_processes import ADK_NAMES, append_adk_events, continue_adk_run
from steno.adapters.google_adk import StenoSessionService

sessions = framework("google.adk.sessions")
database = framework("google.adk.sessions.database_session_service")
config_of = framework("google.adk.sessions.base_session_service").GetSessionConfig
events = framework("google.adk.events.event")
actions = framework("google.adk.events.event_actions")
types = framework("google.genai.types")
StaleSessionError = framework("google.adk.errors._stale_session_error").StaleSessionError
SessionNotFoundError = framework("google.adk.errors.session_not_found_error").SessionNotFoundError
AlreadyExistsError = framework("google.adk.errors.already_exists_error").AlreadyExistsError

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.interop,
    pytest.mark.parametrize("anyio_backend", ["asyncio"]),
    # The framework's own packages warn of each other.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def client(client_of_process: steno.Client) -> steno.Client:
    """Some tests kill the daemon."""
    return client_of_process


@pytest.fixture
def service(client: steno.Client) -> Any:
    return StenoSessionService(client)


@pytest.fixture
async def theirs(tmp_path: Path) -> AsyncIterator[Any]:
    service = database.DatabaseSessionService(f"sqlite+aiosqlite:///{tmp_path}/adk.db")
    yield service
    await service.close()


def event(name: str, at: float = 1.0, delta: dict[str, Any] | None = None) -> Any:
    content = types.Content(role="user", parts=[types.Part(text=name)])
    state = actions.EventActions(state_delta=delta or {})
    return events.Event(author="user", id=name, timestamp=at, content=content, actions=state)


def shown(session: Any) -> Any:
    """A session without what each service draws itself."""
    if session is None:
        return None
    dumped = session.model_dump(mode="json", exclude={"last_update_time"})
    return dumped, bool(session.last_update_time)


class Same:
    """Two services in which the same happens."""

    def __init__(self, *services: Any) -> None:
        self.services = services
        self.held: dict[str, list[Any]] = {}

    async def both(self, name: str, **arguments: Any) -> list[Any]:
        """Call a method of both, and compare the results or the kinds of the errors."""
        found = [await outcome(getattr(each, name)(**arguments)) for each in self.services]
        results = [each if isinstance(each, type) else shown_result(each) for each in found]
        assert results[0] == results[1], (name, arguments)
        return found

    async def append(self, held: list[Any], *given: Any) -> None:
        """Append an event to the session objects of both."""
        made = [
            await outcome(service.append_event(session, event(*given)))
            for service, session in zip(self.services, held, strict=True)
        ]
        ours, database_s = [each if isinstance(each, type) else shown_result(each) for each in made]
        assert ours == database_s
        assert held[0].state == held[1].state
        assert [each.id for each in held[0].events] == [each.id for each in held[1].events]


def shown_result(found: Any) -> Any:
    if hasattr(found, "sessions"):
        listed = [shown(each) for each in found.sessions]
        return sorted(listed, key=lambda each: (each[0]["user_id"], each[0]["id"]))
    return shown(found) if hasattr(found, "events") else found


async def outcome(work: Any) -> Any:
    try:
        return await work
    except Exception as error:
        return type(error)


@pytest.mark.slow
async def test_2_000_random_operations_equal_those_of_the_database(
    service: Any, theirs: Any, seed: int
) -> None:
    drawn, same = random.Random(seed), Same(service, theirs)
    held: dict[tuple[str, str], list[Any]] = {}
    for number in range(2000):
        user, name = drawn.choice(["ada", "b/ob"]), drawn.choice(["1", "2", "ä/ö"])
        place = {"app_name": "shop", "user_id": user, "session_id": name}
        key = drawn.choice(["", "app:", "user:", "temp:"]) + drawn.choice("ab")
        delta = {key: drawn.choice([number, None, {"n": [number]}, "text"])}
        match drawn.choice(["append"] * 12 + ["get", "create", "recent", "rare"]):
            case "append" if (user, name) in held:
                await same.append(
                    held[user, name], f"e{number}", float(number), delta if number % 2 else None
                )
            case "create":
                made = await same.both("create_session", **place, state=delta)
                if not isinstance(made[0], type):
                    held[user, name] = made
            case "get":
                found = await same.both("get_session", **place)
                if found[0] is not None and drawn.random() < 0.5:
                    held[user, name] = found
            case "recent":
                config = config_of(
                    num_recent_events=drawn.choice([None, 0, 1, 3]),
                    after_timestamp=drawn.choice([None, float(drawn.randint(0, number))]),
                )
                await same.both("get_session", **place, config=config)
            case _ if drawn.random() < 0.5:
                await same.both("delete_session", **place)
            case _:
                whose = {"user_id": user} if drawn.random() < 0.5 else {}
                await same.both("list_sessions", app_name="shop", **whose)
                await same.both("get_user_state", app_name="shop", user_id=user)


async def test_a_stale_session_is_the_error_of_the_framework(service: Any) -> None:
    await service.create_session(**ADK_NAMES)
    first, second = [await service.get_session(**ADK_NAMES) for _ in range(2)]
    await service.append_event(first, event("1", delta={"temp:x": 1, "a": 1}))
    with pytest.raises(StaleSessionError, match="get it again"):
        await service.append_event(second, event("2"))
    await service.append_event(first, event("3"))
    assert first.state == {"temp:x": 1, "a": 1}
    found = await service.get_session(**ADK_NAMES)
    assert ([each.id for each in found.events], found.state) == (["1", "3"], {"a": 1})


async def test_a_session_object_of_another_service_is_stale_by_its_events(service: Any) -> None:
    await service.create_session(**ADK_NAMES)
    mine = await service.get_session(**ADK_NAMES)
    await service.append_event(mine, event("1", 5.0))
    made = sessions.Session(id="talk", app_name="shop", user_id="ada", last_update_time=1.0)
    with pytest.raises(StaleSessionError):
        await service.append_event(made, event("2", 6.0))
    made.events.append(event("1", 5.0))
    await service.append_event(made, event("2", 6.0))
    assert len((await service.get_session(**ADK_NAMES)).events) == 2


async def test_an_event_that_is_appended_again_is_stored_once(service: Any) -> None:
    session = await service.create_session(**ADK_NAMES)
    before = session.model_copy(deep=True)
    await service.append_event(session, event("1", delta={"app:n": 1}))
    # Its answer was lost: the program repeats the call with the object as it was.
    await service.append_event(before, event("1", delta={"app:n": 1}))
    await service.append_event(session, event("1", delta={"app:n": 1}))
    assert [each.id for each in session.events] == ["1"]
    await service.append_event(before, event("2"))
    assert [each.id for each in (await service.get_session(**ADK_NAMES)).events] == ["1", "2"]
    with pytest.raises(steno.Conflict, match="with other contents"):
        await service.append_event(before, event("2", delta={"a": 1}))


async def test_a_missing_session_is_the_error_of_the_framework(service: Any) -> None:
    session = await service.create_session(**ADK_NAMES)
    await service.delete_session(**ADK_NAMES)
    await service.delete_session(**ADK_NAMES)
    for name in ("1", str(actions.EventActions), "0199c0de-0000-7000-8000-000000000000"):
        with pytest.raises(SessionNotFoundError):
            await service.append_event(session, event(name))
    unknown = sessions.Session(id="other", app_name="shop", user_id="ada")
    with pytest.raises(SessionNotFoundError):
        await service.append_event(unknown, event("1"))
    assert await service.get_session(**ADK_NAMES) is None


async def test_of_many_creations_one_wins(service: Any) -> None:
    made: list[Any] = []

    async def create() -> None:
        made.append(await outcome(service.create_session(**ADK_NAMES)))

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(create)
    assert sum(each is AlreadyExistsError for each in made) == 7


NAMES = ["", "a/b", "ä" * 300, "\ud800", "..", "context.jsonl", "_==state", "x" * 200, " talk "]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
async def test_any_text_is_a_name(service: Any, name: str) -> None:
    place = {"app_name": name, "user_id": name, "session_id": name}
    session = await service.create_session(**place, state={"app:a": 1, "user:u": 2, "s": 3})
    await service.append_event(session, event("1"))
    [listed] = (await service.list_sessions(app_name=name)).sessions
    assert (listed.id, listed.user_id) == (name, name)
    assert listed.state == {"app:a": 1, "user:u": 2, "s": 3}
    assert (await service.get_session(**place)).events == [event("1")]


ODD = [
    float("nan"), "\ud800", 2**70, -0.0, b"bytes", {1: 2}, {1, 2}, object, "\u2028\0", [[]] * 3,
    10**5000,
]  # fmt: skip


@pytest.mark.parametrize("value", ODD, ids=[str(number) for number in range(len(ODD))])
async def test_an_odd_value_is_kept_as_in_the_database_or_refused(
    service: Any, theirs: Any, value: object
) -> None:
    kept = []
    for each in (service, theirs):
        session = await each.create_session(**ADK_NAMES)
        made = await outcome(each.append_event(session, event("1", delta={"odd": value})))
        found = await each.get_session(**ADK_NAMES)
        kept.append((isinstance(made, type), repr(found.state), [one.id for one in found.events]))
    ours, database_s = kept
    if ours[0] and not database_s[0]:
        # What JSON cannot hold: the error names it, and nothing is stored.
        assert ours[1:] == ("{}", [])
        assert value != value or value == 10**5000
    else:
        assert ours == database_s


async def test_the_death_of_the_daemon_is_a_delay(client: steno.Client, service: Any) -> None:
    session = await service.create_session(**ADK_NAMES)
    for number in range(5):
        os.kill(client.welcome.pid, signal.SIGKILL)
        await service.append_event(session, event(f"{number}", delta={"app:n": number}))
    found = await service.get_session(**ADK_NAMES)
    assert [each.id for each in found.events] == [str(number) for number in range(5)]
    assert found.state == {"app:n": 4}


async def test_two_processes_lose_nothing_while_the_daemon_is_killed(
    client: steno.Client, service: Any, root: Path
) -> None:
    async def texts() -> list[str]:
        return [each.id for each in (await service.get_session(**ADK_NAMES)).events]

    await service.create_session(**ADK_NAMES)
    await anyio.to_thread.run_sync(
        lambda: check_two_writers(
            append_adk_events, str(root), lambda: client.welcome.pid,
            lambda: anyio.from_thread.run(texts),
        )
    )  # fmt: skip


async def test_10_000_events_are_read(client: steno.Client, service: Any) -> None:
    await service.create_session(**ADK_NAMES)
    stream = await client.session("google-adk/shop/ada/talk").stream("events")
    row = {"event": event("x").model_dump(exclude_none=True, mode="json"), "delta": {}}
    for start in range(0, 10_000, 2500):
        rows = [
            {**row, "event": {**row["event"], "id": str(n)}, "delta": {"n": n}}
            for n in range(start, start + 2500)
        ]
        await stream.append(rows)
    session = await service.get_session(**ADK_NAMES)
    assert (len(session.events), session.state) == (10_000, {"n": 9999})
    await service.append_event(session, event("new"))
    recent = await service.get_session(**ADK_NAMES, config=config_of(num_recent_events=2))
    assert [each.id for each in recent.events] == ["9999", "new"]


async def test_an_agent_s_session_is_resumed_by_another_process(root: Path, client: Any) -> None:
    assert await run_adk(str(root), "Hello") == "heard 1: Hello"
    await anyio.to_thread.run_sync(run_apart, continue_adk_run, str(root))
    assert await run_adk(str(root), "Bye") == "heard 5: Bye"
    session = await StenoSessionService(client).get_session(**ADK_NAMES)
    assert session.state == {"answer": "heard 5: Bye", "user:city": "Turin"}
    assert len(session.events) == 6
