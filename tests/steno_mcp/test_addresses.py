"""URIs of sessions."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_mcp.addresses import ROOT, TEMPLATES, Address
from steno_protocol.errors import NotFound

SEGMENTS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.@+=,-]{0,20}", fullmatch=True)
SESSIONS = st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join)
STREAMS = st.from_regex(r"[a-z0-9._-]{1,64}", fullmatch=True)


@given(session=SESSIONS, view=st.sampled_from(["state", "markdown", "json", "wire"]))
def test_each_session_has_one_uri_for_each_view(session: str, view: str) -> None:
    address = Address(session, view)
    uri = str(address)
    assert uri.isascii()
    assert Address.parse(uri) == address


@given(session=SESSIONS, stream=STREAMS)
def test_each_stream_has_one_uri(session: str, stream: str) -> None:
    if stream in {"context", "wire"}:
        return
    address = Address(session, "stream", stream)
    assert Address.parse(str(address)) == address


@given(st.text().map(lambda text: ROOT + text) | st.text())
def test_any_other_text_is_an_address_or_not_found(uri: str) -> None:
    with suppress(NotFound):
        assert Address.parse(str(Address.parse(uri))) == Address.parse(uri)


@pytest.mark.parametrize("form", [form for form, _, _ in TEMPLATES])
def test_a_template_is_filled_with_an_encoded_session(form: str) -> None:
    uri = ROOT + form.format(session="team%2Fplanner-1", stream="notes")
    assert Address.parse(uri).session == "team/planner-1"
