"""Commands found in replayed lines."""

import msgspec

from steno_protocol import records
from steno_protocol.positions import Position
from stenod.core.key_replay import applied_in
from stenod.core.keys import Applied, fingerprint_of_arguments, fingerprint_of_records
from support.lines import line, stamped, stamps, user


def found_in(*lines: bytes, generation: int = 2, first: int = 10) -> dict[str, Applied]:
    return dict(applied_in(list(lines), generation, first))


def appended(position: Position, *texts: str) -> Applied:
    asked = fingerprint_of_records([user(text) for text in texts])
    return Applied("append", position, len(texts), contents=asked)


def test_a_batch_is_found_at_its_first_line() -> None:
    lines = [*stamped("k1", ["one"]), *stamped("k2", ["two", "three", "four"])]

    assert found_in(*lines)["k2"] == appended(Position(2, 11), "two", "three", "four")


def test_a_batch_that_misses_a_line_is_not_found() -> None:
    batch = stamped("k2", ["two", "three", "four"])

    for missing in range(3):
        rest = batch[:missing] + batch[missing + 1 :]
        assert found_in(*rest, *stamped("k3", ["five"])).keys() == {"k3"}


def test_a_damaged_line_with_a_stamp_is_not_found() -> None:
    (whole,) = stamped("k1", ["one"])

    assert not found_in(b"{broken" + whole)
    assert not found_in(whole[:-1].replace(b"one", b"o\0e") + b"\n")


def test_batch_begun_twice_is_found_where_it_is_whole() -> None:
    batch = stamped("k2", ["two", "three"])

    assert found_in(batch[0], *batch) == {"k2": appended(Position(2, 11), "two", "three")}


def test_the_first_record_identifies_the_command() -> None:
    def one(key: str, record: bytes) -> bytes:
        return records.line(record, stamps(key, 1, "planner")[0])

    marks = stamps("c2", 2)
    notice = records.checkpoint_notice(5)
    odd = line({"role": "robot"})[:-1]
    found = found_in(
        one("c1", records.checkpoint_record(4)),
        records.line(records.checkpoint_record(5), marks[0]),
        records.line(notice, marks[1]),
        one("u", records.usage_record(7)),
        one("p", records.system_prompt_record("be kind")),
        one("odd", odd),
    )

    def applied(name: str, line: int, *asked: object, count: int = 1) -> Applied:
        compared = fingerprint_of_arguments(*asked)
        return Applied(name, Position(2, line), count, contents=compared)

    replaced = msgspec.structs.replace
    odd_contents = fingerprint_of_records([odd])
    assert found == {
        "c1": replaced(applied("checkpoint", 10, 0), checkpoint_id=4),
        "c2": replaced(applied("checkpoint", 11, 1, count=2), checkpoint_id=5),
        "u": applied("update_token_count", 13, 7),
        "p": applied("write_system_prompt", 14, "be kind"),
        "odd": Applied("append", Position(2, 15), 1, contents=odd_contents),
    }
