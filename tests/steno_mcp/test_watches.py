"""Resources that several peers follow, while their subscriptions at the daemon fail."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from steno_mcp.watches import Watches
from steno_protocol.errors import StenoError
from support.followed_sessions import FollowedSessions, until

pytestmark = pytest.mark.anyio

URI = "steno://session/x"


class _Peers:
    """The watches of a server, and what its peers saw."""

    def __init__(self, tasks: Any) -> None:
        self.daemon = FollowedSessions()
        self.seen: list[str] = []
        client: Any = self.daemon
        self.watches = Watches(client, tasks, lambda _: self.seen.append("update"))

    async def follow(self, name: str) -> Any:
        def ended(_: str, __: StenoError) -> None:
            self.seen.append(f"end of {name}")

        return await self.watches.follow(URI, ended)


@asynccontextmanager
async def peers() -> AsyncGenerator[tuple[_Peers, Any]]:
    async with anyio.create_task_group() as tasks:
        yield _Peers(tasks), tasks
        tasks.cancel_scope.cancel()


async def test_each_user_of_a_failed_watch_is_notified_after_the_last_update() -> None:
    async with peers() as (found, tasks):
        tasks.start_soon(found.follow, "one")
        events = await found.daemon.subscription(0)
        events.begun.set()
        leave = await found.follow("two")
        events.failed.set()
        await until(lambda: found.seen)
        assert found.seen == ["update", "end of one", "end of two"]
        assert not len(found.watches)
        leave()


async def test_a_resource_is_followed_anew_while_users_of_its_failed_watch_remain() -> None:
    async with peers() as (found, tasks):
        tasks.start_soon(found.follow, "old")
        first = await found.daemon.subscription(0)
        first.begun.set()
        leave_first = await found.follow("older")
        first.failed.set()
        await until(lambda: found.seen)
        tasks.start_soon(found.follow, "new")
        second = await found.daemon.subscription(1)
        second.begun.set()
        leave_second = await found.follow("newer")
        leave_first()
        assert len(found.watches) == 1
        found.seen.clear()
        second.failed.set()
        await until(lambda: found.seen)
        assert found.seen == ["update", "end of new", "end of newer"]
        leave_second()


async def test_a_user_that_leaves_before_the_begin_keeps_the_watch_of_the_others() -> None:
    async with peers() as (found, tasks):
        one = anyio.CancelScope()

        async def leaving() -> None:
            with one:
                await found.follow("one")

        followed = anyio.Event()

        async def staying() -> None:
            await found.follow("two")
            followed.set()

        tasks.start_soon(leaving)
        tasks.start_soon(staying)
        events = await found.daemon.subscription(0)
        one.cancel()
        await until(lambda: one.cancelled_caught)
        events.begun.set()
        await followed.wait()
        assert len(found.daemon.subscriptions) == 1


async def test_a_watch_that_nobody_waits_for_any_more_is_given_up() -> None:
    async with peers() as (found, tasks):
        scope = anyio.CancelScope()

        async def leaving() -> None:
            with scope:
                await found.follow("one")

        tasks.start_soon(leaving)
        await found.daemon.subscription(0)
        scope.cancel()
        await until(lambda: not len(found.watches))
        assert found.seen == []
