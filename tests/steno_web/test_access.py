"""The names that a request may give a viewer, and its secrets."""

import pytest

from steno_protocol.positions import Position
from steno_view.watches import Rewrite, Watch
from steno_web.access import Access

LOCAL = Access("127.0.0.1", 8321)
EVERYWHERE = Access("0.0.0.0", 8321, ("box.example",))


@pytest.mark.parametrize("host", ["127.0.0.1:8321", "localhost:8321", "[::1]:8321"])
def test_the_names_of_this_machine_are_known(host: str) -> None:
    assert LOCAL.is_host(host)
    assert LOCAL.is_origin(f"http://{host}")


@pytest.mark.parametrize(
    "host",
    ["", "127.0.0.1", "127.0.0.1:80", "evil.example:8321", "127.0.0.1.evil.example:8321",
     "user@127.0.0.1:8321", "10.0.0.7:8321", "[::1:8321", "localhost:port", "127.0.0.1:8321:1"],
)  # fmt: skip
def test_other_names_are_not(host: str) -> None:
    assert not LOCAL.is_host(host)
    assert not LOCAL.is_origin(f"http://{host}")


def test_a_viewer_for_other_machines_knows_addresses_and_its_own_name() -> None:
    assert EVERYWHERE.is_host("10.0.0.7:8321")
    assert EVERYWHERE.is_host("box.example:8321")
    assert not EVERYWHERE.is_host("evil.example:8321")
    assert EVERYWHERE.address == "http://127.0.0.1:8321/"


def test_an_origin_of_another_scheme_is_another_page() -> None:
    assert not LOCAL.is_origin("https://127.0.0.1:8321")
    assert not LOCAL.is_origin("null")


def test_each_server_has_a_token_of_its_own_which_a_header_has() -> None:
    assert LOCAL.token != EVERYWHERE.token
    assert LOCAL.has_bearer(f"Bearer {LOCAL.token}")
    assert LOCAL.has_bearer(f"bearer  {LOCAL.token} ")
    for other in (
        f"Basic {LOCAL.token}",
        LOCAL.token,
        f"Bearer {EVERYWHERE.token}",
        "Bearer ü",
        "",
    ):
        assert not LOCAL.has_bearer(other)


def test_a_page_gets_the_rewrites_that_it_has_not_seen() -> None:
    one = Rewrite(("i", 0), 1, 5, "revert_to")
    two = Rewrite(("i", 1), 2, 3, "clear")
    watch = Watch("talk", "i", Position(2, 4), rewrites=[one, two])
    assert watch.rewrites_since("i", Position(2, 1)) == []
    assert watch.rewrites_since("i", Position(1, 9)) == [two]
    assert watch.rewrites_since("i", Position(0, 9)) == [one, two]
    (unknown,) = watch.rewrites_since("older", Position(0, 9))
    assert (unknown.generation, unknown.kept) == (2, 0)
