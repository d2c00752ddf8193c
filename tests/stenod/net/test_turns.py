"""Turns of the peers that take most of the daemon's time while others send, too."""

from steno_protocol import limits
from stenod.net.turns import Turns

FLOOD, OTHER = b"flood", b"other"
MESSAGE = [b"header", b"records"]
NOW = 1000.0


def _heavy() -> Turns[bytes]:
    turns = Turns[bytes]()
    turns.charge(FLOOD, 2 * limits.HEAVY_FROM_S, NOW)
    return turns


def test_peer_is_heavy_until_its_share_has_paid_for_what_it_took() -> None:
    turns = _heavy()
    assert turns.is_heavy(FLOOD, NOW)
    assert not turns.is_heavy(OTHER, NOW)
    paid_s = limits.HEAVY_FROM_S / limits.LIGHT_SHARE_MAX
    assert turns.is_heavy(FLOOD, NOW + paid_s / 2)
    assert not turns.is_heavy(FLOOD, NOW + paid_s * 1.01)


def test_time_of_a_peer_adds_up_within_a_bound() -> None:
    turns = Turns[bytes]()
    for _ in range(1000):
        turns.charge(FLOOD, 1.0, NOW)
    later = NOW + limits.HEAVY_REMEMBERED_S / limits.LIGHT_SHARE_MAX
    assert not turns.is_heavy(FLOOD, later)


def test_peers_that_took_nothing_lately_are_forgotten() -> None:
    turns = _heavy()
    turns.charge(OTHER, limits.HEAVY_FROM_S, NOW + 100)
    assert set(turns.used) == {OTHER}


def test_heavy_peer_has_turns_only_while_a_light_one_sends() -> None:
    turns = _heavy()
    assert not turns.is_turn(FLOOD, NOW)
    assert not turns.is_turn(OTHER, NOW)
    assert turns.is_turn(FLOOD, NOW)
    turns.charge(FLOOD, 1.0, NOW + limits.SHARED_S)
    assert not turns.is_turn(FLOOD, NOW + limits.SHARED_S)


def test_heavy_peer_does_not_wait_for_one_that_took_more_than_its_share() -> None:
    turns = _heavy()
    turns.charge(OTHER, limits.HEAVY_FROM_S / 2, NOW)
    assert not turns.is_turn(OTHER, NOW)
    assert not turns.is_turn(FLOOD, NOW)
    turns.charge(FLOOD, 1.0, NOW + 1)
    assert not turns.is_turn(OTHER, NOW + 1)
    assert turns.is_turn(FLOOD, NOW + 1)


def test_longest_message_of_small_appends_makes_no_peer_heavy() -> None:
    turns = Turns[bytes]()
    turns.charge(FLOOD, limits.MESSAGE_REQUESTS_MAX * limits.REQUEST_S, NOW)
    assert not turns.is_heavy(FLOOD, NOW)


def test_pause_is_in_proportion_to_the_turn() -> None:
    turns = _heavy()
    turns.begin(FLOOD, NOW)
    turns.begin(FLOOD, NOW + 0.01)
    assert turns.owner == FLOOD
    turns.end(NOW + 0.03)
    assert turns.owner is None
    assert abs(turns.until_s - (NOW + 0.03 + 0.03 * limits.PAUSE_TURNS_MIN)) < 1e-6
    turns.end_pause()
    assert turns.until_s == 0


def test_pause_is_bounded_after_a_peer_that_ended_between_the_parts_of_a_message() -> None:
    turns = _heavy()
    turns.begin(FLOOD, NOW)
    turns.go_on()
    much_later = NOW + 86_400
    turns.begin(OTHER, much_later)
    turns.end(much_later)
    assert turns.until_s <= much_later + limits.TURN_COUNTED_S_MAX * limits.PAUSE_TURNS_MIN


def test_turn_without_an_answer_ends_at_its_deadline() -> None:
    turns = _heavy()
    turns.begin(FLOOD, NOW)
    assert turns.until_s == NOW + limits.TURN_S_MAX


def test_messages_are_held_in_order_up_to_a_number_and_a_size() -> None:
    turns = _heavy()
    for number in range(limits.MAILBOX_COMMANDS_MAX):
        assert turns.hold(FLOOD, [b"%d" % number])
    assert not turns.hold(FLOOD, MESSAGE)
    assert turns.hold(OTHER, MESSAGE)
    assert not turns.hold(OTHER, [bytes(limits.HELD_BYTES_MAX)])
    # While its messages wait, a peer is heavy, or its next ones would overtake them.
    assert turns.is_heavy(FLOOD, NOW + 100)
    taken = [turns.take() for _ in range(limits.MAILBOX_COMMANDS_MAX)]
    assert taken == [(FLOOD, [b"%d" % number]) for number in range(limits.MAILBOX_COMMANDS_MAX)]
    assert not turns.is_heavy(FLOOD, NOW + 100)
    assert turns.take() == (OTHER, MESSAGE)
    assert turns.hold(OTHER, [bytes(limits.HELD_BYTES_MAX)])
