"""The async client in a cluster: it goes to the owners, and on when they move or die."""

import anyio
import pytest

import steno
from support.scripted_cluster import (
    DEADLINE_S,
    HOME,
    WAIT_S,
    ScriptedCluster,
    contents,
    message,
    wait_until_async,
)

pytestmark = pytest.mark.anyio


def connected(cluster: ScriptedCluster, timeout: float = WAIT_S) -> steno.Client:
    return steno.connect(endpoint=cluster.members[HOME].endpoint, timeout=timeout)


async def test_a_moved_session_is_followed_without_loss_or_duplicate(
    cluster: ScriptedCluster,
) -> None:
    seen: list[str] = []
    async with connected(cluster) as client:
        session = client.session("demo")
        async with session.subscribe() as subscription:

            async def read(count: int) -> None:
                with anyio.fail_after(WAIT_S):
                    while len(seen) < count:
                        event = await anext(subscription)
                        if isinstance(event, steno.RecordsEvent):
                            seen.extend(contents(event.lines()))

            for number, owner in enumerate([HOME, 1, 2, HOME]):
                cluster.move(owner)
                await session.append_message(message(number))
                await read(number + 1)
    assert seen == ["0", "1", "2", "3"]


async def test_an_owner_killed_among_appends_applies_each_once(cluster: ScriptedCluster) -> None:
    cluster.owner = 1
    cluster.members[1].loses_answers = 1 << 30
    async with connected(cluster) as client:
        session = client.session("demo")
        acks: dict[int, steno.Ack] = {}

        async def append(number: int) -> None:
            acks[number] = await session.append_message(message(number))

        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(append, number)
                await wait_until_async(lambda: len(cluster.acks) >= 10)
                await anyio.to_thread.run_sync(cluster.kill, 1)
                cluster.owner = None
    assert sorted(contents(cluster.lines), key=int) == [str(each) for each in range(20)]
    places = {str(acks[number].first): str(number) for number in acks}
    assert [places[f"0:{line}"] for line in range(20)] == contents(cluster.lines)


async def test_a_silent_owner_is_left_when_home_has_the_session(cluster: ScriptedCluster) -> None:
    cluster.owner = 1
    async with connected(cluster) as client:
        session = client.session("demo")
        async with session.subscribe("now") as subscription:
            await session.append_message(message(0))
            cluster.members[1].fall_silent()
            cluster.owner = HOME
            with anyio.fail_after(WAIT_S):
                await session.append_message(message(1))
                seen: list[str] = []
                while len(seen) < 2:
                    event = await anext(subscription)
                    if isinstance(event, steno.RecordsEvent):
                        seen += contents(event.lines())
    assert seen == ["0", "1"]


async def test_a_dead_owner_is_named_at_the_deadline(cluster: ScriptedCluster) -> None:
    cluster.owner = 1
    await anyio.to_thread.run_sync(cluster.kill, 1)
    async with connected(cluster, timeout=DEADLINE_S) as client:
        with pytest.raises(steno.Held, match="named as the session's owner") as refused:
            await client.stat("demo")
    assert refused.value.endpoint == cluster.members[1].endpoint
    assert cluster.members[1].endpoint in refused.value.message


async def test_owner_answers_while_home_is_dead(cluster: ScriptedCluster) -> None:
    cluster.owner = 1
    async with connected(cluster) as client:
        session = client.session("demo")
        await session.append_message(message(0))
        await anyio.to_thread.run_sync(cluster.kill, HOME)
        with anyio.fail_after(WAIT_S):
            await session.append_message(message(1))
    assert contents(cluster.lines) == ["0", "1"]


async def test_closing_ends_a_wait_for_an_owner(cluster: ScriptedCluster) -> None:
    cluster.owner = 1
    cluster.members[1].fall_silent()
    client = connected(cluster)
    raised: list[steno.StenoError] = []

    async def append() -> None:
        try:
            await client.session("demo").append_message(message(0))
        except steno.StenoError as error:
            raised.append(error)

    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks, client:
            tasks.start_soon(append)
            await wait_until_async(lambda: len(cluster.members[HOME].requests) >= 2)
    assert "the client was closed" in raised[0].message
