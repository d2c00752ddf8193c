"""The session repository of Strands Agents, compared with the one of files that comes with it."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import steno
from interop.fake_models import run_strands
from interop.frameworks import framework
from interop.processes import check_two_writers, run_apart
from interop.session_processes import add_strands_messages, continue_strands_run
from steno.adapters.strands import StenoSessionRepository
from support.daemons import end_daemon_of

files = framework("strands.session.file_session_manager")
types = framework("strands.types.session")
SessionException = framework("strands.types.exceptions").SessionException

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def client(root: Path) -> Iterator[steno.BlockingClient]:
    with steno.connect_sync(root) as client:
        yield client
    end_daemon_of(root)


@pytest.fixture
def repository(client: steno.BlockingClient) -> Any:
    return StenoSessionRepository(client)


def message(number: int, text: Any = "hi") -> Any:
    content = {"role": "user", "content": [{"text": text}]}
    return types.SessionMessage(content, number, None, "created", "updated")


def agent(name: str = "till", **state: Any) -> Any:
    return types.SessionAgent(name, state, {}, {}, "created", "updated")


def session(name: str = "talk") -> Any:
    return types.Session(name, types.SessionType.AGENT, "created", "updated")


class MultiAgent:
    """What the interface needs of a swarm."""

    def __init__(self, name: str, number: int) -> None:
        self.id, self.number = name, number

    def serialize_state(self) -> dict[str, Any]:
        return {"n": self.number}


def outcome(call: Any, *arguments: Any, **options: Any) -> Any:
    try:
        return call(*arguments, **options)
    except Exception as error:
        return type(error)


@pytest.mark.slow
def test_2_000_random_operations_equal_those_of_files(
    repository: Any, tmp_path: Path, seed: int
) -> None:
    drawn = random.Random(seed)
    theirs = files.FileSessionManager("another", storage_dir=str(tmp_path))
    created: set[tuple[str, str, int]] = set()
    # In files an agent makes the folder of its session, which cannot be created any more then.
    for place in ("talk", "täglich"):
        assert repository.create_session(session(place)) == theirs.create_session(session(place))
    for number in range(2000):
        place, name = drawn.choice(["talk", "täglich"]), drawn.choice(["till", "sales"])
        least = drawn.choice([0, 60])
        one = drawn.randint(least, least + 60)
        arguments: tuple[Any, ...]
        match drawn.choice(
            ["create_message"] * 4
            + ["create_session", "read_session", "create_agent", "read_agent", "update_agent"]
            + ["read_message", "update_message", "list_messages", "multi_agent"]
        ):
            case "create_message" if (place, name, one) not in created:
                created.add((place, name, one))
                call, arguments = "create_message", (place, name, message(one, str(number)))
            case "create_session":
                call, arguments = "create_session", (session(place),)
            case "read_session":
                call, arguments = "read_session", (place,)
            case "create_agent" | "update_agent" as call:
                arguments = (place, agent(name, n=number))
            case "read_agent":
                call, arguments = "read_agent", (place, name)
            case "update_message":
                call, arguments = "update_message", (place, name, message(one, f"new {number}"))
            case "list_messages":
                limit, offset = drawn.choice([None, 0, 3, 100]), drawn.randint(0, 9)
                call, arguments = "list_messages", (place, name, limit, offset)
            case "multi_agent":
                call = drawn.choice(["create_multi_agent", "update_multi_agent"])
                state = MultiAgent(name, number)
                found = [
                    outcome(getattr(each, call), place, state) for each in (repository, theirs)
                ]
                assert found[0] == found[1]
                call, arguments = "read_multi_agent", (place, name)
            case _:
                call, arguments = "read_message", (place, name, one)
        found = [outcome(getattr(each, call), *arguments) for each in (repository, theirs)]
        assert found[0] == found[1], (call, arguments)


def test_a_number_that_another_process_used_is_refused(repository: Any) -> None:
    repository.create_message("talk", "till", message(0, "mine"))
    repository.create_message("talk", "till", message(0, "mine"))
    with pytest.raises(SessionException, match="read the session again"):
        repository.create_message("talk", "till", message(0, "theirs"))
    repository.update_message("talk", "till", message(0, "redacted"))
    assert repository.read_message("talk", "till", 0) == message(0, "redacted")
    with pytest.raises(ValueError, match="must be an integer"):
        repository.read_message("talk", "till", "../0")


def test_of_many_creations_one_wins(repository: Any) -> None:
    found = [outcome(repository.create_session, session()) for _ in range(3)]
    assert found == [session(), SessionException, SessionException]


@pytest.mark.parametrize("name", ["", "a/b", "ä" * 300, "\ud800", ".."], ids=ascii)
def test_any_text_is_a_name(repository: Any, name: str) -> None:
    repository.create_session(session(name))
    repository.create_agent(name, agent(name))
    repository.create_message(name, name, message(0))
    assert repository.read_session(name) == session(name)
    assert repository.read_agent(name, name) == agent(name)
    assert repository.list_messages(name, name) == [message(0)]


@pytest.mark.parametrize(
    "value", ["cut \ud83d", 2**70, b"bytes", -0.0, "\u2028\0", [[]] * 3], ids=ascii
)
def test_an_odd_value_is_kept_as_in_a_file(repository: Any, tmp_path: Path, value: Any) -> None:
    theirs = files.FileSessionManager("talk", storage_dir=str(tmp_path))
    kept = []
    for each in (repository, theirs):
        error = outcome(each.create_message, "talk", "till", message(0, value))
        kept.append(error if isinstance(error, type) else each.read_message("talk", "till", 0))
    # UTF-8 has no half of an emoji, so a file cannot keep it.
    assert kept[0] == kept[1] or value == "cut \ud83d"
    assert kept[0] == message(0, value)


@pytest.mark.parametrize("value", [float("nan"), object(), {1}], ids=["nan", "object", "set"])
def test_what_json_cannot_hold_is_refused_and_nothing_is_stored(
    repository: Any, client: steno.BlockingClient, value: Any
) -> None:
    with pytest.raises((steno.BadRequest, TypeError)):
        repository.create_message("talk", "till", message(0, value))
    assert client.sessions() == []


def test_two_processes_lose_nothing_while_the_daemon_is_killed(
    client: steno.BlockingClient, repository: Any, root: Path
) -> None:
    def texts() -> list[str]:
        messages = repository.list_messages("talk", "till")
        return [each.message["content"][0]["text"] for each in messages]

    repository.create_agent("talk", agent())
    check_two_writers(add_strands_messages, str(root), lambda: client.welcome.pid, texts)


def test_10_000_messages_are_read(client: steno.BlockingClient, repository: Any) -> None:
    repository.create_message("talk", "till", message(0))
    [name] = [each.name for each in client.session("strands/talk").streams()]
    stream = client.session("strands/talk").stream(name)
    for start in range(1, 10_000, 3333):
        numbers = range(start, start + 3333)
        stream.append([{"item": message(n).to_dict(), "name": str(n)} for n in numbers])
    assert repository.list_messages("talk", "till", 2, 9_998) == [message(9998), message(9999)]
    assert repository.read_message("talk", "till", 9_999) == message(9_999)
    repository.update_message("talk", "till", message(5_000, "new"))
    assert repository.list_messages("talk", "till")[5_000] == message(5_000, "new")


def test_an_agent_s_session_is_resumed_by_another_process(root: Path, repository: Any) -> None:
    assert run_strands(str(root), "Hello") == "heard 1: Hello"
    run_apart(continue_strands_run, str(root))
    assert run_strands(str(root), "Bye") == "heard 5: Bye"
    assert len(repository.list_messages("talk", "till")) == 6
