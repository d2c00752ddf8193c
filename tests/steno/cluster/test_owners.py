"""Requests and subscriptions that move between the daemons of a cluster, without sockets."""

from dataclasses import dataclass, field
from math import inf

import pytest

from steno._sansio.exchange import Exchange
from steno._sansio.follower import Follower
from steno._sansio.owners import Owners
from steno._sansio.pending import Pending
from steno._sansio.route import Route
from steno.values import RecordsEvent
from steno_protocol import commands, events, limits, replies
from steno_protocol.errors import ErrorCode, Held, Outcome, OutcomeUnknown
from support.driven_exchange import ACK, Driver, only

A, B, C = "ipc:///a.sock", "ipc:///b.sock", "tcp://10.0.0.3:7117"


class OwnerDriver(Driver):
    """A driven exchange with an owner, which is connected at once."""

    def __init__(self, endpoint: str, *, connected: bool = True) -> None:
        super().__init__(connected=connected, endpoint=endpoint)

    def held(self, request_id: bytes, endpoint: str | None) -> None:
        self.answer(request_id, held(endpoint))


def held(endpoint: str | None, outcome: Outcome = Outcome.NOT_APPLIED) -> replies.ErrorReply:
    return replies.ErrorReply(
        code=ErrorCode.HELD, message="no", session="demo", endpoint=endpoint, outcome=outcome
    )


@dataclass
class World:
    """A home daemon, and owners that are connected as soon as they are named."""

    home: Driver = field(default_factory=Driver)
    connected: bool = True

    def __post_init__(self) -> None:
        self.owners: Owners[OwnerDriver] = Owners(self.home.exchange, self._make)

    def _make(self, endpoint: str) -> OwnerDriver:
        made = OwnerDriver(endpoint, connected=self.connected)
        made.now = self.home.now
        return made

    def redirect(self) -> None:
        self.owners.redirect(self.home.now)

    def wait(self, seconds: float) -> None:
        for driver in (self.home, *self.owners.links.values()):
            driver.wait(seconds)
        self.redirect()

    def sent_home(self) -> bytes:
        """The id of the only request that home got."""
        return only(self.home.sent())[0]

    def name(self, endpoint: str | None, *, by: Driver | None = None) -> None:
        """Answer the only request that was sent with `held`."""
        driver = by or self.home
        driver.answer(only(driver.sent())[0], held(endpoint))
        self.redirect()


def test_a_refused_command_goes_to_the_owner_with_its_key() -> None:
    world = World()
    pending = world.home.append("k1")
    world.name(A)
    request_id, command = only(world.owners.links[A].sent())
    assert isinstance(command, commands.Append)
    assert (command.key, command.repeat) == ("k1", False)
    world.owners.links[A].answer(request_id, ACK)
    assert pending.reply == ACK
    assert world.home.woken == ["k1"]


def test_a_command_whose_copy_may_be_applied_is_repeated_at_the_owner() -> None:
    world = World()
    world.home.append()
    [(request_id, _)] = world.home.sent()
    world.home.wait(limits.RESEND_S)
    world.home.sent()
    # One of two copies is answered; the other one may be applied before a hand-over.
    world.home.answer(request_id, held(A))
    world.redirect()
    _, command = only(world.owners.links[A].sent())
    assert isinstance(command, commands.Append)
    assert command.repeat


def test_later_commands_of_the_session_begin_at_the_owner() -> None:
    world = World()
    world.home.append()
    world.name(A)
    link_for = world.owners.link_for
    assert link_for(commands.Stat(session="demo")) is world.owners.links[A]
    assert link_for(commands.Stat(session="other")) is None
    assert link_for(commands.Status()) is None
    assert link_for(commands.List()) is None
    assert link_for(commands.Fork(session="demo", new_session="b", key="k")) is None


@pytest.mark.parametrize("code", [ErrorCode.HELD, ErrorCode.SHUTTING_DOWN])
def test_home_is_asked_after_a_pause_when_the_owner_is_none_any_more(code: ErrorCode) -> None:
    world = World()
    pending = world.home.append()
    world.name(A)
    owner = world.owners.links[A]
    owner.refuse(only(owner.sent())[0], code)
    world.redirect()
    assert world.home.sent() == []
    world.wait(limits.OWNER_PAUSE_S)
    world.home.answer(world.sent_home(), ACK)
    assert pending.reply == ACK
    assert world.owners.link_for(commands.Stat(session="demo")) is None


