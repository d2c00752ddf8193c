"""Replay by blocks, which equals a read of every line."""

from hypothesis import given
from hypothesis import strategies as st

from steno_protocol import limits
from steno_protocol.context import ContextCounters, parse_line
from stenod.core.replay import Replay
from support.lines import line, stamped, user

TEXTS = st.text(max_size=6) | st.sampled_from(['"_usage"', '{"role":"_checkpoint","id":3}'])
COUNTS = st.integers(0, 9) | st.just(limits.COUNT_MAX)
RECORDS = st.one_of(
    TEXTS.map(lambda text: {"role": "user", "content": text}),
    TEXTS.map(lambda text: {"role": "_system_prompt", "content": text}),
    COUNTS.map(lambda count: {"role": "_usage", "token_count": count}),
    COUNTS.map(lambda number: {"role": "_checkpoint", "id": number}),
    st.just({"role": "_usage", "token_count": "many"}),
    st.just({"role": "_checkpoint"}),
    st.just({"content": [{"type": "text", "text": "_usage"}], "role": "assistant"}),
)
LINES = st.one_of(
    RECORDS.map(line),
    st.text(max_size=5).map(lambda text: b"".join(stamped("k", [text]))),
    st.binary(max_size=8).map(lambda data: data.replace(b"\n", b"") + b"\n"),
    st.sampled_from([b"\n", b' {"role": "_usage" , "token_count": 7 }\n', b'"_usage"\n']),
)


def counted(lines: list[bytes]) -> ContextCounters:
    counters = ContextCounters()
    for data in lines:
        counters.apply(parse_line(data))
    return counters


@given(st.lists(LINES, max_size=20), st.data())
def test_replay_by_any_blocks_equals_a_read_line_by_line(
    lines: list[bytes], data: st.DataObject
) -> None:
    replay = Replay()
    rest = lines
    while rest:
        count = data.draw(st.integers(1, len(rest)))
        replay.feed(b"".join(rest[:count]))
        rest = rest[count:]

    assert replay.counters == counted(lines)
    assert replay.lines == len(lines)


def test_a_control_record_in_a_message_is_text() -> None:
    replay = Replay()
    replay.feed(user('{"role":"_usage","token_count":9}') + b"\n")
    replay.feed(line({"role": "user", "content": "", "extra": {"role": "_checkpoint", "id": 3}}))

    assert replay.counters.token_count == 0
    assert replay.counters.n_checkpoints == 0


def test_a_role_that_another_program_wrote_with_escapes_counts_all_the_same() -> None:
    data = rb'{"role":"\u005fusage","token_count":5}' + b"\n"
    replay = Replay()
    replay.feed(data)

    assert replay.counters == counted([data])


@given(st.lists(LINES, max_size=12), COUNTS)
def test_a_replay_can_stop_where_the_first_line_of_a_checkpoint_begins(
    lines: list[bytes], wanted: int
) -> None:
    block = b"".join(lines)
    ids = [getattr(parse_line(data), "id", None) for data in lines]
    expected = len(b"".join(lines[: ids.index(wanted)])) if wanted in ids else None

    replay, only = Replay(), Replay()
    assert replay.feed(block, before=wanted) == expected
    only.feed(block[:expected])
    assert replay == only
