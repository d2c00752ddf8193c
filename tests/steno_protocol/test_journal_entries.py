"""The entries of the replicated journal as bytes."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_protocol.errors import Corrupt
from steno_protocol.journal_entries import (
    AnyEntry,
    Append,
    Copy,
    Create,
    Cut,
    Name,
    decode_entries,
    encode_entries,
)

numbers = st.integers(0, 2**63 - 1)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
entries: st.SearchStrategy[AnyEntry] = st.one_of(
    st.builds(Create, numbers, names),
    st.builds(Append, numbers, numbers, numbers, st.binary(max_size=100)),
    st.builds(Copy, numbers, numbers, numbers, numbers, numbers, numbers, numbers),
    st.builds(Cut, numbers, numbers, numbers),
    st.builds(Name, names, st.none() | numbers),
)


@given(st.lists(entries, max_size=10))
def test_entries_come_back_as_they_were_written(change: list[AnyEntry]) -> None:
    assert decode_entries(encode_entries(change)) == change


@given(st.binary(max_size=60))
def test_any_other_bytes_are_entries_or_refused(body: bytes) -> None:
    with suppress(Corrupt):
        found = decode_entries(body)
        assert decode_entries(encode_entries(found)) == found


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x90\x90",
        encode_entries([Name("a", None)])[:-1],
        encode_entries([Name("a", None)]) + b"\x00",
        encode_entries([Append(1, 0, 0, b"x")]).replace(b"append", b"upsert"),
    ],
    ids=["nothing", "two values", "cut short", "followed by more", "of an unknown name"],
)
def test_a_damaged_change_is_refused(body: bytes) -> None:
    with pytest.raises(Corrupt, match="no change of a session"):
        decode_entries(body)


def test_each_entry_has_its_documented_form() -> None:
    # An older daemon reads what a newer one wrote: these bytes stay.
    change = [
        Create(1, "n"), Append(1, 2, 3, b"d"), Copy(1, 2, 3, 4, 5, 6, 7), Cut(1, 2, 3),
        Name("n", None),
    ]  # fmt: skip
    assert encode_entries(change) == (
        b"\x95"
        b"\x93\xa6create\x01\xa1n"
        b"\x95\xa6append\x01\x02\x03\xc4\x01d"
        b"\x98\xa4copy\x01\x02\x03\x04\x05\x06\x07"
        b"\x94\xa3cut\x01\x02\x03"
        b"\x93\xa4name\xa1n\xc0"
    )