def test_a_lost_owner_sends_everything_home_as_repeats() -> None:
    world = World()
    world.home.append()
    world.name(A)
    owner = world.owners.links[A]
    owner.sent()
    owner.exchange.disconnected("lost")
    world.owners.drop(owner)
    owner.exchange.turn_back("lost")
    world.owners.redirect(world.home.now, owner.exchange)
    world.wait(limits.OWNER_PAUSE_S)
    _, command = only(world.home.sent())
    assert isinstance(command, commands.Append)
    assert command.repeat
    assert world.owners.links == {}


def test_pauses_grow_up_to_their_bound() -> None:
    route = Route()
    pauses = [route.turn_back() for _ in range(6)]
    assert pauses[0] == limits.OWNER_PAUSE_S
    assert pauses == sorted(pauses)
    assert pauses[-1] == limits.OWNER_PAUSE_S_MAX


def test_a_circle_and_a_long_chain_go_home() -> None:
    route = Route()
    assert [route.allows(each) for each in (A, B, A)] == [True, True, False]
    assert f"{A} and {B} name each other" in route.unanswered()
    route.turn_back()
    chain = [f"tcp://10.0.0.{number}:1" for number in range(limits.REDIRECTS_MAX + 1)]
    assert [route.allows(each) for each in chain] == [True] * limits.REDIRECTS_MAX + [False]
    assert "daemons in a row" in route.unanswered()


def test_a_silent_owner_is_greeted_and_then_left() -> None:
    world = World()
    pending = world.home.append()
    world.name(A)
    owner = world.owners.links[A]
    owner.sent()
    # A little more: the bytes of the request are under way, too.
    world.wait(1.1 * limits.OWNER_SILENCE_S)
    [(_, greeting)] = owner.sent()
    assert isinstance(greeting, commands.Hello)
    assert owner.exchange.carries(pending)
    world.wait(1.1 * limits.OWNER_SILENCE_S)
    assert world.home.exchange.carries(pending)
    assert pending.uncertain


def test_an_owner_that_answers_its_greeting_keeps_a_slow_request() -> None:
    world = World()
    pending = world.home.ask(commands.Verify(session="demo"))
    world.name(A)
    owner = world.owners.links[A]
    [(request_id, _)] = owner.sent()
    for _ in range(12):
        world.wait(limits.OWNER_SILENCE_S)
        for each, command in owner.sent():
            if isinstance(command, commands.Hello):
                owner.answer(each, owner.welcome())
    assert owner.exchange.carries(pending)
    owner.answer(request_id, replies.Done())
    assert pending.is_done


def test_a_request_waits_a_bounded_time_for_the_connection_to_an_owner() -> None:
    world = World(connected=False)
    pending = world.home.append()
    world.name(A)
    world.wait(limits.OWNER_CONNECT_S / 2)
    assert world.owners.links[A].exchange.carries(pending)
    world.wait(limits.OWNER_CONNECT_S / 2)
    assert world.home.exchange.carries(pending)
    assert not pending.uncertain


def test_the_error_at_the_deadline_names_session_owner_and_remedy() -> None:
    world = World(connected=False)
    pending = world.home.append(timeout_s=limits.OWNER_CONNECT_S / 2)
    world.name(A)
    world.wait(limits.OWNER_CONNECT_S / 2)
    assert isinstance(pending.error, Held)
    assert (pending.error.session, pending.error.endpoint) == ("demo", A)
    assert A in pending.error.message
    assert "`steno cluster status`" in pending.error.message


def test_the_outcome_at_the_deadline_is_unknown_after_a_copy_was_sent() -> None:
    world = World()
    pending = world.home.append("k1", timeout_s=0.5)
    world.name(A)
    world.owners.links[A].sent()
    world.wait(0.5)
    assert isinstance(pending.error, OutcomeUnknown)
    assert (pending.error.key, pending.error.code) == ("k1", ErrorCode.HELD)


def follow(world: World) -> Follower:
    follower = world.home.follow()
    request_id = world.sent_home()
    world.home.answer(request_id, replies.Subscribed(head="0:0", incarnation="i"))
    world.home.answer(request_id, events.Live(head="0:0"))
    follower.inbox.clear()
    return follower


def test_a_subscription_resumes_elsewhere_at_its_position() -> None:
    world = World()
    follower = follow(world)
    block = b'{"role":"user","content":"1"}\n'
    name = (follower.name or "").encode()
    world.home.answer(name, events.Records(first="0:0", next="0:1"), block)
    assert isinstance(follower.inbox.popleft(), RecordsEvent)
    world.home.answer(name, events.Gone(why="moved", moved=True))
    assert follower.error is None
    world.wait(limits.BUSY_RETRY_S)
    world.name(A)
    _, command = only(world.owners.links[A].sent())
    assert isinstance(command, commands.Subscribe)
    assert (command.after, command.incarnation) == ("0:1", "i")


def test_subscriptions_follow_when_another_owner_is_named() -> None:
    world = World()
    follower = world.home.follow()
    world.name(A)
    owner = world.owners.links[A]
    owner.sent()
    pending = Driver.append(owner)
    world.owners.begin(pending, owner.exchange)
    [(request_id, _)] = owner.sent()
    owner.answer(request_id, held(B))
    world.redirect()
    assert world.owners.links[B].exchange.carries(pending)
    assert world.owners.links[B].exchange.carries(follower)


def test_an_abandoned_subscription_is_not_moved() -> None:
    world = World()
    follower = world.home.follow()
    world.home.exchange.abandon(follower)
    world.name(A)
    assert world.owners.links == {}
    assert not world.home.exchange.wants_connection


def test_a_forgotten_request_is_not_moved() -> None:
    world = World()
    pending = world.home.append()
    request_id = world.sent_home()
    world.home.answer(request_id, held(A))
    world.home.exchange.forget(pending)
    world.redirect()
    assert world.owners.links == {}


def test_links_and_remembered_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OWNER_LINKS_MAX", 1)
    monkeypatch.setattr(limits, "OWNED_SESSIONS_MAX", 2)
    world = World()
    for session in ("a", "b", "c"):
        world.home.ask(commands.Stat(session=session))
        world.name(A)
    known = [world.owners.link_for(commands.Stat(session=each)) for each in ("a", "b", "c")]
    assert [each is not None for each in known] == [False, True, True]
    pending = world.home.ask(commands.Stat(session="d"))
    world.name(B)
    assert world.home.exchange.carries(pending)
    assert pending.route is not None
    assert "connected to 1 owners" in pending.route.unanswered()


def test_requests_leave_a_lost_home_for_another_daemon() -> None:
    world = World()
    world.home.append("k1")
    world.name(A)
    other = world.home.ask(commands.Stat(session="other"))
    status = world.home.ask(commands.Status())
    world.home.exchange.disconnected("lost")
    world.owners.leave_home()
    world.redirect()
    assert world.owners.links[A].exchange.carries(other)
    assert world.home.exchange.carries(status)
    assert world.owners.link_for(commands.Stat(session="third")) is world.owners.links[A]


def test_an_interrupted_move_is_finished_by_the_next() -> None:
    world = World()
    pending = world.home.append()
    request_id = world.sent_home()
    world.home.answer(request_id, held(A))
    drop = world.home.exchange.drop
    calls: list[Pending | Follower] = []

    def interrupted(item: Pending | Follower, ids: object = None) -> None:
        calls.append(item)
        raise KeyboardInterrupt

    world.home.exchange.drop = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        world.redirect()
    world.home.exchange.drop = drop  # type: ignore[method-assign]
    world.redirect()
    assert calls == [pending]
    assert not world.home.exchange.wants_connection
    owner = world.owners.links[A]
    owner.answer(only(owner.sent())[0], ACK)
    assert pending.reply == ACK


def test_an_exchange_with_home_watches_nobody() -> None:
    driver = Driver()
    driver.follow()
    request_id = only(driver.sent())[0]
    driver.answer(request_id, replies.Subscribed(head="0:0", incarnation="i"))
    driver.answer(request_id, events.Live(head="0:0"))
    driver.wait(10 * limits.OWNER_SILENCE_S)
    assert driver.sent() == []
    assert driver.exchange.alarm == inf
    assert isinstance(driver.exchange, Exchange)


def test_an_owner_is_watched_from_the_first_request_that_begins_at_it() -> None:
    driver = Driver(endpoint=A)
    driver.append()
    driver.sent()
    driver.wait(1.1 * limits.OWNER_SILENCE_S)
    greeting = only(driver.sent())[1]
    assert isinstance(greeting, commands.Hello)
